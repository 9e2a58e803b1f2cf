"""Prints a simulated schedule as a grid: a row per device, a column per unit of time."""

from shardc.schedule.simulate import Simulation, TimedAction

IDLE = "."
GOES_ON = "="


def grid(simulation: Simulation, unit_s: float | None = None) -> str:
    """A row per device; `.` is idle, `=` goes on with the action at its left.

    Args:
        unit_s: time of one column; None takes the shortest action. An action that starts between
            two columns is printed at the nearer one (or the next free one).
    Returns:
        Lines without a final newline; "" where no action takes time.

    Two stages, two microbatches, 1F1B, F = 1, B = 2:

        0 | 0F0 0F1 .   .   0B0 =   .   0B1 =
        1 | .   1F0 1B0 =   1F1 1B1 =   .   .
    """
    lasting = [timed for timed in simulation.timeline if timed.end_s > timed.start_s]
    if not lasting:
        return ""
    unit_s = unit_s or min(timed.end_s - timed.start_s for timed in lasting)
    rows = [
        _row([timed for timed in lasting if timed.device == device], unit_s)
        for device in range(len(simulation.peak_activations))
    ]
    columns = max(map(len, rows))
    width = max(len(cell) for row in rows for cell in row)
    label = len(str(len(rows) - 1))
    lines = []
    for device, row in enumerate(rows):
        cells = [*row, *[IDLE] * (columns - len(row))]
        text = " ".join(cell.ljust(width) for cell in cells)
        lines.append(f"{device:>{label}} | {text}".rstrip())
    return "\n".join(lines)


def _row(actions: list[TimedAction], unit_s: float) -> list[str]:
    """The cells of one device."""
    row: list[str] = []
    for timed in actions:
        start = max(len(row), round(timed.start_s / unit_s))
        row += [IDLE] * (start - len(row))
        length = max(1, round((timed.end_s - timed.start_s) / unit_s))
        row += [str(timed.action), *[GOES_ON] * (length - 1)]
    return row

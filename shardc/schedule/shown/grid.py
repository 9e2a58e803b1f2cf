"""Schedules as grids: a row per device group, a column per step or per unit of time."""

from collections.abc import Sequence

from shardc.errors import ScheduleError
from shardc.schedule.simulate import Simulation, TimedAction
from shardc.schedule.tasks import LINKS, Schedule, Task

IDLE = "."
GOES_ON = "="


def grid(simulation: Simulation, unit_s: float | None = None) -> str:
    """A row per device; `.` is idle, `=` continues the action at its left.

    Args:
        unit_s: time of one column; None takes the shortest action. An action that starts between
            two columns is printed at the nearer one (or the next free one).
    Returns:
        Lines without a final newline; "" if no action takes time. Moves, which run at the same time
        as other actions of their device, follow as comments, a line for each link.

    Two stages, two microbatches, 1F1B, F = 1, B = 2:

        0 | 0F0 0F1 .   .   0B0 =   .   0B1 =
        1 | .   1F0 1B0 =   1F1 1B1 =   .   .
    """
    lasting = [timed for timed in simulation.timeline if timed.end_s > timed.start_s]
    if not lasting:
        return ""
    computing = [timed for timed in lasting if not timed.link] or lasting
    unit = float(unit_s or min(timed.end_s - timed.start_s for timed in computing))
    devices = range(len(simulation.peak_activations))
    links = dict.fromkeys(LINKS.values())
    rows = {
        (link, device): _row([t for t in lasting if (t.link, t.device) == (link, device)], unit)
        for link in ("", *links)
        for device in devices
    }
    used = {key: row for key, row in rows.items() if row or not key[0]}
    return _text(
        list(used.values()),
        [f"# {link} {device}" if link else str(device) for link, device in used],
    )


def print_grid(schedule: Schedule) -> str:
    """A row per device group, its tasks in order, a column each; `parse_grid` reads it back."""
    lanes = [[str(task) for task in lane] for lane in schedule.lanes]
    return _text(lanes, list(map(str, schedule.groups)))


def parse_grid(text: str, where: str | None = None) -> Schedule:
    """Parses a grid, printed or hand-written.

    Each line is `device | action action ...`; `.` and `=` leave a column empty, lines that start
    with # are comments. Only the order within a row counts: dependences determine what runs at the
    same time.

    Args:
        where: name of the file, for errors.
    Raises:
        ScheduleError: SHARDC-241, a row or a word cannot be read.
    """
    rows: dict[int, list[tuple[int, Task]]] = {}
    written: dict[int, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        label, bar, cells = line.partition("|")
        if not bar or not label.strip().isdigit() or int(label) in rows:
            raise ScheduleError(
                f"'{line.strip()[:40]}' is not a row of a grid, or its device has another row",
                where=f"{where or 'grid'}:{number}",
                help="write one line per device, such as 0 | 0F0 0F1 . 0B0 0B1",
                code="SHARDC-241",
            )
        row = rows.setdefault(int(label), [])
        written[int(label)] = f"{where or 'grid'}:{number}"
        for column, word in enumerate(cells.split()):
            if word in (IDLE, GOES_ON):
                continue
            try:
                row.append((column, Task.parse(word)))
            except ScheduleError as error:
                error.where = f"{written[int(label)]}, row {int(label)}, column {column}"
                raise
    groups = sorted(rows)
    return Schedule(
        tuple(tuple(task for _, task in rows[group]) for group in groups),
        tuple(groups),
        tuple(tuple(column for column, _ in rows[group]) for group in groups),
        tuple(written[group] for group in groups) if where else (),
    )


def _text(rows: Sequence[Sequence[str]], labels: Sequence[str]) -> str:
    columns = max(map(len, rows), default=0)
    width = max((len(cell) for row in rows for cell in row), default=0)
    widest = max(map(len, labels), default=0)
    lines = []
    for label, row in zip(labels, rows, strict=True):
        cells = [*row, *[IDLE] * (columns - len(row))]
        text = " ".join(cell.ljust(width) for cell in cells)
        lines.append(f"{label:>{widest}} | {text}".rstrip())
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

"""`shardc simulate`: what a pipeline schedule costs, without devices."""

import json
import math
from typing import Any

import click

from shardc.cli.output import format_option, print_json
from shardc.errors import InputError, ScheduleError
from shardc.schedule.action import print_schedule
from shardc.schedule.check import check
from shardc.schedule.grid import grid
from shardc.schedule.registry import SCHEDULES, schedule_named
from shardc.schedule.simulate import Simulation, Times, simulate
from shardc.schedule.trace import chrome_trace
from shardc.schedule.work import Work

TIMES = {
    "F": "forward_s",
    "B": "backward_s",
    "W": "weight_s",
    "P": "prologue_s",
    "U": "update_s",
}


@click.command()
@click.option("--schedule", default="1f1b", show_default=True, help=", ".join(SCHEDULES) + ".")
@click.option("--stages", type=int, required=True, help="Stages of the pipeline, one per device.")
@click.option("--microbatches", type=int, required=True, help="Microbatches per step.")
@click.option("--chunks", type=int, default=1, show_default=True, help="Stages per device.")
@click.option(
    "--times",
    default="F=1,B=1,W=1",
    show_default=True,
    help="Time of forward, input-gradient and weight-gradient backward of one microbatch on one"
    " stage; P= and U= add the work before and after the microbatches.",
)
@click.option("--transfer", type=float, default=0.0, help="Time between neighbouring stages.")
@click.option("--forward-only", is_flag=True, help="A pipeline without backward.")
@click.option("--trace", type=click.Path(dir_okay=False), help="Write a Chrome trace here.")
@format_option
def command(
    schedule: str,
    stages: int,
    microbatches: int,
    chunks: int,
    times: str,
    transfer: float,
    forward_only: bool,
    trace: str | None,
    output_format: str,
) -> None:
    """Simulate a pipeline schedule without devices.

    Times are in any one unit; a schedule that does not split the backward takes B + W for it.
    """
    kind = schedule_named(schedule)
    if chunks != 1:
        raise ScheduleError(
            f"'{schedule}' runs one chunk per device, not {chunks}",
            help="leave --chunks out",
            code="SHARDC-242",
        )
    given = _parse_times(times)
    if not (math.isfinite(transfer) and transfer >= 0):
        raise InputError(f"a transfer cannot take {transfer}", help="give 0 or more")
    work = Work(
        stages,
        microbatches,
        backward=not forward_only,
        prologue="P" in given,
        update_rounds=1 if "U" in given else 0,
    )
    actions = kind.generate(work)
    check(actions, work, [kind.peak_activations(stage, work) for stage in range(stages)])
    result = simulate(
        actions,
        work,
        Times(**{TIMES[letter]: number for letter, number in given.items()}),
        transfer,
    )
    if trace is not None:
        _write_trace(trace, result)
    if output_format == "json":
        print_json(_json(result, [list(device) for device in print_schedule(actions)]))
        return
    click.echo(grid(result))
    click.echo(f"makespan          {result.makespan_s:g}")
    click.echo(f"bubble ratio      {result.bubble_ratio:.4f}")
    peaks = " ".join(f"{peak:g}" for peak in result.peak_activations)
    click.echo(f"peak activations  {peaks} (microbatches per device)")


def _parse_times(text: str) -> dict[str, float]:
    """`F=1,B=2` as numbers by letter; InputError (SHARDC-180) if it is something else."""
    given: dict[str, float] = {}
    for part in text.split(","):
        letter, _, number = part.strip().partition("=")
        try:
            given[letter] = float(number)
            known = letter in TIMES and math.isfinite(given[letter]) and given[letter] >= 0
        except ValueError:
            known = False
        if not known:
            raise InputError(
                f"'{part}' in --times {text} is not the time of an action",
                help="write, for example, --times F=1,B=1,W=1 (of F B W P U, each 0 or more)",
            )
    return given


def _write_trace(path: str, result: Simulation) -> None:
    """Writes the Chrome trace; InputError (SHARDC-180) where `path` cannot be written."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(chrome_trace(result), file)
    except OSError as error:
        raise InputError(
            f"the trace cannot be written: {error.strerror}",
            where=path,
            help="give another --trace",
        ) from error


def _json(result: Simulation, actions: list[list[str]]) -> dict[str, Any]:
    """The words of the public contract, and the timeline."""
    return {
        "makespan": result.makespan_s,
        "bubble_ratio": result.bubble_ratio,
        "peak_activations": result.peak_activations,
        "actions": actions,
        "timeline": [
            {
                "action": str(timed.action),
                "device": timed.device,
                "start": timed.start_s,
                "end": timed.end_s,
            }
            for timed in result.timeline
        ],
    }

"""`shardc simulate`: the cost of a pipeline schedule, without devices."""

from fractions import Fraction
from typing import Any

import click

from shardc.cli.output import format_option, print_json
from shardc.errors import InputError
from shardc.report.trace import save_simulation
from shardc.schedule.check import check
from shardc.schedule.family import Costs
from shardc.schedule.next_step import next_step_s
from shardc.schedule.registry import plan_schedule
from shardc.schedule.shown.grid import grid
from shardc.schedule.simulate import Simulation, Ways, simulate
from shardc.schedule.tasks import print_lanes
from shardc.schedule.times import Times, durations
from shardc.schedule.work import Work

TIMES = {
    "F": "forward_s",
    "B": "backward_s",
    "W": "weight_s",
    "P": "prologue_s",
    "U": "update_s",
    "G": "gather_s",
    "R": "reduce_s",
    "O": "offload_s",
    "L": "load_s",
}


@click.command()
@click.option(
    "--schedule",
    default="1f1b",
    show_default=True,
    help="Name of a schedule (see docs/schedules.md), or a file with a grid or JSON lanes.",
)
@click.option("--stages", type=int, required=True, help="Device groups of the pipeline.")
@click.option("--microbatches", type=int, required=True, help="Microbatches per step.")
@click.option("--chunks", type=int, help="Stages per device group; by default the schedule's own.")
@click.option("--slices", type=int, help="Token slices per microbatch, if the schedule has any.")
@click.option(
    "--times",
    default="F=1,B=1,W=1",
    show_default=True,
    help="Times of forward, input-gradient and weight-gradient backward of one microbatch on one"
    " device group's whole share (a chunk or slice takes a proportional part); P= and U= add the"
    " work before and after the microbatches, G= and R= gathers of sharded parameters and"
    " reduce-scatters of gradients; O= and L= are offloads and loads.",
)
@click.option(
    "--offload-time",
    default=None,
    help="Time to move one microbatch's activations to the host, and that to move them back.",
)
@click.option(
    "--offload-chunks",
    default=None,
    help="Chunks of each device whose activations move to the host, such as 0 or 0,2.",
)
@click.option(
    "--parameter-size",
    default="0",
    help="Size of a device's whole parameters, in microbatches of activations, if G gathers them.",
)
@click.option("--transfer", default="0", help="Time between neighbouring stages.")
@click.option("--no-overlap", is_flag=True, help="A group waits until its sends have completed.")
@click.option("--contention", is_flag=True, help="Transfers between two groups take turns.")
@click.option(
    "--max-activations",
    default=None,
    help="Microbatches that a device group may hold: limits optimal and zeropp, checks all others.",
)
@click.option(
    "--weight-share",
    default="1",
    help="Share of a microbatch's activations that its weight gradient still needs after B.",
)
@click.option(
    "--attention-share",
    default="0",
    help="Part of F that is attention, quadratic in the sequence: sets the lengths of slices.",
)
@click.option(
    "--effort",
    type=click.FloatRange(min=0),
    default=30.0,
    help="Work that optimal may spend on its search: about the seconds on two free cores,"
    " counted, so that a busy machine finds the same order.",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0),
    default=45.0,
    help="Seconds after which optimal stops.",
)
@click.option("--forward-only", is_flag=True, help="Simulate a pipeline without backward.")
@click.option(
    "--trace",
    type=click.Path(dir_okay=False),
    help="Write a trace for Perfetto here (X.json: Chrome's).",
)
@format_option
def command(
    schedule: str,
    stages: int,
    microbatches: int,
    chunks: int | None,
    slices: int | None,
    times: str,
    offload_time: str | None,
    offload_chunks: str | None,
    parameter_size: str,
    transfer: str,
    no_overlap: bool,
    contention: bool,
    max_activations: str | None,
    weight_share: str,
    attention_share: str,
    effort: float,
    time_limit: float,
    forward_only: bool,
    trace: str | None,
    output_format: str,
) -> None:
    """Simulate a pipeline schedule without devices.

    Times are in any one unit; a schedule that does not split the backward takes B + W for it.
    Decimals and fractions are kept exact.
    """
    given = _parse_times(times)
    if offload_time is not None:
        given["O"] = given["L"] = _number("--offload-time", offload_time)
    limit = None if max_activations is None else _number("--max-activations", max_activations)
    amounts: dict[str, Any] = {TIMES[letter]: number for letter, number in given.items()}
    costs = Costs(
        times=Times(**amounts),
        transfer_s=_number("--transfer", transfer),
        max_activations=limit,
        effort_s=effort,
        time_limit_s=time_limit,
        attention_share=_share("--attention-share", attention_share),
    )
    base = Work(
        stages,
        microbatches,
        backward=not forward_only,
        prologue="P" in given,
        update_rounds=1 if "U" in given else 0,
        weight_share=_share("--weight-share", weight_share),
        gathers=bool({"G", "R"} & given.keys()),
        parameters=_number("--parameter-size", parameter_size),
        offloads=() if offload_chunks is None else _chunks(offload_chunks),
    )
    planned = plan_schedule(schedule, base, costs, chunks, slices)
    bound = None if limit is None else [limit] * planned.graph.num_groups
    check(planned.schedule, planned.graph, bound)
    seconds = durations(planned.work, costs.times, planned.slice_shares)
    ways = Ways(
        overlap=not no_overlap,
        link=(lambda source, target: [(source, target)]) if contention else None,
    )
    result = simulate(planned.schedule, planned.graph, seconds, costs.transfer_s, **ways)
    added = next_step_s(planned.schedule, planned.graph, seconds, costs.transfer_s, **ways)
    if trace is not None:
        save_simulation(trace, result)
    if output_format == "json":
        data = _json(result, [list(lane) for lane in print_lanes(planned.schedule)])
        data["next_step"] = float(added)
        if planned.lower_bound is not None:
            data["lower_bound"] = float(planned.lower_bound)
            work = planned.work
            data |= {"chunks": work.chunks, "slices": work.slices, "replicas": work.replicas}
        print_json(data)
        return
    click.echo(grid(result))
    click.echo(f"makespan          {float(result.makespan_s):g}")
    click.echo(f"next step adds    {float(added):g}")
    click.echo(f"bubble ratio      {float(result.bubble_ratio):.4f}")
    click.echo(f"span bubble ratio {float(result.span_bubble_ratio):.4f}")
    peaks = " ".join(f"{float(peak):g}" for peak in result.peak_activations)
    click.echo(f"peak activations  {peaks} (microbatches per device)")
    if planned.lower_bound is not None:
        work = planned.work
        click.echo(
            f"placement         {work.chunks} stages per device, {work.replicas} copies of each,"
            f" {work.slices} slices per microbatch"
        )
        click.echo(f"span              {float(result.span_s):g}")
        click.echo(f"lower bound       {float(planned.lower_bound):g} (of any span)")


def _number(option: str, text: str) -> Fraction:
    """A nonnegative number, exact; InputError (SHARDC-180) if `text` is not one."""
    try:
        value = Fraction(text.strip())
    except (ValueError, ZeroDivisionError):
        value = Fraction(-1)
    if value < 0:
        raise InputError(f"{option} {text} is not a nonnegative number", help="write 0.5 or 1/2")
    return value


def _chunks(text: str) -> tuple[int, ...]:
    """`0,2` as numbers; InputError (SHARDC-180) if it is anything else."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() for part in parts):
        raise InputError(
            f"--offload-chunks {text} is not a list of numbers", help="write 0, or 0,2"
        )
    return tuple(map(int, parts))


def _share(option: str, text: str) -> Fraction:
    """A number from 0 to 1; InputError (SHARDC-180) if `text` is not one."""
    value = _number(option, text)
    if value > 1:
        raise InputError(f"{option} {text} is greater than 1", help="give a number from 0 to 1")
    return value


def _parse_times(text: str) -> dict[str, Fraction]:
    """`F=1,B=2` as numbers by letter; InputError (SHARDC-180) if it is anything else."""
    given: dict[str, Fraction] = {}
    for part in text.split(","):
        letter, _, number = part.strip().partition("=")
        if letter not in TIMES:
            raise InputError(
                f"'{part}' in --times {text} is not the time of an action",
                help="write, for example, --times F=1,B=1,W=1 (of F B W P U G R O L, each 0 or"
                " more)",
            )
        given[letter] = _number(f"--times {letter}=", number)
    return given


def _json(result: Simulation, actions: list[list[str]]) -> dict[str, Any]:
    """The JSON of the command, with the timeline."""
    return {
        "makespan": float(result.makespan_s),
        "bubble_ratio": float(result.bubble_ratio),
        "span": float(result.span_s),
        "span_bubble_ratio": float(result.span_bubble_ratio),
        "peak_activations": [float(peak) for peak in result.peak_activations],
        "actions": actions,
        "timeline": [
            {
                "action": str(timed.action),
                "device": timed.device,
                "start": float(timed.start_s),
                "end": float(timed.end_s),
            }
            for timed in result.timeline
        ],
    }

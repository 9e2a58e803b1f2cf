"""The plan as a table: one row per stage, the cost of a step, and unmet requests."""

import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shardc.backend.stage_text import collectives_of
from shardc.plan.decisions import Plan, stage_words
from shardc.plan.executable import Executable
from shardc.plan.layout import Mesh, placement, ranges, stage_names
from shardc.plan.notes import scaled, size
from shardc.plan.predicted import JudgedSchedule, Memory

_SHORT = {
    "stablehlo.all_reduce": "AR",
    "stablehlo.all_gather": "AG",
    "stablehlo.all_to_all": "A2A",
    "stablehlo.reduce_scatter": "RS",
    "stablehlo.collective_permute": "CP",
}
WIDTH = 110
WORTH_A_LINE = 0.001  # of the step
MOST_SCHEDULES = 10  # in the table; the plan has all


def explain(plan: Plan, executable: Executable | None = None, width: int = WIDTH) -> str:
    """The table as text; with an executable also the collectives in each stage's programs."""
    return printed(renderables(plan, executable), width)


def printed(parts: Iterable[Table | Text], width: int = WIDTH) -> str:
    """Tables and lines as plain text."""
    buffer = io.StringIO()
    console = Console(file=buffer, width=width, color_system=None, highlight=False)
    for part in parts:
        console.print(part)
    return buffer.getvalue()


def renderables(plan: Plan, executable: Executable | None = None) -> Iterator[Table | Text]:
    """The same for a rich console."""
    microbatches = _count(plan.num_microbatches, "microbatch", "microbatches")
    yield Text(
        f"{stage_words(plan.num_stages, plan.num_chunks)}, {microbatches}, schedule {plan.schedule}"
    )
    yield _stage_table(plan, executable)
    predicted = plan.predicted
    yield Text(
        f"predicted: {seconds(predicted.step_time_s)} per step"
        f" ({predicted.bubble_fraction:.0%} idle in the pipeline),"
        f" {size(predicted.peak_bytes_per_device)} per device,"
        f" {size(predicted.communication_bytes)} sent per step"
    )
    if 0.0 < predicted.next_step_s < predicted.step_time_s * (1.0 - WORTH_A_LINE):
        yield Text(
            f"in a run of many steps, one more adds {seconds(predicted.next_step_s)}: devices that"
            " end early begin the next one before the others have ended"
        )
    terms = plan.terms
    yield Text(
        f"of the step: {seconds(terms.compute_s)} compute and {seconds(terms.communication_s)}"
        f" communication of the busiest stage, {seconds(terms.waiting_s)} waiting"
    )
    if plan.schedules:
        yield Text(
            "schedules considered for this pipeline; ~: estimated from the programs of the first"
        )
        shown = _fastest(plan)
        yield _schedule_table(shown)
        if len(shown) < len(plan.schedules):
            yield Text(f"... and {len(plan.schedules) - len(shown)} more in `plan.schedules`")
    alike: dict[str, list[int]] = {}
    for number, stage in enumerate(plan.stages):
        alike.setdefault(memory_text(stage.memory), []).append(number)
    for memory, own in alike.items():
        names = stage_names(own, len(plan.own_stages))
        yield Text(f"memory of a device of {names} at its peak: {memory}")
    yield Text(
        f"solver: objective {seconds(plan.objective)},"
        f" proven lower bound {seconds(plan.lower_bound)};"
        f" {_origin(plan)}"
    )
    if executable is not None:
        yield Text(
            "collectives: "
            + ", ".join(
                f"{short} {kind.removeprefix('stablehlo.')}" for kind, short in _SHORT.items()
            )
        )
    for note in plan.notes:
        yield Text(f"note: {note}")


def _origin(plan: Plan) -> str:
    took = f"planned in {plan.planning_time_s:.1f} s"
    return f"loaded from the cache ({took} then)" if plan.from_cache else took


def memory_text(memory: Memory) -> str:
    """`12 MiB parameters, 3 MiB stash`; empty entries are left out."""
    held = {name: getattr(memory, name) for name in memory.__struct_fields__}
    parts = [f"{size(count)} {name.replace('_', ' ')}" for name, count in held.items() if count]
    return ", ".join(parts) or "nothing"


def _stage_table(plan: Plan, executable: Executable | None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("stage", justify="right")
    table.add_column("mesh")
    table.add_column("devices")
    table.add_column("layers")
    table.add_column("FLOPs/step", justify="right")
    table.add_column("peak/device", justify="right")
    table.add_column("s/microbatch", justify="right")
    if executable is not None:
        table.add_column("collectives/step")
    for number, stage in enumerate(plan.stages):
        row = [
            str(placement(number, len(plan.own_stages))),
            mesh_text(stage.mesh),
            ranges(stage.mesh.device_ids),
            ranges(stage.layers) or "all",
            scaled(stage.num_flops, 1000, ("", "k", "M", "G", "T", "P", "E")),
            size(stage.peak_bytes),
            seconds(stage.time_s),
        ]
        if executable is not None:
            row.append(_collectives(executable, number))
        table.add_row(*row)
    return table


def _fastest(plan: Plan) -> list[JudgedSchedule]:
    """The first schedules of the list, and the one that was chosen."""
    own = plan.schedule, plan.num_chunks, plan.num_slices
    return [
        each
        for n, each in enumerate(plan.schedules)
        if n < MOST_SCHEDULES or (each.name, each.chunks, each.slices) == own
    ]


def _schedule_table(schedules: Sequence[JudgedSchedule]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("schedule")
    table.add_column("chunks", justify="right")
    table.add_column("step", justify="right")
    table.add_column("peak/device", justify="right")
    table.add_column("")
    for each in schedules:
        about = "" if each.is_planned else "~"
        known = each.step_time_s > 0.0
        table.add_row(
            each.name if each.slices == 1 else f"{each.name}, {each.slices} slices",
            str(each.chunks),
            f"{about}{seconds(each.step_time_s)}" if known else "",
            f"{about}{size(each.peak_bytes)}" if known else "",
            each.refusal or _about(each),
        )
    return table


def _about(each: JudgedSchedule) -> str:
    words = [f"with recompute {each.recompute}"] if each.recompute else []
    if each.lower_bound_s:
        words.append(f"no order of these stages takes less than {seconds(each.lower_bound_s)}")
    return "; ".join(words)


def _collectives(executable: Executable, stage: int) -> str:
    counts = collectives_per_step(executable, stage)
    return " ".join(f"{counts[kind]} {_SHORT[kind]}" for kind in _SHORT if counts[kind]) or "none"


def collectives_per_step(executable: Executable, stage: int) -> Counter[str]:
    """How many collectives of each kind the programs of a stage run in one step.

    Programs that XLA partitions (lowering "xla") show none.
    """
    counts: Counter[str] = Counter()
    for program in executable.programs:
        if program.stage == stage:
            times = executable.num_microbatches if program.kind.per_microbatch else 1
            for kind, number in collectives_of(program).items():
                counts[kind] += times * number
    return counts


def mesh_text(mesh: Mesh) -> str:
    """`2x4 (x, y)`; a single device is `1`."""
    if not mesh.axes:
        return "1"
    return f"{'x'.join(map(str, mesh.shape))} ({', '.join(name for name, _ in mesh.axes)})"


def seconds(duration_s: float) -> str:
    """`1.23 ms`"""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if duration_s * scale >= 1:
            return f"{duration_s * scale:.3g} {unit}"
    return f"{duration_s * 1e9:.3g} ns"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"

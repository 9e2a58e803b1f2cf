"""The charts of a report, drawn with Bokeh."""

from collections.abc import Sequence

from bokeh.models import ColumnDataSource, FactorRange, HoverTool, Range1d, Span
from bokeh.palettes import Category10

from shardc.plan.account import Account
from shardc.plan.alternatives import Alternative, mesh_words
from shardc.plan.decisions import Plan
from shardc.plan.layout import ranges, stage_names
from shardc.plan.notes import size
from shardc.plan.predicted import Memory
from shardc.report.compare import loses_by, step_words
from shardc.report.memory_curve import memory_curve
from shardc.report.model import Communication, StageWords
from shardc.report.page.figures import (
    ON_BARS,
    ROW,
    SIZES,
    TIMES,
    Bar,
    Chart,
    bars,
    empty_figure,
    unit,
)
from shardc.report.summary import seconds
from shardc.schedule.tasks import (
    BACKWARD,
    FORWARD,
    GATHER,
    LINKS,
    LOAD,
    OFFLOAD,
    ONCE_PER_STEP,
    PROLOGUE,
    REDUCE,
    UPDATE,
    WEIGHT,
    WHOLE_BACKWARD,
    Task,
)

SERIES = {  # color and name of each kind of action
    PROLOGUE: ("#8c8c8c", "before the microbatches"),
    FORWARD: ("#4c78a8", "forward"),
    BACKWARD: ("#f58518", "backward"),
    WEIGHT: ("#e45756", "weight gradient"),
    WHOLE_BACKWARD: ("#72b7b2", "backward and weight gradient"),
    UPDATE: ("#54a24b", "update"),
    GATHER: ("#9d755d", "gather of parameters"),
    REDUCE: ("#b279a2", "reduce-scatter of gradients"),
    OFFLOAD: ("#ff9da6", "offload to the host"),
    LOAD: ("#eeca3b", "load from the host"),
}
LIMIT = "#e45756"
MOST_BARS = 30
MOST_RANKED = 12
NAMED = 0.035  # least share of a step for an action that shows its microbatch
FAR = 4  # a limit more than this many times the peak is named, not drawn


def timeline(account: Account) -> Chart:
    """What each device group runs over time."""
    groups = max((each.group for each in account.timeline), default=0) + 1
    end_s = max((each.end_s for each in account.timeline), default=0.0)
    name, scale = unit(end_s, TIMES)
    plot = empty_figure(
        max(ROW * groups, 2 * ROW),
        x_range=Range1d(0, 1.01 * end_s / scale),
        y_range=FactorRange(*[f"group {g}" for g in reversed(range(groups))]),
        x_axis_label=name,
    )
    legend, numbered = [], False
    tasks = [Task.parse(each.action) for each in account.timeline]
    for kind, (color, words) in SERIES.items():
        own = [
            (each, task)
            for each, task in zip(account.timeline, tasks, strict=True)
            if task.kind == kind
        ]
        if not own:
            continue
        source = ColumnDataSource(
            {
                "lane": [f"group {each.group}" for each, _ in own],
                "left": [each.start_s / scale for each, _ in own],
                "right": [each.end_s / scale for each, _ in own],
                "action": [each.action for each, _ in own],
                "took": [seconds(each.end_s - each.start_s) for each, _ in own],
            }
        )
        plot.hbar(
            y="lane", left="left", right="right", source=source, color=color,
            line_color=None, height=0.25 if kind in LINKS else 0.8,  # moves run beside programs
        )  # fmt: skip
        wide = (
            []
            if kind in ONCE_PER_STEP or kind in LINKS
            else [each for each in own if each[0].end_s - each[0].start_s >= NAMED * end_s]
        )
        numbered |= bool(wide)
        plot.text(
            x=[(each.start_s + each.end_s) / 2 / scale for each, _ in wide],
            y=[f"group {each.group}" for each, _ in wide],
            text=[str(task.microbatch) for _, task in wide],
            text_color=ON_BARS, text_font_size="10px", text_align="center",
            text_baseline="middle",
        )  # fmt: skip
        legend.append((color, words))
    plot.add_tools(HoverTool(tooltips=[("", "@action, @took")]))
    caption = "Numbers are microbatches." if numbered else ""
    return Chart("Timeline of a step", plot, tuple(legend), caption)


def memory(plan: Plan, account: Account) -> Chart:
    """Bytes on one device of each group over a step, and the limit."""
    groups = plan.groups
    curves = [memory_curve(plan, account, group) for group in range(len(groups))]
    end_s = max((each.end_s for each in account.timeline), default=0.0)
    time_name, time = unit(end_s, TIMES)
    peak = max((held for curve in curves for _, held in curve), default=0.0)
    shows_limit = account.limit_bytes <= FAR * peak
    most = max(peak, account.limit_bytes if shows_limit else 0.0)
    size_name, scale = unit(most, SIZES)
    plot = empty_figure(
        220,
        x_range=Range1d(0, 1.01 * end_s / time),
        y_range=Range1d(0, 1.05 * most / scale),
        x_axis_label=time_name,
        y_axis_label=size_name,
    )
    alike: dict[tuple[tuple[float, float], ...], list[int]] = {}
    for group, curve in enumerate(curves):
        alike.setdefault(tuple(curve), []).append(group)
    legend = []
    for n, (points, own) in enumerate(alike.items()):
        color = Category10[10][n % 10]
        at_s, held = zip(*points, (end_s, points[-1][1]), strict=True)
        plot.step(
            [each / time for each in at_s], [each / scale for each in held], mode="after",
            color=color, line_width=2,
        )  # fmt: skip
        legend.append((color, f"group{'s' * (len(own) > 1)} {ranges(tuple(own))}"))
    if shows_limit:
        plot.add_layout(
            Span(
                location=account.limit_bytes / scale,
                dimension="width",
                line_color=LIMIT,
                line_dash="dashed",
                line_width=2,
            )
        )
        legend.append((LIMIT, f"limit of a device, {size(account.limit_bytes)}"))
    far = f"The limit of a device, {size(account.limit_bytes)}, is far above this chart."
    caption = "" if shows_limit else far
    return Chart("Memory of a device over a step", plot, tuple(legend), caption)


def at_peak(stages: Sequence[StageWords], num_own: int) -> Chart:
    """Live bytes at the peak, on a device of each stage; equal stages share a bar."""
    used = [k for k in Memory.__struct_fields__ if any(getattr(s.memory, k) for s in stages)]
    alike: dict[Memory, list[int]] = {}
    for number, stage in enumerate(stages):
        alike.setdefault(stage.memory, []).append(number)
    rows = [
        Bar(
            f"{_stages(own, len(stages), num_own)}{size(memory.total)}",
            tuple(float(getattr(memory, k)) for k in used),
            ", ".join(f"{size(getattr(memory, k))} {k.replace('_', ' ')}" for k in used),
        )
        for memory, own in alike.items()
    ]
    name, scale = unit(max((sum(row.parts) for row in rows), default=0.0), SIZES)
    colors = Category10[10][: len(used)]
    legend = tuple((color, k.replace("_", " ")) for color, k in zip(colors, used, strict=True))
    return Chart("Alive at the peak, on one device", bars(rows, colors, scale, name), legend)


def _stages(own: Sequence[int], total: int, num_own: int) -> str:
    return "" if total == 1 else f"{stage_names(own, num_own)}: "


def communication(found: Sequence[Communication], num_stages: int, num_own: int) -> Chart:
    """Seconds of collectives by axes and kind; stages with equal ones share a bar."""
    alike: dict[tuple[object, ...], list[Communication]] = {}
    for each in sorted(found, key=lambda each: -each.seconds):
        key = each.axes, each.kind, each.count, each.num_bytes, each.seconds
        alike.setdefault(key, []).append(each)
    rows = [
        Bar(
            f"{_stages([each.stage for each in own], num_stages, num_own)}{own[0].kind}"
            f" over {', '.join(own[0].axes)}, {own[0].count:g} times: {seconds(own[0].seconds)}",
            (own[0].seconds,),
            f"results of {size(own[0].num_bytes)} on each device",
        )
        for own in alike.values()
    ]
    caption = ""
    if len(rows) > MOST_BARS:
        rest_s = max(row.parts[0] for row in rows[MOST_BARS:])
        caption = f"{len(rows) - MOST_BARS} more take at most {seconds(rest_s)} each."
        rows = rows[:MOST_BARS]
    name, scale = unit(max(row.parts[0] for row in rows), TIMES)
    plot = bars(rows, [SERIES[FORWARD][0]], scale, f"{name} per step")
    return Chart("Sent inside stages", plot, (), caption)


def ranked(judged: Sequence[Alternative]) -> Chart:
    """Breakdown of the step time of each pipeline considered, those that do not fit at the end."""
    rows = []
    for number, each in enumerate(judged[:MOST_RANKED], 1):
        terms = each.exact
        if each.missing_bytes or each.refusal:
            parts = (0.0, 0.0, 0.0, 0.0)
        elif terms is not None:
            parts = (terms.compute_s, terms.communication_s, terms.waiting_s, 0.0)
        else:
            parts = (0.0, 0.0, 0.0, each.step_time_s)
        words = f"{number}. {each.name}: {mesh_words(each.meshes)}, {each.num_microbatches} mb,"
        why = loses_by(each, judged[0])
        known = step_words(each)
        rows.append(
            Bar(
                f"{words} {each.schedule}, {known}",
                parts,
                f"{known}{f' ({why})' if why else ''}",
            )
        )
    name, scale = unit(max(sum(row.parts) for row in rows), TIMES)
    colors = ("#4c78a8", "#f58518", "#8c8c8c", "#bab0ac")
    named = zip(colors, ("compute", "communication", "waiting", "estimated only"), strict=True)
    legend = tuple(each for n, each in enumerate(named) if any(row.parts[n] for row in rows))
    more = len(judged) - MOST_RANKED
    caption = "mb: microbatches." + (f" {more} more are in the plan file." if more > 0 else "")
    plot = bars(rows, colors, scale, f"{name} per step")
    return Chart("Pipelines considered", plot, legend, caption)

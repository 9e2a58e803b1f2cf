"""The charts of a report, drawn with Bokeh."""

from collections.abc import Sequence
from typing import Any

from bokeh.models import ColumnDataSource, FactorRange, HoverTool, NumeralTickFormatter, Span
from bokeh.palettes import Category10, Category20
from bokeh.plotting import figure

from shardc.plan.account import Account
from shardc.plan.alternatives import Alternative, mesh_words
from shardc.plan.decisions import Plan
from shardc.plan.predicted import Memory
from shardc.report.memory import memory_curve, stages_of_groups
from shardc.report.model import Communication, StageWords
from shardc.report.summary import seconds, size
from shardc.schedule.tasks import KINDS, Task

INK = "#7f868f"  # readable on light and dark backgrounds
COLORS = dict(
    zip(KINDS, ("#8c8c8c", "#4c78a8", "#f58518", "#e45756", "#72b7b2", "#54a24b"), strict=True)
)
MOST_RANKED = 12
MS = 1e3
MIB = 1 << 20


def _figure(title: str, height: int, **options: Any) -> Any:
    plot = figure(
        title=title,
        height=height,
        sizing_mode="stretch_width",
        background_fill_alpha=0,
        border_fill_alpha=0,
        toolbar_location="above",
        tools="pan,xwheel_zoom,box_zoom,reset",
        output_backend="canvas",
        **options,
    )
    plot.title.text_color = INK
    plot.outline_line_color = None
    for axis in plot.axis:
        axis.axis_label_text_color = axis.major_label_text_color = INK
        axis.axis_line_color = axis.major_tick_line_color = axis.minor_tick_line_color = INK
    plot.grid.grid_line_alpha = 0.2
    return plot


def _legend(plot: Any) -> None:
    for legend in plot.legend:
        legend.background_fill_alpha = 0
        legend.label_text_color = INK
        legend.click_policy = "hide"
    if plot.legend:
        plot.add_layout(plot.legend[0], "below")
        plot.legend[0].orientation = "horizontal"
        plot.legend[0].ncols = 2  # as many as a phone is wide


def _bars(count: int) -> int:
    return 90 + 26 * max(count, 1)


def timeline(account: Account) -> Any:
    """What each device group runs over time."""
    groups = max((each.group for each in account.timeline), default=0) + 1
    plot = _figure(
        "Timeline of a step (ms)",
        _bars(groups),
        y_range=FactorRange(*[f"group {g}" for g in reversed(range(groups))]),
    )
    tasks = [Task.parse(each.action) for each in account.timeline]
    for kind, words in KINDS.items():
        own = [
            each for each, task in zip(account.timeline, tasks, strict=True) if task.kind == kind
        ]
        if own:
            source = ColumnDataSource(
                {
                    "lane": [f"group {each.group}" for each in own],
                    "left": [MS * each.start_s for each in own],
                    "right": [MS * each.end_s for each in own],
                    "action": [each.action for each in own],
                    "took": [seconds(each.end_s - each.start_s) for each in own],
                }
            )
            plot.hbar(
                y="lane",
                left="left",
                right="right",
                height=0.7,
                source=source,
                color=COLORS[kind],
                line_color=None,
                legend_label=words.split(",")[0].split(" of one")[0].split(" (")[0],
            )
    plot.add_tools(HoverTool(tooltips=[("", "@action, @took")]))
    _legend(plot)
    return plot


def memory(plan: Plan, account: Account) -> Any:
    """Bytes on one device of each group over a step, and the limit."""
    plot = _figure("Memory of a device over a step (MiB, by ms)", 260)
    groups = stages_of_groups(plan)
    colors = Category10[10]
    for group in range(len(groups)):
        curve = memory_curve(plan, account, group)
        plot.step(
            [MS * at for at, _ in curve],
            [held / MIB for _, held in curve],
            mode="after",
            color=colors[group % 10],
            line_width=2,
            **({"legend_label": f"group {group}"} if len(groups) <= 10 else {}),
        )
    if account.limit_bytes < 20 * plan.predicted.peak_bytes_per_device:
        limit = Span(
            location=account.limit_bytes / MIB,
            dimension="width",
            line_color="#e45756",
            line_dash="dashed",
        )
        plot.add_layout(limit)
    plot.y_range.start = 0
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[00]")
    _legend(plot)
    return plot


def at_peak(stages: Sequence[StageWords]) -> Any:
    """Live bytes at the peak, on a device of each stage."""
    names = [f"stage {n}" for n in range(len(stages))]
    used = [k for k in Memory.__struct_fields__ if any(getattr(s.memory, k) for s in stages)]
    data: dict[str, Any] = {k: [getattr(s.memory, k) / MIB for s in stages] for k in used}
    plot = _figure(
        "Alive at the peak (MiB on one device)",
        _bars(len(stages)),
        y_range=FactorRange(*names[::-1]),
    )
    plot.hbar_stack(
        used,
        y="stage",
        height=0.7,
        color=Category10[10][: len(used)],
        source=ColumnDataSource({"stage": names, **data}),
        legend_label=[k.replace("_", " ") for k in used],
    )
    plot.add_tools(HoverTool(tooltips=[("", "@stage: $name @$name{0,0.[00]} MiB")]))
    _legend(plot)
    return plot


def communication(found: Sequence[Communication]) -> Any:
    """Seconds of collectives by stage, axes and kind."""
    ranked = sorted(found, key=lambda each: -each.seconds)[:30]
    names = [f"{each.stage}: {each.kind} over {'*'.join(each.axes)}" for each in ranked]
    names = list(
        dict.fromkeys(f"{n} #{i}" if names.index(n) != i else n for i, n in enumerate(names))
    )
    plot = _figure(
        "Sent inside stages (ms per step)", _bars(len(ranked)), y_range=FactorRange(*names[::-1])
    )
    source = ColumnDataSource(
        {
            "name": names,
            "ms": [MS * each.seconds for each in ranked],
            "size": [size(each.num_bytes) for each in ranked],
            "count": [each.count for each in ranked],
        }
    )
    plot.hbar(y="name", right="ms", height=0.7, color=COLORS["F"], source=source)
    plot.add_tools(HoverTool(tooltips=[("", "@count times, results of @size")]))
    return plot


def ranked(judged: Sequence[Alternative]) -> Any:
    """Breakdown of the step time of each pipeline considered."""
    own = [each for each in judged if not each.missing_bytes][:MOST_RANKED]
    names = [
        f"{n + 1}. {each.name}: {mesh_words(each.meshes)}, {each.num_microbatches} mb"
        for n, each in enumerate(own)
    ]
    parts = ("compute", "communication", "waiting", "estimated only")
    rows = [
        (e.exact.compute_s, e.exact.communication_s, e.exact.waiting_s, 0.0)
        if e.exact is not None
        else (0.0, 0.0, 0.0, e.step_time_s)
        for e in own
    ]
    data: dict[str, Any] = {p: [MS * row[n] for row in rows] for n, p in enumerate(parts)}
    plot = _figure("Ranked (ms per step)", _bars(len(own)), y_range=FactorRange(*names[::-1]))
    plot.hbar_stack(
        parts,
        y="name",
        height=0.7,
        color=("#4c78a8", "#f58518", "#8c8c8c", "#bab0ac"),
        source=ColumnDataSource({"name": names, **data}),
        legend_label=list(parts),
    )
    _legend(plot)
    return plot


def mesh(plan: Plan) -> Any:
    """All devices: one row per outer position of a stage's mesh, one column per inner position."""
    xs, ys, colors, words = [], [], [], []
    row = 0
    seen: set[tuple[int, ...]] = set()
    for number, stage in enumerate(plan.stages):
        if stage.mesh.device_ids in seen:
            continue
        seen.add(stage.mesh.device_ids)
        inner = stage.mesh.shape[-1] if stage.mesh.shape else 1
        for place, device in enumerate(stage.mesh.device_ids):
            xs.append(place % inner)
            ys.append(-(row + place // inner))
            colors.append(Category20[20][number % 20])
            at, rest = [], place
            for name, count in reversed(stage.mesh.axes):
                at.append(f"{name} {rest % count}")
                rest //= count
            words.append(f"device {device}, stage {number}: {', '.join(reversed(at))}")
        row += -(-len(stage.mesh.device_ids) // inner) + 1
    plot = _figure("Devices: rows and columns of each stage's mesh", min(120 + 14 * row, 900))
    source = ColumnDataSource({"x": xs, "y": ys, "color": colors, "words": words})
    plot.rect("x", "y", 0.9, 0.9, color="color", source=source)
    plot.add_tools(HoverTool(tooltips=[("", "@words")]))
    plot.axis.visible = False
    plot.grid.visible = False
    return plot

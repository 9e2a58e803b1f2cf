"""The chart of the devices: the mesh of each stage, position by position."""

from bokeh.models import ColumnDataSource, HoverTool, Range1d
from bokeh.palettes import Category20

from shardc.plan.decisions import Plan
from shardc.plan.layout import ranges, stage_names
from shardc.report.page.figures import INK, ON_BARS, Chart, empty_figure
from shardc.report.summary import mesh_text

CELL = 22  # pixels of a device with its number
SMALL_CELL = 8
MOST_CELLS = 24  # devices with numbers in a row
MOST_ROWS = 40  # of devices with numbers


def mesh(plan: Plan) -> Chart:
    """All devices: one row per outer position of a stage's mesh, one column per inner position."""
    stages = {group.device_ids: group.stages for group in plan.groups}
    widest = max(_inner(plan, own[0]) for own in stages.values())
    num_rows = sum(-(-len(ids) // _inner(plan, own[0])) for ids, own in stages.items())
    numbered = widest <= MOST_CELLS and num_rows <= MOST_ROWS
    cell = CELL if numbered else SMALL_CELL
    head = 20 / cell  # height of a stage's heading, in cells
    columns: dict[str, list[object]] = {key: [] for key in ("x", "y", "color", "words", "id")}
    heads: dict[str, list[object]] = {"y": [], "words": []}
    y = 0.0
    for ids, own in stages.items():
        its = plan.stages[own[0]].mesh
        inner = _inner(plan, own[0])
        heads["y"].append(y - head / 2)
        heads["words"].append(
            f"{stage_names(own, len(plan.own_stages))}: {mesh_text(its)}, devices {ranges(ids)}"
        )
        y -= head
        for place, device in enumerate(ids):
            at, rest = [], place
            for name, count in reversed(its.axes):
                at.append(f"{name} {rest % count}")
                rest //= count
            columns["x"].append(place % inner)
            columns["y"].append(y - place // inner - 0.5)
            columns["color"].append(Category20[20][own[0] % 20])
            columns["words"].append(f"device {device}: {', '.join(reversed(at))}")
            columns["id"].append(str(device))
        y -= -(-len(ids) // inner)
    plot = empty_figure(
        round(-y * cell), x_range=Range1d(-0.5, widest - 0.5), y_range=Range1d(y, 0)
    )
    source = ColumnDataSource(columns)
    cells = plot.rect("x", "y", 0.94, 0.9, color="color", source=source)
    if numbered:
        plot.text(
            x="x", y="y", text="id", source=source, text_color=ON_BARS, text_font_size="10px",
            text_align="center", text_baseline="middle",
        )  # fmt: skip
    plot.text(
        x=-0.47, y="y", text="words", source=ColumnDataSource(heads), text_color=INK,
        text_font_size="12px", text_baseline="middle",
    )  # fmt: skip
    plot.add_tools(HoverTool(tooltips=[("", "@words")], renderers=[cells]))
    plot.axis.visible = False
    plot.grid.visible = False
    return Chart(
        "Devices", plot, (), "Columns are positions along the last axis, rows along the others."
    )


def _inner(plan: Plan, stage: int) -> int:
    shape = plan.stages[stage].mesh.shape
    return shape[-1] if shape else 1

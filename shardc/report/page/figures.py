"""What the charts of a report share: figures whose plots are sized by their content.

Titles, legends and captions are HTML around the figure, so that they never take room from the plot.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bokeh.models import ColumnDataSource, HoverTool, NumeralTickFormatter, Range1d
from bokeh.plotting import figure

INK = "#7f868f"  # readable on light and dark backgrounds
ON_BARS = "#111111"  # on every color of a bar
ROW = 26  # height of a bar with its name beside it
LABELLED_ROW = 40  # height of a bar with its label above it
TIMES = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))
SIZES = (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("bytes", 1.0))


@dataclass(frozen=True)
class Chart:
    """A figure, and the HTML around it.

    Attributes:
        legend: (color, words) of each series.
        caption: below the figure.
    """

    title: str
    plot: Any
    legend: tuple[tuple[str, str], ...] = ()
    caption: str = ""


@dataclass(frozen=True)
class Bar:
    """A labelled bar of one or more parts."""

    label: str
    parts: tuple[float, ...]
    hover: str = ""


def unit(most: float, units: Sequence[tuple[str, float]]) -> tuple[str, float]:
    """The largest unit in which `most` is at least 1, and its size."""
    return next((each for each in units if most >= each[1]), units[-1])


def empty_figure(inner_height: int, **options: Any) -> Any:
    """A figure as wide as the page whose plot is `inner_height` pixels high; axes and tools are
    outside of it."""
    plot = figure(
        frame_height=inner_height,
        sizing_mode="stretch_width",
        background_fill_alpha=0,
        border_fill_alpha=0,
        toolbar_location="above",
        tools="pan,xwheel_zoom,box_zoom,reset",
        output_backend="canvas",
        **options,
    )
    plot.outline_line_color = None
    plot.toolbar.logo = None
    for axis in plot.axis:
        axis.axis_label_text_color = axis.major_label_text_color = INK
        axis.axis_line_color = axis.major_tick_line_color = axis.minor_tick_line_color = INK
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0.[000]")
    plot.grid.grid_line_alpha = 0.2
    return plot


def bars(rows: Sequence[Bar], colors: Sequence[str], scale: float, words: str) -> Any:
    """Stacked horizontal bars, each below its label.

    Args:
        colors: of the parts.
        scale: the unit of the axis; parts are divided by it.
        words: label of the axis.
    """
    most = max((sum(row.parts) for row in rows), default=0.0) / scale or 1.0
    plot = empty_figure(
        LABELLED_ROW * len(rows),
        x_range=Range1d(0, 1.02 * most),
        y_range=Range1d(0.5 - len(rows), 0.5),
        x_axis_label=words,
    )
    plot.yaxis.visible = False
    plot.ygrid.visible = False
    left = [0.0] * len(rows)
    for part, color in enumerate(colors):
        right = [at + row.parts[part] / scale for at, row in zip(left, rows, strict=True)]
        source = ColumnDataSource(
            {
                "y": [-n - 0.22 for n in range(len(rows))],
                "left": left,
                "right": right,
                "words": [row.hover or row.label for row in rows],
            }
        )
        plot.hbar(
            y="y", left="left", right="right", height=0.44, source=source, color=color,
            line_color=None,
        )  # fmt: skip
        left = right
    labels = ColumnDataSource(
        {"y": [-n + 0.24 for n in range(len(rows))], "label": [row.label for row in rows]}
    )
    plot.text(
        x=0, y="y", text="label", source=labels, x_offset=2, text_color=INK,
        text_font_size="12px", text_baseline="middle",
    )  # fmt: skip
    plot.add_tools(HoverTool(tooltips=[("", "@words")]))
    return plot

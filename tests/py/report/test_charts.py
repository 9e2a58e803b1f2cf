"""The charts of a report as data: what each shows without a pointer, and what its axes hold."""

import msgspec
from bokeh.models import Span

from shardc.plan.alternatives import Alternative
from shardc.report.model import Communication
from shardc.report.page import charts
from shardc.report.page.device_chart import mesh
from shardc.report.page.figures import LABELLED_ROW, ROW, Chart
from shardc.report.reading import read_plan
from shardc.schedule.tasks import KINDS
from tests.py.report.test_page import of_many_layers
from tests.py.report.test_reading import planned


def labels(chart: Chart) -> list[str]:
    """All text drawn in a plot."""
    found: list[str] = []
    for renderer in chart.plot.renderers:
        text = getattr(renderer.glyph, "text", None)
        if text is not None:
            field = text if isinstance(text, str) else getattr(text, "field", "text")
            found += map(str, renderer.data_source.data[field])
    return found


def test_the_limit_is_inside_the_range_or_named() -> None:
    plan = planned("", 2, 4)
    assert plan.account is not None
    peak = plan.predicted.peak_bytes_per_device
    near = msgspec.structs.replace(plan.account, limit_bytes=3 * peak)
    drawn = charts.memory(plan, near)
    (limit,) = (each for each in drawn.plot.center if isinstance(each, Span))
    assert 0 < limit.location < drawn.plot.y_range.end
    assert any(words.startswith("limit of a device") for _, words in drawn.legend)
    far = msgspec.structs.replace(plan.account, limit_bytes=100 * peak)
    drawn = charts.memory(plan, far)
    assert not [each for each in drawn.plot.center if isinstance(each, Span)]
    assert "is far above this chart" in drawn.caption


def test_legends_and_titles_are_outside_the_figures() -> None:
    plan = planned("", 2, 4)
    reading = read_plan(plan)
    assert plan.account is not None
    drawn = [
        charts.timeline(plan.account),
        charts.memory(plan, plan.account),
        charts.at_peak(reading.stages, reading.num_own_stages),
        charts.communication(reading.communication, len(reading.stages), reading.num_own_stages),
        mesh(plan),
    ]
    assert [each for each in drawn if each.plot.title.text or each.plot.legend] == []
    assert drawn[0].plot.frame_height == ROW * 2
    assert drawn[2].plot.frame_height == LABELLED_ROW * 2


def test_every_kind_of_action_has_a_color() -> None:
    assert set(charts.SERIES) == set(KINDS)
    colors = [color for color, _ in charts.SERIES.values()]
    assert len(set(colors)) == len(colors)


def test_devices_have_numbers_and_stages_have_names() -> None:
    named = labels(mesh(planned("", 2, 4)))
    assert {"0", "1", "2", "3"} < set(named)
    assert "stage 1: 2 (d), devices 2-3" in named
    many = labels(mesh(of_many_layers()))
    assert many == [f"stage {n}: 16x8 (x, y), devices {128 * n}-{128 * n + 127}" for n in range(8)]


def test_equal_stages_share_a_bar_and_the_rest_is_counted() -> None:
    def sent(stage: int, axis: str, took_s: float) -> Communication:
        return Communication(stage, (axis,), "all_gather", 2, 1024, took_s)

    drawn = charts.communication([sent(n, "x", 3.0) for n in range(4)] + [sent(2, "y", 1.0)], 4, 4)
    assert labels(drawn) == [
        "stages 0-3: all_gather over x, 2 times: 3 s",
        "stage 2: all_gather over y, 2 times: 1 s",
    ]
    assert not drawn.caption
    drawn = charts.communication([sent(0, "x", 40.0 - n) for n in range(40)], 1, 1)
    assert len(labels(drawn)) == charts.MOST_BARS
    assert drawn.caption == "10 more take at most 10 s each."


def test_pipelines_that_do_not_fit_are_ranked() -> None:
    own = planned("megatron").judged("this plan")
    large = Alternative("by hand", 2, "gpipe", ((4,),), missing_bytes=1 << 30)
    first, second = labels(charts.ranked([own, large]))
    assert first.startswith("1. this plan: 1 x (4), 1 mb, ")
    assert second == "2. by hand: 1 x (4), 2 mb, gpipe, does not fit"
    many = charts.ranked([own] * 20)
    assert len(labels(many)) == charts.MOST_RANKED
    assert "8 more" in many.caption

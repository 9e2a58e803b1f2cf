"""The report in a real browser: its charts are as high as their content, nothing fails, and the
tree is searched."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardc.report.page.page import Report
from tests.py.report import browser
from tests.py.report.test_page import MOST_BYTES, of_many_layers
from tests.py.report.test_reading import planned

PHONE, SIDEWAYS, DESK = (412, 915), (915, 412), (1280, 900)
GREETING = r"\[bokeh [\d.]+\] (setting log level|document idle)"
# Bokeh lays out a figure, even one of fixed size, while it is told the size of another element; the
# browser tells the rest in the next frame, and the heights of the plots are checked after it.
NEXT_FRAME = r"ResizeObserver loop completed with undelivered notifications\."
EXPECTED = re.compile(f"{GREETING}|{NEXT_FRAME}")

# Of each chart the inner height of its plot, and by how much it leaves its place in the page.
PLOTS = """
Bokeh.index.roots.filter((each) => each.frame).map((each) => {
  const place = each.el.getBoundingClientRect();
  const next = each.el.closest("div[data-root-id]").parentElement.nextElementSibling;
  const {top, left, width, height} = each.frame.bbox;
  return {
    title: each.model.name,
    height,
    width,
    leaves: Math.max(-top, -left, top + height - place.height, left + width - place.width),
    covers: next === null ? 0 : place.bottom - next.getBoundingClientRect().top,
  };
})
"""
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
SEARCHED = """
(() => {
  const input = document.querySelector("input[data-tree]");
  input.value = "WORD";
  input.dispatchEvent(new Event("input"));
  return [...document.querySelectorAll("details.node")]
    .filter((each) => !each.hidden).map((each) => each.firstChild.textContent);
})()
"""
OPENED = 'performance.getEntriesByType("navigation")[0].loadEventEnd'


@pytest.fixture
def page(tmp_path: Path) -> Iterator[browser.Page]:
    found = browser.find()
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(browser.BROWSERS)} (apt-get install chromium)")
    with browser.page(found, tmp_path) as opened:
        yield opened


def errors(page: browser.Page) -> list[str]:
    """What the page said, except what Bokeh always says."""
    return [line for line in page.said if not EXPECTED.match(line)]


def check_plots(page: browser.Page, report: Report) -> None:
    """Every chart is drawn at the inner height that its content has, and covers nothing."""
    heights = [chart.plot.frame_height for chart in report.charts]
    plots: list[dict[str, Any]] = page.evaluate(PLOTS)
    assert [each["height"] for each in plots] == heights
    assert min(heights) >= 40
    assert [each for each in plots if each["width"] < 200] == []
    assert [each for each in plots if each["leaves"] > 0 or each["covers"] > 0] == []
    assert page.evaluate(WIDER) <= 0


@pytest.mark.slow
@pytest.mark.parametrize("wish", [("megatron",), ("", 2, 4)])
def test_charts_are_as_high_as_their_content(page: browser.Page, wish: Any, tmp_path: Path) -> None:
    """Also with one row, and after the screen is turned."""
    report = Report((("mine", planned(*wish)),))
    report.save(tmp_path / "page.html")
    for size in (PHONE, SIDEWAYS, DESK):
        page.open(tmp_path / "page.html", *size, dark=size == DESK)
        check_plots(page, report)
    for width, height in (PHONE, DESK):  # the same page
        page.resize(width, height)
        check_plots(page, report)
    assert errors(page) == []


@pytest.mark.slow
def test_96_layers_on_1024_devices_are_drawn_and_searched(
    page: browser.Page, tmp_path: Path
) -> None:
    """Prints how long it takes to open; a test does not judge that."""
    report = Report((("large", of_many_layers()),))
    assert len(report.html) <= MOST_BYTES
    report.save(tmp_path / "page.html")
    page.open(tmp_path / "page.html", *PHONE)
    drawn_ms = page.evaluate("performance.now()")
    print(f"loaded after {page.evaluate(OPENED):.0f} ms, drawn after {drawn_ms:.0f} ms")
    check_plots(page, report)
    layers = {f"{12 * stage}-{12 * stage + 11}" for stage in range(8)}
    shown = {each.split()[0] for each in page.evaluate(SEARCHED.replace("WORD", "part0"))}
    assert shown == {"model", "stage", "h", "part0-11"} | layers
    assert errors(page) == []

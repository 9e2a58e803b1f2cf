"""The report: one file, no network, readable by a parser, and as large as it may be."""

from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from shardc.plan.account import Part, Timed
from shardc.plan.decisions import Plan
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import Mesh
from shardc.report.page.page import Report
from shardc.report.page.tree import tree_of
from tests.py.cli.programs import shardc
from tests.py.report.test_reading import planned

MOST_BYTES = 5_000_000


class Page(HTMLParser):
    """What is open at the end, what is loaded from elsewhere, and the text outside scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "input", "link", "br"):
            self.open.append(tag)
        self.loads += [v or "" for k, v in attrs if k in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if "script" not in self.open and "style" not in self.open:
            self.text += data


@pytest.mark.slow
def test_the_page_is_whole_and_loads_nothing() -> None:
    page = Page(Report((("mine", planned("", 2, 4)),)).html)
    assert page.open == []
    assert page.loads == []
    for words in ("pipeline over 2 device groups", "at the peak", "crosses from"):
        assert words in page.text
    assert len(Report((("mine", planned("megatron")),)).html) < MOST_BYTES


@pytest.mark.slow
def test_two_plans_are_compared(tmp_path: Path) -> None:
    for wish in ("fsdp", "zero1"):
        planned(wish).save(tmp_path / f"{wish}.json")
    found = shardc(
        "report", tmp_path / "fsdp.json", tmp_path / "zero1.json", "-o", tmp_path / "r.html"
    )
    assert found.exit_code == 0, found.output
    text = Page((tmp_path / "r.html").read_text()).text
    assert "What differs" in text
    assert "is faster: " in text
    assert "state['params']['layers'][0-2]['up']" in text


@pytest.mark.slow
def test_a_notebook_shows_the_page_in_a_frame() -> None:
    shown = Page(Report((("mine", planned("megatron")),))._repr_html_())
    assert shown.open == []


def of_many_layers() -> Plan:
    """A plan of 96 layers of 12 parts on 1,024 devices, in 64 microbatches on 8 stages."""
    plan = planned("megatron")
    assert plan.account is not None
    parts = tuple(
        Part(layer // 12, kind, ("h", str(layer), f"part{n}"), 10, 1000, 1e-3, "[x]", "m.py:1")
        for kind in (FunctionKind.FORWARD, FunctionKind.BACKWARD)
        for layer in range(96)
        for n in range(12)
    )
    timeline = tuple(
        Timed(f"{stage}{kind}{number}", stage, number + stage, number + stage + 1.0)
        for stage in range(8)
        for kind in "FB"
        for number in range(64)
    )
    stages = tuple(
        msgspec.structs.replace(
            plan.stages[0], mesh=Mesh((("x", 16), ("y", 8)), tuple(range(n * 128, n * 128 + 128)))
        )
        for n in range(8)
    )
    account = msgspec.structs.replace(plan.account, parts=parts, timeline=timeline)
    account = msgspec.structs.replace(account, axes=())
    large = msgspec.structs.replace(plan, stages=stages, account=account, num_stages=8)
    cluster = None  # the collectives of this plan are not those of its meshes
    return msgspec.structs.replace(large, cluster=cluster)


@pytest.mark.slow
def test_many_layers_and_devices_stay_small() -> None:
    page = Report((("large", of_many_layers()),)).html
    assert len(page) < MOST_BYTES
    assert "0-11 (12 equal)" in page


def test_equal_layers_are_one_node_of_the_tree() -> None:
    def part(layer: int, flops: int) -> Part:
        return Part(0, FunctionKind.FORWARD, ("h", str(layer), "mlp"), 1, flops, 1.0, "[x]")

    root = tree_of([part(0, 5), part(1, 5), part(2, 7)])
    (stage,) = root.children
    (h,) = stage.children
    assert [node.name for node in h.children] == ["0-1 (2 equal)", "2"]
    assert [(node.num_flops, node.total_s) for node in h.children[0].children] == [(10, 2.0)]
    assert root.num_flops == 17
    assert h.total_s == 3.0

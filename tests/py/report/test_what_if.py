"""Many machines beside each other: what is cheapest, and the page."""

from shardc.report.page.cases import Case, cheapest
from shardc.report.page.what_if import WhatIf
from tests.py.report.test_charts import labels
from tests.py.report.test_page import Page


def case(device: str, devices: int, step_s: float | None, price: float | None = None) -> Case:
    return Case(
        cluster=f"{device}-{devices}",
        device=device,
        devices=devices,
        memory_bytes=1 << 30,
        batch=8,
        fits=step_s is not None,
        parallelism="data",
        step_s=step_s,
        peak_bytes=None if step_s is None else 1 << 20,
        device_s=None if step_s is None else step_s * devices,
        price=price,
    )


def test_device_seconds_compare_among_equal_devices_only() -> None:
    cases = [case("a", 8, 2.0), case("a", 4, 3.0), case("b", 8, 1.0), case("b", 2, None)]
    assert cheapest(cases) == (1, 2)
    assert cheapest([case("a", 8, None)]) == ()


def test_prices_compare_all_devices() -> None:
    cases = [case("a", 8, 2.0, 10.0), case("b", 8, 1.0, 12.0), case("b", 2, None)]
    assert cheapest(cases) == (0,)
    assert cheapest([*cases, case("c", 1, 9.0)]) == (0, 1, 3)


def test_the_page_shows_each_case() -> None:
    page = WhatIf("step.mlir", (case("a", 8, 2.0), case("b", 8, 1.0), case("b", 2, None)))
    assert labels(page.charts[0]) == [
        "a-8, 8 devices of 1 GiB, batch 8: 2 s",
        "b-8, 8 devices of 1 GiB, batch 8: 1 s",
        "b-2, 2 devices of 1 GiB, batch 8: does not fit",
    ]
    shown = Page(page.html)
    assert shown.open == [] and shown.loads == []
    assert shown.text.count("cheapest") == 2

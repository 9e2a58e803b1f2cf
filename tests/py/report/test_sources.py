"""Each number of a plan says where it comes from: its own terms, and the rates of the cluster."""

import re

import msgspec
import pytest

import shardc
from shardc.report.reading import read_plan
from tests.py.report.test_reading import planned

UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def amounts(words: str, units: dict[str, float]) -> list[float]:
    """The numbers with units in a text, in its order."""
    pattern = rf"(\d[\d.e-]*) ({'|'.join(units)})\b"
    return [float(number) * units[unit] for number, unit in re.findall(pattern, words)]


@pytest.mark.parametrize(("wish", "stages", "microbatches"), [("data", 1, 1), ("", 2, 4)])
def test_the_terms_of_a_sum_add_up(wish: str, stages: int, microbatches: int) -> None:
    plan = planned(wish, stages, microbatches)
    reading = read_plan(plan)
    step_s, *parts = amounts(reading.sources["step"], UNITS)
    assert step_s == pytest.approx(plan.predicted.step_time_s, rel=0.01)
    assert len(parts) == 3 and sum(parts) == pytest.approx(step_s, rel=0.01)
    compute_s, *kinds = amounts(reading.sources["compute"], UNITS)
    assert compute_s == pytest.approx(reading.terms.compute_s, rel=0.01)
    assert sum(kinds) == pytest.approx(compute_s, rel=0.02)
    words = reading.sources["fit"].replace("KiB", "KiB ").partition(": the")[0]
    peak, *categories = amounts(words, dict(SIZES))
    assert peak == pytest.approx(reading.fit.peak_bytes, rel=0.01)
    assert sum(categories) == pytest.approx(peak, rel=0.02)


def test_communication_is_split_by_axis_and_kind() -> None:
    words = read_plan(planned("data")).sources["communication"]
    assert re.search(r"all_reduce over d\b", words), words


def test_rates_come_with_the_sources_of_the_cluster() -> None:
    cluster = shardc.Cluster.load("a100-8")
    plan = msgspec.structs.replace(planned("data"), cluster=cluster.with_devices(4))
    sources = read_plan(plan).sources
    device = cluster.device
    rate = sources[f"rate of device {device.name}, memory_bandwidth_bytes_per_s"]
    assert rate == f"2.039e+12: {device.source['memory_bandwidth_bytes_per_s']}"
    level = cluster.levels[0]
    assert level.source["latency_s"] in sources[f"rate of level {level.name}, latency_s"]
    own = read_plan(planned("data")).sources["rate of device test, memory_bytes"]
    assert own.endswith("the cluster, which gives no source")


def test_fewer_devices_take_at_least_the_time_of_the_compute() -> None:
    plan = planned("data")
    assert plan.cluster is not None
    slow = msgspec.structs.replace(plan.cluster.levels[0], bandwidth_bytes_per_s=1e5)
    cluster = msgspec.structs.replace(plan.cluster, levels=(slow,))
    stage = msgspec.structs.replace(plan.stages[0], communication_s=0.9 * plan.stages[0].objective)
    plan = msgspec.structs.replace(plan, stages=(stage,), cluster=cluster)
    (warning,) = (each for each in read_plan(plan).warnings if each.kind == "communication")
    assert "on 1 it would take at least" in warning.words

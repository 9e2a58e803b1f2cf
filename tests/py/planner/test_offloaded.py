"""Stages that would offload activations: prices against a look at every way to run them."""

import itertools
import math

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardc.cluster import Cluster, Device, Level
from shardc.cost.submeshes import mesh_views
from shardc.plan.notes import NoteCode
from shardc.plan.stages_spec import Recompute
from shardc.planner.prices.offloaded import OffloadedPrices
from shardc.planner.prices.points import POINTS
from shardc.planner.promising import Promising
from shardc.planner.record.search_notes import WORTH, search_notes
from shardc.planner.shapes import ShapeSearch
from tests.py.planner.layer_tables import LIMIT, Tables, tables
from tests.py.planner.test_exhaustive import searched

RATES = 1.0, 1e4, 1e6, 1e30  # bytes per second


def joined_to_hosts(case: Tables, bytes_per_s: float) -> ShapeSearch:
    """A search on devices with such links to their hosts, which has looked at all shapes."""
    device = msgspec.structs.replace(case.machine.device, host_bandwidth_bytes_per_s=bytes_per_s)
    case.machine = msgspec.structs.replace(case.machine, device=device)
    return searched(case)


def offloading_s(case: Tables, first: int, last: int, size: int, count: int, held: int) -> float:
    """The fastest way to run a stage if all but two microbatches may wait on the host, without
    mixtures of two ways."""
    bytes_per_s, best_s = case.machine.device.host_bandwidth_bytes_per_s, math.inf
    for view in mesh_views(case.machine, 0, size):
        for point, (_, level) in enumerate(case.points):
            if level == "full" and not case.full_is_worth:
                continue
            seconds, peak = case._all_at(view, count, point, held, first, last)
            _, least = case._all_at(view, count, point, 2, first, last)
            if peak <= LIMIT:
                best_s = min(best_s, seconds)
            elif least <= LIMIT:
                each = (peak - LIMIT) / (held - 2)
                best_s = min(best_s, max(seconds, each / bytes_per_s))
    return best_s


def two_equal_layers() -> Tables:
    """Half of a stage of two layers fits at the fastest point, all of it at the next."""
    levels = Level("node", 2, 1e8, 0.0), Level("network", 1, 1e6, 0.0)
    machine = Cluster("test", Device("test", LIMIT, {"default": 1e12}, 1e12), levels)
    again: dict[Recompute, float] = {"none": 1.0, "selective": 0.7, "user": 0.4, "full": 0.1}
    sent = ((0, 0),)
    return Tables(
        machine, (2, 4), (0, 0), POINTS, again, False, (), sent, 0, 0.0, 0.1, 0.1, rows=96
    )


@settings(max_examples=40)
@given(tables(), st.sampled_from(RATES), st.sampled_from([1, 2, 3, 8]))
@example(two_equal_layers(), 1.0, 8)
def test_prices_are_those_of_the_fastest_way_that_fits(
    case: Tables, bytes_per_s: float, held: int
) -> None:
    search = joined_to_hosts(case, bytes_per_s)
    count, size = case.counts[0], case.machine.num_devices
    for view, point in itertools.product(
        mesh_views(case.machine, 0, size), range(len(case.points))
    ):
        if case.points[point].recompute != "full" or case.full_is_worth:
            search.prices.ask(view, count, point)
    plain_s = search.prices.stage_s(size, count, held)
    found_s = OffloadedPrices(search.prices).stage_s(size, count, held)
    assert (found_s <= plain_s).all()
    assert held > 2 or (found_s == plain_s).all()
    for first in range(len(case.kinds)):
        for last in range(first, len(case.kinds)):
            expected_s = offloading_s(case, first, last, size, count, held)
            expected_s = min(expected_s, float(plain_s[first, last]))
            assert math.isclose(found_s[first, last], expected_s, rel_tol=1e-9)


@pytest.mark.slow
@settings(max_examples=12)
@given(tables(), st.sampled_from(RATES))
def test_a_note_says_so_only_where_it_is_clearly_faster(case: Tables, bytes_per_s: float) -> None:
    search = joined_to_hosts(case, bytes_per_s)
    found = search.run()
    for note in search_notes(Promising(found, search)):
        if note.code is NoteCode.OFFLOADING:
            assert note.data["instead_s"] == found[0].pipeline.step_time_s
            assert float(note.data["step_s"]) * WORTH <= found[0].pipeline.step_time_s
            assert int(note.data["num_bytes"]) > 0


def test_nothing_is_said_without_a_fast_link_to_the_hosts() -> None:
    levels = Level("node", 2, 1e8, 0.0), Level("network", 2, 1e6, 0.0)
    machine = Cluster("test", Device("test", LIMIT, {"default": 1e12}, 1e12), levels)
    kinds, readers = (2, 2, 1, 2, 1), (0, 1, 2, 3, 4)
    sent = (47319, 51182), (75517, 95047), (3485, 14416)
    again: dict[Recompute, float] = {"none": 1.0, "selective": 0.7, "user": 0.4, "full": 0.3}
    held = again, False, readers, sent
    case = Tables(machine, (2, 4, 8, 16), kinds, POINTS, *held, 1, 0.1, 3.0, 0.5, 192, 0.1)

    def notes(bytes_per_s: float) -> set[NoteCode]:
        search = joined_to_hosts(case, bytes_per_s)
        return {note.code for note in search_notes(Promising(search.run(), search))}

    assert NoteCode.OFFLOADING in notes(1e30)
    assert NoteCode.OFFLOADING not in notes(0.0)
    assert NoteCode.OFFLOADING not in notes(1.0)

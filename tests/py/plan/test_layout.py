"""Device groups and placements: which stages share devices, and what these devices hold."""

from collections.abc import Sequence

import pytest

from shardc.cluster import Cluster, Device, Level
from shardc.cluster.islands import Bridge, Island
from shardc.plan.decisions import Plan, StagePlan
from shardc.plan.layout import DeviceGroup, Mesh, device_groups, placement, stage_names
from shardc.plan.predicted import Predicted

FIRST, SECOND = Mesh((("x", 2),), (0, 1)), Mesh((("x", 2),), (2, 3))
LINKS = (Level("link", 2, 1e9, 1e-6),)
ISLANDS = Cluster.of_islands(
    "two",
    [
        Island("large", Device("large", 1000, {"default": 1e9}, 1e9), LINKS),
        Island("small", Device("small", 100, {"default": 1e9}, 1e9), LINKS),
    ],
    [Bridge(("large", "small"), 1e8, 1e-5)],
)


def test_stages_share_a_group_if_they_share_devices_whatever_their_mesh() -> None:
    other_view = Mesh((("x", 1), ("y", 2)), (0, 1))
    groups = device_groups(enumerate([FIRST, SECOND, SECOND, other_view]))
    assert groups == (DeviceGroup((0, 1), (0, 3)), DeviceGroup((2, 3), (1, 2)))
    assert [group.total([1, 20, 300, 4000]) for group in groups] == [4001, 320]


def test_a_group_has_the_memory_of_its_island() -> None:
    groups = device_groups(enumerate([FIRST, SECOND]), ISLANDS)
    assert [group.memory_bytes for group in groups] == [1000, 100]
    (both,) = device_groups([(0, Mesh((("x", 4),), (0, 1, 2, 3)))], ISLANDS)
    assert both.memory_bytes == 100  # of the smaller ones


def test_second_copies_print_as_in_actions() -> None:
    placements = [placement(number, 2) for number in range(4)]
    assert [(each.stage, each.replica) for each in placements] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert list(map(str, placements)) == ["0", "1", "0'", "1'"]
    assert stage_names([0, 1, 3], 2) == "stages 0-1, 1'"


def plan(peaks: Sequence[int], cluster: Cluster | None) -> Plan:
    meshes = FIRST, SECOND, SECOND, FIRST
    stages = tuple(
        StagePlan(mesh, (n,), peak_bytes=peak)
        for n, (mesh, peak) in enumerate(zip(meshes, peaks, strict=True))
    )
    nothing = Predicted(0.0, 0, 0, 0.0, 0.0)
    return Plan(2, 4, "zb-v", stages, {}, nothing, 0.0, 0.0, 0.0, cluster=cluster, num_chunks=2)


@pytest.mark.parametrize(
    ("peaks", "cluster", "device_ids", "num_bytes"),
    [
        pytest.param((30, 20, 20, 30), None, (0, 1), 60, id="the stages of a group add up"),
        pytest.param((30, 20, 20, 30), ISLANDS, (2, 3), 40, id="by share of their memory"),
        pytest.param((10, 40, 10, 40), None, (2, 3), 50, id="ties go to the first largest stage"),
    ],
)
def test_the_fullest_group(
    peaks: Sequence[int], cluster: Cluster | None, device_ids: tuple[int, ...], num_bytes: int
) -> None:
    group, peak = plan(peaks, cluster).fullest()
    assert (group.device_ids, peak) == (device_ids, num_bytes)

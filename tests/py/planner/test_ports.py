"""Transfers that leave or reach a device group by the same level of links take turns."""

import itertools

import pytest

from shardc.cluster import Cluster
from shardc.cost.submeshes import mesh_of
from shardc.planner.prices.sends import takes_turns
from shardc.planner.schedules.ports import outermost, ports
from shardc.schedule.registry import schedule_named
from shardc.schedule.simulate import simulate
from shardc.schedule.tasks import Need, Schedule, Task, TaskGraph
from shardc.schedule.work import Work

TWO_NODES = Cluster.load("a100-16")
MESHES = {group: mesh_of((4,), range(4 * group, 4 * group + 4)) for group in range(4)}


def test_a_network_card_is_between_nodes_only() -> None:
    assert outermost(TWO_NODES, MESHES[0], MESHES[1]) == 0
    assert outermost(TWO_NODES, MESHES[1], MESHES[2]) == 1
    assert outermost(TWO_NODES, MESHES[0], MESHES[3]) == 1


def test_what_leaves_a_group_by_one_card_takes_turns() -> None:
    """Group 0 sends to both groups of the other node, and to its neighbour by another link."""
    taken = ports(TWO_NODES, MESHES)
    sender = Task(0, "F", 0)
    readers = [Task(stage, "F", 0) for stage in (1, 2, 3)]
    needs = {sender: (), **{r: (Need(sender, 1, 0, r.stage),) for r in readers}}
    graph = TaskGraph(needs, {(stage, 0): stage for stage in range(4)})
    schedule = Schedule(tuple((Task(stage, "F", 0),) for stage in range(4)))

    def starts(**options: object) -> list[object]:
        found = simulate(schedule, graph, lambda task: 1, 2, **options)  # type: ignore[arg-type]
        return [each.start_s for each in sorted(found.timeline, key=lambda each: each.action)]

    assert starts() == [0, 3, 3, 3]
    assert starts(link=taken) == [0, 3, 3, 5]


def test_opposite_ways_do_not_meet() -> None:
    taken = ports(TWO_NODES, MESHES)
    assert not set(taken(1, 2)) & set(taken(2, 1))
    assert set(taken(0, 2)) & set(taken(1, 2)) == {("into", 2, 1)}


@pytest.mark.parametrize("sizes", [(8, 8), (4, 4), (4, 4, 4, 4), (2,) * 8, (4, 2, 2, 8)])
def test_estimates_of_links_agree_with_the_simulation(sizes: tuple[int, ...]) -> None:
    """Where hardly anything but transfers takes time: two of a microbatch take turns, or none."""
    ends = list(itertools.accumulate(sizes, initial=0))
    meshes = {
        group: mesh_of((end - first,), range(first, end))
        for group, (first, end) in enumerate(itertools.pairwise(ends))
    }
    family, transfer_s = schedule_named("eager-1f1b"), 1

    def step_s(count: int) -> float:
        work = Work(len(sizes), count)
        schedule = family.generate(work)
        link, graph = ports(TWO_NODES, meshes), family.graph(work, schedule)
        return float(simulate(schedule, graph, lambda task: 1e-3, transfer_s, link=link).makespan_s)

    cuts = zip(sizes, sizes[1:], ends[1:], strict=False)
    some = any(takes_turns(size, after, end % 8 == 0, 8) for size, after, end in cuts)
    expected_s = 2 * transfer_s if some and len(sizes) > 2 else transfer_s
    assert (step_s(96) - step_s(32)) / 64 == pytest.approx(expected_s, rel=0.02)

"""A squeezed pattern is the pattern with fewer gaps: same needs, no more memory, nothing later."""

import pytest

from shardc.schedule.orders.squeeze import squeeze, with_weights
from shardc.schedule.placement import zigzag
from shardc.schedule.tasks import BACKWARD, FORWARD, WEIGHT, Task, TaskGraph
from shardc.schedule.work import Work

ONE = dict.fromkeys((FORWARD, BACKWARD, WEIGHT), 1)


def repeated(p: int, m: int) -> tuple[dict[Task, int], TaskGraph]:
    """F and B of two chunks as a V, every six slots, and each W in the first gap behind its B."""
    work = Work(p, m, chunks=2, split_backward=True, prologue=False, update_rounds=0)
    delay = 2 if p % 3 == 0 else 0
    slots: dict[Task, int] = {}
    for i in range(p):
        last = 2 * p - 1 - i
        offsets = {
            (i, FORWARD): i,
            (last, FORWARD): last,
            (last, BACKWARD): 2 * p + delay + i,
            (i, BACKWARD): 4 * p + delay - 1 - i,
        }
        lane = [
            (offset + 6 * k, Task(stage, kind, k))
            for (stage, kind), offset in offsets.items()
            for k in range(m)
        ]
        slots |= {task: slot for slot, task in with_weights(lane)}
    return slots, work.graph(zigzag(work))


def most_held(slots: dict[Task, int], graph: TaskGraph, group: int) -> int:
    """Forwards whose W has not run yet, at most."""
    own = sorted(
        (slot, task.kind)
        for task, slot in slots.items()
        if graph.group(task) == group and task.kind != BACKWARD
    )
    held = most = 0
    for _, kind in own:
        held += 1 if kind == FORWARD else -1
        most = max(most, held)
    return most


@pytest.mark.parametrize("p", [1, 2, 3, 4, 6, 7])
def test_nothing_is_later_early_or_twice_in_a_slot(p: int) -> None:
    slots, graph = repeated(p, 9)
    room = max(most_held(slots, graph, group) for group in range(p))
    found = squeeze(slots, graph, ONE, room=room)
    assert found.keys() == slots.keys()
    assert all(found[task] <= slot for task, slot in slots.items())
    assert len({(graph.group(task), slot) for task, slot in found.items()}) == len(found)
    for task, needs in graph.needs.items():
        assert all(found[need.task] < found[task] for need in needs)
    assert all(most_held(found, graph, group) <= room for group in range(p))


def test_gaps_of_the_first_microbatches_are_used() -> None:
    slots, graph = repeated(4, 8)
    found = squeeze(slots, graph, ONE, room=4)
    assert sum(found.values()) < sum(slots.values())


def test_what_comes_before_the_start_stays() -> None:
    work = Work(1, 2, prologue=False, update_rounds=0)
    graph = work.graph(zigzag(work))
    f, b, g, c = (Task(0, kind, k) for k in (0, 1) for kind in (FORWARD, BACKWARD))
    slots = {f: 1, b: 4, g: 7, c: 9}
    assert squeeze(slots, graph, ONE) == {f: 0, b: 1, g: 2, c: 3}
    assert squeeze(slots, graph, ONE, start=4) == {f: 1, b: 4, g: 5, c: 6}
    assert squeeze(slots, graph, ONE, start=6) == {f: 1, b: 4, g: 6, c: 7}


def test_a_forward_waits_for_room() -> None:
    work = Work(1, 2, prologue=False, update_rounds=0)
    graph = work.graph(zigzag(work))
    f, b, g, c = (Task(0, kind, k) for k in (0, 1) for kind in (FORWARD, BACKWARD))
    slots = {f: 0, g: 3, b: 5, c: 6}
    assert squeeze(slots, graph, ONE) == {f: 0, g: 1, b: 2, c: 3}
    # One at a time is less than the pattern holds: its second forward is not given more.
    assert squeeze(slots, graph, ONE, room=1) == {f: 0, g: 3, b: 1, c: 4}


def test_weights_take_the_free_slots_behind_their_backwards() -> None:
    f, b, w = (Task(0, kind) for kind in (FORWARD, BACKWARD, WEIGHT))
    g, c, v = (task._replace(microbatch=1) for task in (f, b, w))
    lane = [(0, f), (1, b), (2, g), (3, c)]
    assert with_weights(lane) == [*lane, (4, w), (5, v)]
    assert with_weights([(0, f), (1, b), (3, g), (4, c)])[2] == (2, w)

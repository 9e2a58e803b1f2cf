"""What one more step adds: devices that end early begin it, unless an update waits for all."""

import dataclasses
from fractions import Fraction

import pytest

from shardc.schedule.family import Costs
from shardc.schedule.next_step import next_step_s, wait_for_all
from shardc.schedule.registry import plan_schedule
from shardc.schedule.simulate import ends, simulate
from shardc.schedule.tasks import UPDATE, Need, Schedule, Task, TaskGraph
from shardc.schedule.times import Times, durations
from shardc.schedule.work import Work

TIMES = Times(forward_s=1, backward_s=1, weight_s=1, update_s=Fraction(1, 2))


def made(name: str, p: int, m: int, rounds: int = 1):
    """The planned step, the time of its tasks, and its simulation."""
    planned = plan_schedule(name, Work(p, m, update_rounds=rounds), Costs(times=TIMES), None, None)
    seconds = durations(planned.work, TIMES)
    return planned, seconds, simulate(planned.schedule, planned.graph, seconds)


def added(name: str, p: int, m: int, rounds: int = 1):
    planned, seconds, result = made(name, p, m, rounds)
    return next_step_s(planned.schedule, planned.graph, seconds), result.makespan_s


@pytest.mark.parametrize(("p", "m"), [(4, 8), (8, 16)])
def test_a_schedule_without_bubble_adds_its_work_and_nothing_else(p: int, m: int) -> None:
    busy = 3 * m + TIMES.update_s
    assert added("zb-h2", p, m) == (busy, busy + p - 1)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved-1f1b", "breadth-first"])
def test_where_the_first_device_ends_last_one_more_step_adds_all_of_it(name: str) -> None:
    one_more_s, makespan_s = added(name, 4, 8)
    assert one_more_s == makespan_s


@pytest.mark.parametrize("name", ["zb-h1", "zb-h2", "2bp-hanayo", "chimera", "dualpipe"])
def test_it_is_between_the_work_of_a_device_and_the_makespan_and_stays_so(name: str) -> None:
    planned, seconds, result = made(name, 4, 8)
    busy = max(sum(map(seconds, lane)) for lane in planned.schedule.lanes)
    found = next_step_s(planned.schedule, planned.graph, seconds)
    assert busy <= found <= result.makespan_s
    # Two steps taken for one: the second pair adds at most what one step adds, twice.
    assert next_step_s(*twice(planned.schedule, planned.graph), doubled(seconds)) <= 2 * found


def again(task: Task) -> Task:
    return task._replace(microbatch=task.microbatch + 100)


def twice(schedule: Schedule, graph: TaskGraph) -> tuple[Schedule, TaskGraph]:
    lanes = tuple((*lane, *map(again, lane)) for lane in schedule.lanes)
    needs = dict(graph.needs) | {
        again(task): tuple(need._replace(task=again(need.task)) for need in own)
        for task, own in graph.needs.items()
    }
    return Schedule(lanes), TaskGraph(needs, graph.groups)


def doubled(seconds):
    return lambda task: seconds(task._replace(microbatch=task.microbatch % 100))


def test_a_global_norm_leaves_nothing_to_fill() -> None:
    planned, _, _ = made("zb-h2", 4, 8, rounds=2)
    last = [lane[-1] for lane in planned.schedule.lanes]
    assert wait_for_all(planned.graph, last)
    assert not wait_for_all(planned.graph, [task._replace(microbatch=0) for task in last])
    one_more_s, makespan_s = added("zb-h2", 4, 8, rounds=2)
    assert one_more_s == makespan_s


def test_a_value_that_a_later_group_updates_holds_the_next_step_back() -> None:
    """Such as a parameter of the last stage that the first one reads, too."""
    planned, seconds, result = made("zb-h2", 4, 8)
    first, last = Task(0, "F", 0), Task(3, UPDATE)
    group = planned.graph.group
    between = {first: (Need(last, 0, group(last), group(first)),)}
    found = next_step_s(planned.schedule, planned.graph, seconds, between=between)
    assert found == result.makespan_s


def test_unequal_stages_and_transfers_are_counted() -> None:
    planned, _, _ = made("zb-h2", 4, 8)
    slow = dataclasses.replace(TIMES, forward_s=2)
    seconds = durations(planned.work, (TIMES, slow, TIMES, TIMES))
    found = next_step_s(planned.schedule, planned.graph, seconds, Fraction(1, 4))
    result = simulate(planned.schedule, planned.graph, seconds, Fraction(1, 4))
    assert 8 * 4 + TIMES.update_s <= found < result.makespan_s


@pytest.mark.parametrize(("rounds", "begins_early"), [(1, True), (2, False)])
def test_a_step_begins_before_other_groups_have_updated_for_the_last_one(
    rounds: int, begins_early: bool
) -> None:
    """Unless they share a norm."""
    planned, seconds, _ = made("zb-h2", 4, 8, rounds)
    found = ends(*twice(planned.schedule, planned.graph), doubled(seconds))
    begins_s = found[again(Task(0, "F", 0))] - seconds(Task(0, "F", 0))
    assert (begins_s < found[Task(3, UPDATE)] - seconds(Task(3, UPDATE))) is begins_early

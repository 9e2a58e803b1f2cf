"""Generated schedules are safe; broken ones are refused with the code and the cell."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.errors import ScheduleError
from shardc.schedule.check import check, run_order
from shardc.schedule.families import built_in
from shardc.schedule.family import Costs, Planned
from shardc.schedule.group_instructions import (
    Free,
    Instruction,
    Receive,
    Run,
    Send,
    check_instructions,
    instructions_of,
)
from shardc.schedule.registry import plan_schedule
from shardc.schedule.simulate import simulate
from shardc.schedule.tasks import Schedule, Task, TaskGraph, parse_lanes, print_lanes
from shardc.schedule.times import Times, durations
from shardc.schedule.work import Work

names = st.sampled_from(sorted(set(built_in()) - {"optimal"}))
bases = st.builds(
    Work,
    st.sampled_from([1, 2, 4]),
    st.sampled_from([4, 8, 12]),
    backward=st.booleans(),
    prologue=st.booleans(),
    update_rounds=st.integers(0, 2),
)


def plan(name: str, base: Work) -> Planned:
    """The schedule; on one device, the families that need two directions get two."""
    if base.num_groups == 1 and built_in()[name].replicas == 2:
        base = replace(base, num_groups=2)
    return plan_schedule(
        name, replace(base, num_microbatches=max(base.num_microbatches, 8)), Costs()
    )


def by_hand(*rows: str, work: Work) -> tuple[Schedule, TaskGraph]:
    schedule = Schedule(parse_lanes(row.split() for row in rows))
    placement = [[stage % work.num_groups for stage in range(work.num_stages)]]
    return schedule, work.graph(placement)


def refused(schedule: Schedule, graph: TaskGraph) -> ScheduleError:
    with pytest.raises(ScheduleError) as caught:
        check(schedule, graph)
    assert caught.value.help
    return caught.value


@given(names, bases)
@settings(max_examples=60, deadline=None)
def test_generated_schedules_are_safe_and_survive_printing(name: str, base: Work) -> None:
    planned = plan(name, base)
    check(planned.schedule, planned.graph)
    assert parse_lanes(print_lanes(planned.schedule)) == planned.schedule.lanes
    assert Schedule.from_json(planned.schedule.to_json()) == planned.schedule


@given(names, bases)
@settings(max_examples=30, deadline=None)
def test_run_order_keeps_every_dependence(name: str, base: Work) -> None:
    planned = plan(name, base)
    done: set[Task] = set()
    order = run_order(planned.schedule, planned.graph)
    for task in order:
        assert all(need.task in done for need in planned.graph.needs[task])
        done.add(task)
    for lane in planned.schedule.lanes:
        own = set(lane)
        assert tuple(task for task in order if task in own) == lane


@given(names, bases, st.floats(0, 3), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_no_simulated_action_starts_before_what_it_needs(
    name: str, base: Work, transfer_s: float, chance: random.Random
) -> None:
    planned = plan(name, base)
    work = planned.work
    places = range(work.num_stages * work.replicas)
    times = [Times(*[chance.uniform(0, 3) for _ in range(5)]) for _ in places]
    result = simulate(planned.schedule, planned.graph, durations(work, times), transfer_s)
    timed = {entry.action: entry for entry in result.timeline}
    for entry in result.timeline:
        for need in planned.graph.needs[entry.action]:
            late = transfer_s if need.source != need.target and need.num_bytes else 0
            assert timed[need.task].end_s + late <= entry.start_s
    assert -1e-9 <= result.bubble_ratio <= 1
    works = any(entry.end_s > entry.start_s for entry in result.timeline)
    assert result.bubble_ratio < 1 or not works, "only a step of transfers alone is idle throughout"


@given(names, bases, st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_a_dropped_or_doubled_action_is_refused(
    name: str, base: Work, chance: random.Random
) -> None:
    planned = plan(name, base)
    lanes = [list(lane) for lane in planned.schedule.lanes]
    lane = chance.choice(lanes)
    i = chance.randrange(len(lane))
    if chance.random() < 0.5:
        lane.insert(chance.randrange(len(lane) + 1), lane[i])
    else:
        del lane[i]
    error = refused(Schedule(tuple(map(tuple, lanes))), planned.graph)
    assert error.code == "SHARDC-243"
    assert "row" in str(error.where)


@given(names, bases, st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_a_backward_before_its_forward_is_refused(
    name: str, base: Work, chance: random.Random
) -> None:
    planned = plan(name, replace(base, backward=True))
    lanes = [list(lane) for lane in planned.schedule.lanes]
    lane = chance.choice(lanes)
    forward = chance.choice([task for task in lane if task.kind == "F"])
    backward = next(
        task
        for task in lane
        if task.kind in "BX" and task[:1] + task[2:] == forward[:1] + forward[2:]
    )
    f, b = lane.index(forward), lane.index(backward)
    lane[f], lane[b] = lane[b], lane[f]
    error = refused(Schedule(tuple(map(tuple, lanes))), planned.graph)
    assert error.code == "SHARDC-244"
    assert "column" in str(error.where)


@given(names, bases, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_lanes_shuffled_by_chance_are_safe_or_refused_as_waiting(
    name: str, base: Work, chance: random.Random
) -> None:
    """The checker and the simulator agree about what can finish."""
    planned = plan(name, base)
    lanes = [list(lane) for lane in planned.schedule.lanes]
    for _ in range(chance.randrange(1, 4)):
        lane = chance.choice(lanes)
        i, j = (chance.randrange(len(lane)) for _ in range(2))
        lane[i], lane[j] = lane[j], lane[i]
    schedule = Schedule(tuple(map(tuple, lanes)))
    outcomes = set()
    for attempt in (
        lambda: check(schedule, planned.graph),
        lambda: simulate(schedule, planned.graph, durations(planned.work, Times())),
    ):
        try:
            attempt()
            outcomes.add("safe")
        except ScheduleError as error:
            outcomes.add(error.code)
    assert outcomes in ({"safe"}, {"SHARDC-244"})


def lowered() -> tuple[dict[int, list[Instruction]], TaskGraph]:
    work = Work(2, 2, split_backward=True, prologue=False, update_rounds=0)
    schedule, graph = by_hand("0F0 0F1 0B0 0W0 0B1 0W1", "1F0 1B0 1F1 1B1 1W0 1W1", work=work)
    program = instructions_of(schedule, graph, run_order(schedule, graph))
    check_instructions(program, graph)
    return program, graph


def drop(kind: type, group: int) -> Callable[[dict[int, list[Instruction]]], None]:
    def mutate(program: dict[int, list[Instruction]]) -> None:
        program[group].remove(next(i for i in program[group] if isinstance(i, kind)))

    return mutate


def free_early(program: dict[int, list[Instruction]]) -> None:
    program[1].insert(
        1, program[1].pop(next(i for i, each in enumerate(program[1]) if isinstance(each, Free)))
    )


def free_twice(program: dict[int, list[Instruction]]) -> None:
    program[0].append(next(each for each in program[0] if isinstance(each, Free)))


def swap_sends(program: dict[int, list[Instruction]]) -> None:
    a, b = [i for i, each in enumerate(program[0]) if isinstance(each, Send)][:2]
    program[0][a], program[0][b] = program[0][b], program[0][a]


def run_twice(program: dict[int, list[Instruction]]) -> None:
    program[0].append(Run(Task(0, "F", 0)))


def run_elsewhere(program: dict[int, list[Instruction]]) -> None:
    program[1].remove(Run(Task(1, "B", 0)))
    program[0].append(Run(Task(1, "B", 0)))


@pytest.mark.parametrize(
    ("mutate", "code", "said"),
    [
        (drop(Receive, 1), "SHARDC-247", "is not on device 1 yet"),
        (drop(Send, 0), "SHARDC-247", "add the send"),
        (drop(Free, 0), "SHARDC-246", "is never freed"),
        (drop(Run, 1), "SHARDC-243", "device 1 does not run 1F0"),
        (free_early, "SHARDC-246", "is freed before"),
        (free_twice, "SHARDC-246", "is freed twice"),
        (swap_sends, "SHARDC-244", "does not hold|wait for each other"),
        (run_twice, "SHARDC-243", "device 0 runs twice: 0F0"),
        (run_elsewhere, "SHARDC-243", "device 0 must not run 1B0"),
    ],
)
def test_broken_instructions_are_refused(
    mutate: Callable[[dict[int, list[Instruction]]], None], code: str, said: str
) -> None:
    program, graph = lowered()
    mutate(program)
    with pytest.raises(ScheduleError, match=said) as caught:
        check_instructions(program, graph)
    assert caught.value.code == code
    assert caught.value.help


def test_two_groups_that_send_to_each_other_first_are_refused() -> None:
    work = Work(2, 2, prologue=False, update_rounds=0)
    schedule, graph = by_hand("0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1", work=work)
    program = instructions_of(schedule, graph, run_order(schedule, graph))
    # Device 1 sends the gradient of microbatch 0 before it takes the forward of microbatch 1, and
    # device 0 the other way round: with blocking sends both wait.
    program[1].remove(Receive(Task(0, "F", 1), 0))
    at = program[1].index(Send(Task(1, "B", 0), 0))
    program[1].insert(at + 1, Receive(Task(0, "F", 1), 0))
    program[0].remove(Receive(Task(1, "B", 0), 1))
    at = program[0].index(Send(Task(0, "F", 1), 1))
    program[0].insert(at + 1, Receive(Task(1, "B", 0), 1))
    with pytest.raises(ScheduleError, match="wait for each other") as caught:
        check_instructions(program, graph)
    assert caught.value.code == "SHARDC-244"


def test_two_stages_that_wait_for_each_other_are_named_with_their_cell() -> None:
    work = Work(2, 2, prologue=False, update_rounds=0)
    error = refused(*by_hand("0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1", work=work))
    assert "0B0 (device 0) for 1B0, 1F1 (device 1) for 0F1" in error.message
    assert error.where == "row 0, column 1 of the grid (0B0)"


def test_an_action_in_another_devices_row_is_refused() -> None:
    work = Work(2, 1, prologue=False, update_rounds=0)
    error = refused(*by_hand("0F0 1B0 0B0", "1F0", work=work))
    assert (error.code, error.where) == ("SHARDC-243", "row 0, column 1 of the grid (1B0)")


def test_gpipe_does_not_fit_where_1f1b_does() -> None:
    base, bound = Work(4, 8), [4, 3, 2, 1]
    one, all_first = (plan_schedule(name, base, Costs()) for name in ("1f1b", "gpipe"))
    check(one.schedule, one.graph, bound)
    with pytest.raises(ScheduleError, match="device 0 holds the activations of 8") as caught:
        check(all_first.schedule, all_first.graph, bound)
    assert caught.value.code == "SHARDC-245"
    assert caught.value.where == "row 0, column 5 of the grid (0F4)"


def test_chunks_of_one_device_share_its_memory() -> None:
    work = Work(1, 1, chunks=2, prologue=False, update_rounds=0)
    schedule, graph = by_hand("0F0 1F0 1B0 0B0", work=work)
    check(schedule, graph, [1])
    result = simulate(schedule, graph, durations(work, Times()), 100)
    assert (result.makespan_s, result.peak_activations) == (3, (1,))


def test_split_backward_holds_activations_until_the_weight_gradient() -> None:
    work = Work(1, 2, split_backward=True, prologue=False, update_rounds=0)
    for share, peak in ((1, 2), (0.25, 1.25)):
        schedule, graph = by_hand("0F0 0B0 0F1 0W0 0B1 0W1", work=replace(work, weight_share=share))
        check(schedule, graph)
        result = simulate(schedule, graph, durations(work, Times()))
        assert (result.makespan_s, result.peak_activations) == (6, (peak,))


@pytest.mark.parametrize("text", ["", "F0", "2Q0", "2F", "2F-1", "-1F0", "2f0", "2F0 ", "2F0''"])
def test_words_that_are_no_actions_are_refused(text: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        Task.parse(text)
    assert caught.value.code == "SHARDC-241"

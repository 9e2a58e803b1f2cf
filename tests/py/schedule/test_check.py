"""Generated schedules are safe; broken ones are refused with the code that says how."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.errors import ScheduleError
from shardc.schedule import gpipe, one_f_one_b
from shardc.schedule.action import Action, Schedule, parse_schedule, print_schedule
from shardc.schedule.check import check, run_order
from shardc.schedule.registry import SCHEDULES, generate, schedule_named
from shardc.schedule.simulate import Times, simulate
from shardc.schedule.work import Work

names = st.sampled_from(sorted(SCHEDULES))
works = st.builds(
    Work,
    st.integers(1, 6),
    st.integers(1, 8),
    backward=st.booleans(),
    prologue=st.booleans(),
    update_rounds=st.integers(0, 2),
)


def refused(schedule: Schedule, work: Work) -> str:
    with pytest.raises(ScheduleError) as caught:
        check(schedule, work)
    assert caught.value.help
    return caught.value.code


@given(names, works)
@settings(max_examples=60)
def test_generated_schedules_are_safe(name: str, work: Work) -> None:
    kind = schedule_named(name)
    bound = [kind.peak_activations(stage, work) for stage in range(work.num_stages)]
    check(generate(name, work), work, bound)


@given(names, works)
@settings(max_examples=60)
def test_printing_loses_nothing(name: str, work: Work) -> None:
    schedule = generate(name, work)
    assert parse_schedule(print_schedule(schedule)) == schedule


@given(names, works)
@settings(max_examples=60)
def test_run_order_keeps_every_dependence(name: str, work: Work) -> None:
    schedule = generate(name, work)
    done: set[Action] = set()
    order = run_order(schedule, work)
    for action in order:
        assert done.issuperset(work.dependences(action))
        done.add(action)
    for stage, actions in enumerate(schedule):
        assert tuple(action for action in order if action.stage == stage) == actions


@given(names, works, st.floats(0, 3), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_no_simulated_action_starts_before_what_it_needs(
    name: str, work: Work, transfer_s: float, chance: random.Random
) -> None:
    times = [Times(*[chance.uniform(0, 3) for _ in range(5)]) for _ in range(work.num_stages)]
    result = simulate(generate(name, work), work, times, transfer_s)
    timed = {entry.action: entry for entry in result.timeline}
    for entry in result.timeline:
        for needed in work.dependences(entry.action):
            crossing = timed[needed].device != entry.device
            assert timed[needed].end_s + transfer_s * crossing <= entry.start_s
    assert 0.0 <= result.bubble_ratio < 1.0


@given(names, works, st.randoms(use_true_random=False))
@settings(max_examples=80)
def test_a_dropped_or_doubled_action_is_refused(
    name: str, work: Work, chance: random.Random
) -> None:
    devices = [list(actions) for actions in generate(name, work)]
    device = chance.choice(devices)
    i = chance.randrange(len(device))
    if chance.random() < 0.5:
        device.insert(chance.randrange(len(device) + 1), device[i])
    else:
        del device[i]
    assert refused(tuple(map(tuple, devices)), work) == "SHARDC-243"


@given(names, works, st.randoms(use_true_random=False))
@settings(max_examples=80)
def test_a_backward_before_its_forward_is_refused(
    name: str, work: Work, chance: random.Random
) -> None:
    if not work.backward:
        return
    devices = [list(actions) for actions in generate(name, work)]
    stage = chance.randrange(work.num_stages)
    k = chance.randrange(work.num_microbatches)
    f = devices[stage].index(Action(stage, "F", k))
    b = devices[stage].index(Action(stage, "B", k))
    devices[stage][f], devices[stage][b] = devices[stage][b], devices[stage][f]
    assert refused(tuple(map(tuple, devices)), work) == "SHARDC-244"


def test_two_stages_that_wait_for_each_other_are_named() -> None:
    schedule = parse_schedule((("0F0", "0B0", "0F1", "0B1"), ("1F0", "1F1", "1B0", "1B1")))
    work = Work(2, 2, prologue=False, update_rounds=0)
    with pytest.raises(ScheduleError, match=r"0B0 \(device 0\) for 1B0.*1F1 \(device 1\) for 0F1"):
        check(schedule, work)


def test_gpipe_does_not_fit_where_1f1b_does() -> None:
    work, bound = Work(4, 8), [4, 3, 2, 1]
    check(one_f_one_b.generate(4, 8), work, bound)
    with pytest.raises(ScheduleError, match="device 0 holds the activations of 8") as caught:
        check(gpipe.generate(4, 8), work, bound)
    assert caught.value.code == "SHARDC-245"


def test_work_on_another_devices_stage_is_checked_by_dependence_only() -> None:
    # Two stages on one device: still complete, still in order; half a share each.
    schedule = parse_schedule((("0F0", "1F0", "1B0", "0B0"),))
    work = Work(2, 1, prologue=False, update_rounds=0)
    check(schedule, work, [1.0])
    assert simulate(schedule, work, transfer_s=100.0).makespan_s == 6.0


def test_split_backward_holds_activations_until_the_weight_gradient() -> None:
    schedule = parse_schedule((("0F0", "0B0", "0F1", "0W0", "0B1", "0W1"),))
    work = Work(1, 2, split_backward=True, prologue=False, update_rounds=0)
    check(schedule, work)
    result = simulate(schedule, work)
    assert (result.makespan_s, result.peak_activations) == (6.0, (2,))


def test_unknown_names_and_impossible_counts_are_refused() -> None:
    with pytest.raises(ScheduleError, match="no schedule 'zigzag'") as caught:
        schedule_named("zigzag")
    assert caught.value.code == "SHARDC-240"
    for counts in [(0, 1), (1, 0)]:
        with pytest.raises(ScheduleError) as caught:
            Work(*counts)
        assert caught.value.code == "SHARDC-242"


@pytest.mark.parametrize("text", ["", "F0", "2X0", "2F", "2F-1", "-1F0", "2f0", "2F0 "])
def test_words_that_are_no_actions_are_refused(text: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        Action.parse(text)
    assert caught.value.code == "SHARDC-241"

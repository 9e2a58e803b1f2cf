"""Updates in their place in the lanes: the order, what it may cost, and how far steps overlap."""

import dataclasses
import os
import signal
from collections.abc import Callable

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

from shardc.runtime.interpreter import Interpreter
from shardc.runtime.tape.order import dispatch_order
from tests.py.runtime.toy_step import toy_inputs, toy_numpy

LANES = (
    ("1F0", "1F1", "1B0", "1B1", "1U"),  # the first takes its turns first
    ("0F0", "0F1", "0B1", "0B0", "0U"),
)
EARLY = ["0F0", "1F0", "0F1", "1F1", "1B0", "1B1", "0B1", "1U", "0B0", "0U"]
LATE = ["0F0", "1F0", "0F1", "1F1", "1B0", "1B1", "0B1", "0B0", "1U", "0U"]
LAST_BACKWARD = 2  # of the calls of stage 0's


@pytest.fixture
def early(toy):
    """early(donate, **calls) -> (executable, programs) with `LANES` and early updates; `calls`
    wraps the call of each named program."""

    def make(*, donate: bool = True, **calls: Callable):
        executable, programs = toy("gpipe", donate=donate)
        given = msgspec.structs.replace(executable, actions=LANES, early_updates=True)
        return given, [
            dataclasses.replace(each, call=calls[each.program.name](each.call))
            if each.program.name in calls
            else each
            for each in programs
        ]

    return make


def at_call(number: int, act: Callable[[], None]):
    """Does `act` before call `number`, counted from 1."""

    def wrap(call):
        count = 0

        def acting(*args):
            nonlocal count
            count += 1
            if count == number:
                act()
            return call(*args)

        return acting

    return wrap


def fail() -> None:
    raise RuntimeError("out of memory")


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def placed(step: Interpreter):
    values = toy_inputs()
    return [
        jax.device_put(jnp.array(v), s) if i in (0, 1, 4) else v
        for i, (v, s) in enumerate(zip(values, step.argument_shardings, strict=True))
    ]


def same(results, wanted):
    for result, value in zip(results, wanted, strict=True):
        np.testing.assert_allclose(result, value, atol=1e-6)


def ran(step: Interpreter) -> list[str]:
    return [action for action, _ in step.last_trace]


def test_an_update_takes_its_turn_among_the_actions_of_other_stages(early):
    executable, programs = early()
    before, behind = dispatch_order(executable, programs)
    assert [entry.action for entry in before + behind] == EARLY
    assert [entry.action for entry in behind] == ["1U", "0B0", "0U"]  # from the first that consumes
    late = msgspec.structs.replace(executable, early_updates=False)
    before, behind = dispatch_order(late, programs)
    assert [entry.action for entry in before + behind] == LATE
    assert [entry.action for entry in behind] == ["1U", "0U"]


def test_numbers_and_order_over_three_steps(early):
    executable, programs = early()
    step = Interpreter(executable, programs)
    late = Interpreter(msgspec.structs.replace(executable, early_updates=False), programs)
    state, other = toy_inputs()[:2], toy_inputs()[:2]
    for _ in range(3):
        wanted = late([*other, *toy_inputs()[2:]])
        results = step([*state, *toy_inputs()[2:]])
        assert (ran(step), ran(late)) == (EARLY, LATE)
        for result, value in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(result, value)
        state, other = results[:2], wanted[:2]


def test_donated_state_is_updated_in_place(early):
    step = Interpreter(*early())
    state = step(toy_inputs())[:2]
    jax.block_until_ready(state)

    def pointers(arrays):
        return [[s.data.unsafe_buffer_pointer() for s in a.addressable_shards] for a in arrays]

    old = pointers(state)
    new = step([*state, *toy_inputs()[2:]])[:2]
    assert all(leaf.is_deleted() for leaf in state)
    assert pointers(new) == old


def test_a_failure_before_the_first_update_leaves_all_arguments(early):
    step = Interpreter(*early(stage0_backward=at_call(1, fail)))
    arguments = placed(step)
    with pytest.raises(RuntimeError, match="out of memory") as caught:
        step(arguments)
    assert not hasattr(caught.value, "__notes__")
    for argument, value in zip(arguments, toy_inputs(), strict=True):
        np.testing.assert_array_equal(argument, value)


def test_a_failure_behind_an_update_takes_the_state_of_that_stage_alone(early):
    step = Interpreter(*early(stage0_backward=at_call(LAST_BACKWARD, fail)))
    arguments = placed(step)
    with pytest.raises(RuntimeError, match="out of memory") as caught:
        step(arguments)
    assert ran(step)[-1] == "1U"
    assert [getattr(each, "is_deleted", bool)() for each in arguments] == [
        False,
        True,
        False,
        False,
        False,
    ]
    np.testing.assert_array_equal(arguments[0], toy_inputs()[0])
    assert caught.value.__notes__ == [
        "shardc: the updates had begun; donated arguments that are gone: w1"
    ]
    assert step.unreturned_results is None


def test_an_interrupt_before_the_first_update_leaves_all_arguments(early):
    step = Interpreter(*early(stage0_backward=at_call(1, interrupt)))
    arguments = placed(step)
    with pytest.raises(KeyboardInterrupt):
        step(arguments)
    for argument, value in zip(arguments, toy_inputs(), strict=True):
        np.testing.assert_array_equal(argument, value)
    assert step.unreturned_results is None


def test_an_interrupt_behind_an_update_waits_for_the_whole_step(early):
    step = Interpreter(*early(stage0_backward=at_call(LAST_BACKWARD, interrupt)))
    arguments = placed(step)
    with pytest.raises(KeyboardInterrupt):
        step(arguments)
    assert ran(step) == EARLY
    assert arguments[0].is_deleted() and arguments[1].is_deleted()
    same(step.unreturned_results, toy_numpy(*toy_inputs()))


def test_a_nan_behind_an_update_is_reported_once_the_step_is_complete(early):
    def spoiled(call):
        count = 0

        def spoil(*args):
            nonlocal count
            count += 1
            (total,) = call(*args)
            return [total * np.nan if count == LAST_BACKWARD else total]

        return spoil

    step = Interpreter(*early(stage0_backward=spoiled))
    arguments = placed(step)
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="action 0B0"):
        step(arguments)
    assert ran(step) == EARLY
    new_0, new_1, *others = step.unreturned_results
    assert np.isnan(new_0).all()
    same([new_1, *others], toy_numpy(*toy_inputs())[1:])


@pytest.mark.slow
def test_without_donation_no_update_begins_a_phase_of_its_own(early):
    executable, programs = early(donate=False, stage0_update=at_call(1, interrupt))
    assert dispatch_order(executable, programs)[1] == []
    step = Interpreter(executable, programs)
    arguments = placed(step)
    with pytest.raises(KeyboardInterrupt):
        step(arguments)
    for argument, value in zip(arguments, toy_inputs(), strict=True):
        np.testing.assert_array_equal(argument, value)

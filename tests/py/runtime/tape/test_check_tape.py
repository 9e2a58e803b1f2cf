"""Whatever breaks a tape is refused; forced through, the step ends with an error of its own."""

import dataclasses
import itertools

import msgspec
import pytest

from shardc.errors import ShardcError
from shardc.plan.program_graph import executable_graph
from shardc.runtime import interpreter
from shardc.runtime.interpreter import Interpreter
from shardc.runtime.tape.build import build_tape
from shardc.runtime.tape.check_tape import check_tape
from shardc.runtime.tape.instructions import Free, Receive, Run, Send
from shardc.schedule.check import check
from tests.py.runtime.toy_step import toy_inputs


def position(tape, wanted) -> int:
    return next(i for i, each in enumerate(tape.instructions) if wanted(each))


def action(name):
    return lambda each: isinstance(each, Run) and each.action == name


def without(wanted):
    def change(tape):
        found = list(tape.instructions)
        del found[position(tape, wanted)]
        return found

    return change


def swapped(one, other):
    def change(tape):
        found = list(tape.instructions)
        i, j = position(tape, action(one)), position(tape, action(other))
        found[i], found[j] = found[j], found[i]
        return found

    return change


def freed_at_once(tape):
    """A result of 0F0 that 0B0 reads is freed as soon as it is made."""
    made = tape.instructions[position(tape, action("0F0"))].results[0]
    last = position(tape, lambda each: isinstance(each, Free) and made in each.slots)
    found = list(tape.instructions)
    found[last] = Free(tuple(slot for slot in found[last].slots if slot != made))
    found.insert(position(tape, action("0F0")) + 1, Free((made,)))
    return found


def freed_twice(tape):
    found = list(tape.instructions)
    last = position(tape, lambda each: isinstance(each, Free))
    return [*found[: last + 1], *found[last:]]


BROKEN = {
    "a receive is missing": without(lambda each: isinstance(each, Receive)),
    "a send is missing": without(lambda each: isinstance(each, Send)),
    "two actions are swapped": swapped("1F0", "1B0"),
    "an update comes before a backward": swapped("0B1", "0U"),
    "a buffer is freed too early": freed_at_once,
}


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_a_broken_tape_is_refused(toy, schedule, how):
    executable, programs = toy(schedule)
    tape = build_tape(executable, programs)
    broken = dataclasses.replace(tape, instructions=BROKEN[how](tape))
    with pytest.raises(ShardcError) as caught:
        check_tape(broken, programs)
    assert caught.value.code == "SHARDC-266"


@pytest.mark.parametrize("how", BROKEN)
def test_forced_through_it_ends_with_an_error(toy, monkeypatch, how):
    executable, programs = toy("1f1b")
    tape = build_tape(executable, programs)
    broken = dataclasses.replace(tape, instructions=BROKEN[how](tape))
    monkeypatch.setattr(interpreter, "build_tape", lambda *given: broken)
    step = Interpreter(executable, programs)
    with pytest.raises(ShardcError) as caught:
        step(toy_inputs())
    assert caught.value.code == "SHARDC-266"


def test_what_is_freed_twice_or_never_is_refused(toy):
    executable, programs = toy()
    tape = build_tape(executable, programs)
    for change in (freed_twice, without(lambda each: isinstance(each, Free))):
        with pytest.raises(ShardcError, match="freed") as caught:
            check_tape(dataclasses.replace(tape, instructions=change(tape)), programs)
        assert caught.value.code == "SHARDC-266"


def refusal(run) -> str | None:
    try:
        run()
    except ShardcError as error:
        return error.code
    return None


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_swapped_actions_are_refused_or_run_in_the_order_given(toy, schedule):
    """Every two actions of a lane. What the runtime cannot run, the checker of schedules refuses
    too; what is left keeps every dependence."""
    executable, programs = toy(schedule)
    lanes, found = executable.actions, {None: 0, "SHARDC-260": 0}
    for row, lane in enumerate(lanes):
        for i, j in itertools.combinations(range(len(lane)), 2):
            changed = list(lane)
            changed[i], changed[j] = lane[j], lane[i]
            broken = msgspec.structs.replace(
                executable, actions=(*lanes[:row], tuple(changed), *lanes[row + 1 :])
            )
            checked = refusal(lambda broken=broken: check(*executable_graph(broken)))
            forced = refusal(lambda broken=broken: Interpreter(broken, programs))
            found[forced] += 1
            assert checked or forced is None
            if checked is None:
                check_tape(build_tape(broken, programs), programs)
    assert found[None] and found["SHARDC-260"], found

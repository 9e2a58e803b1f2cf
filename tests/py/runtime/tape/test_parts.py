"""The parts of a tape that processes run meet in every message: no circle of waiting."""

import pytest

from shardc.runtime.tape.build import build_tape
from shardc.runtime.tape.instructions import Free, Receive, Run, Send
from tests.py.runtime.toy_step import SCHEDULES


def parts(executable, programs):
    """The tape, and what each of two processes runs of it: stage 0, and stage 1."""
    tape = build_tape(executable, programs)
    groups = [program.program.stage for program in programs]
    return tape, [
        [each for half in tape.part(groups, {own}.__contains__) for each in half] for own in (0, 1)
    ]


def stuck(tape, own):
    """Where each process stands when all wait for each other; a message is a rendezvous."""
    at = [0] * len(own)

    def crossing(instruction):
        if not isinstance(instruction, Send | Receive):
            return None
        message = tape.messages[instruction.message]
        return None if message.source == message.target else instruction.message

    while True:
        before = list(at)
        for process, instructions in enumerate(own):
            while at[process] < len(instructions) and crossing(instructions[at[process]]) is None:
                at[process] += 1
        heads = [part[i] if i < len(part) else None for part, i in zip(own, at, strict=True)]
        if None not in heads and crossing(heads[0]) == crossing(heads[1]):
            at = [i + 1 for i in at]
        if at == before:
            return [part[i] for part, i in zip(own, at, strict=True) if i < len(part)]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_processes_meet_in_every_message_and_run_their_lanes(toy, schedule):
    executable, programs = toy(schedule)
    tape, own = parts(executable, programs)
    assert stuck(tape, own) == []
    for lane, part in zip(executable.actions, own, strict=True):
        ran = [each.action for each in part if isinstance(each, Run)]
        assert ran == [action for action in lane if "P" not in action]
    freed = [slot for part in own for e in part if isinstance(e, Free) for slot in e.slots]
    assert sorted(freed) == sorted(
        slot for each in tape.instructions if isinstance(each, Free) for slot in each.slots
    )


def test_another_order_on_one_side_would_wait_for_ever(toy):
    tape, own = parts(*toy("1f1b"))
    received = [i for i, each in enumerate(own[1]) if isinstance(each, Receive)]
    one, other = received[:2]
    own[1][one], own[1][other] = own[1][other], own[1][one]
    assert len(stuck(tape, own)) == 2

"""Whether processes can wait for each other in a circle is found before the first step."""

import dataclasses

import pytest

from shardc.errors import ShardcError
from shardc.runtime.tape.build import build_tape
from shardc.runtime.tape.instructions import Receive, Send
from shardc.runtime.tape.ranks import check_meetings
from tests.py.runtime.toy_step import SCHEDULES

RANKS = {
    "a stage each": {0: frozenset({0}), 1: frozenset({1})},
    "stages over two each": {0: frozenset({0, 1}), 1: frozenset({2, 3})},
    "stages that share a process": {0: frozenset({0, 1}), 1: frozenset({1, 2})},
    "both in one": {0: frozenset({0}), 1: frozenset({0})},
}


def tape_of(toy, schedule):
    executable, programs = toy(schedule)
    return build_tape(executable, programs), [program.program.stage for program in programs]


@pytest.mark.parametrize("ranks", RANKS.values(), ids=RANKS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_no_tape_of_ours_lets_processes_wait_for_each_other(toy, schedule, ranks):
    tape, groups = tape_of(toy, schedule)
    check_meetings(tape, groups, ranks)


def crossed(tape):
    """Both stages send before they receive: each waits where it sends."""
    down, up = (
        next(n for n, each in enumerate(tape.messages) if (each.source, each.target) == way)
        for way in ((0, 1), (1, 0))
    )
    rest = [e for e in tape.instructions if getattr(e, "message", None) not in (down, up)]
    return [Send(down), Send(up), Receive(up), Receive(down), *rest]


def missing(tape):
    """Nobody comes to receive a message."""
    across = next(n for n, each in enumerate(tape.messages) if each.source != each.target)
    comes = [isinstance(e, Receive) and e.message == across for e in tape.instructions]
    return [e for e, away in zip(tape.instructions, comes, strict=True) if not away]


def test_sends_that_cross_are_refused_with_who_waits_where(toy):
    tape, groups = tape_of(toy, "1f1b")
    for break_it, said in ((crossed, "rank 0 waits in 'message"), (missing, "waits in 'message")):
        broken = dataclasses.replace(tape, instructions=break_it(tape))
        with pytest.raises(ShardcError, match=said) as caught:
            check_meetings(broken, groups, RANKS["a stage each"])
        assert caught.value.code == "SHARDC-266"
        check_meetings(broken, groups, RANKS["both in one"])

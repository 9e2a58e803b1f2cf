"""The order of dispatch keeps every stage's list and every dependence."""

import re

import msgspec
import pytest

from shardc.errors import ShardcError
from shardc.runtime.dispatch_order import dispatch_order
from tests.py.runtime.toy_step import SCHEDULES


def test_updates_come_last_and_round_by_round(toy):
    executable, programs = toy()
    heavy, updates = dispatch_order(executable, programs)
    assert {entry.action[1] for entry in heavy} == {"F", "B"}
    assert [entry.action for entry in updates] == ["0U", "1U"]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_nothing_runs_before_its_inputs(toy, schedule):
    heavy, _ = dispatch_order(*toy(schedule))
    order = [entry.action for entry in heavy]
    for m in (0, 1):
        assert (
            order.index(f"0F{m}")
            < order.index(f"1F{m}")
            < order.index(f"1B{m}")
            < order.index(f"0B{m}")
        )


def test_actions_that_wait_for_each_other_are_named(toy):
    executable, programs = toy()
    stuck = msgspec.structs.replace(executable, actions=(("0B0", "0F0"), ("1F0", "1B0")))
    with pytest.raises(ShardcError, match=re.escape("action 0B0 waits for ['v0', 'v2']")) as caught:
        dispatch_order(stuck, programs)
    assert caught.value.code == "SHARDC-260"


def test_an_action_without_a_kind_of_program_is_refused(toy):
    executable, programs = toy()
    split = msgspec.structs.replace(executable, actions=(("0F0", "0W0"), ()))
    with pytest.raises(ShardcError, match="no program runs the action 0W0"):
        dispatch_order(split, programs)

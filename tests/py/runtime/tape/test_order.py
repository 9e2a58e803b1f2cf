"""The order of dispatch keeps every stage's list and every dependence."""

import dataclasses
import re

import msgspec
import pytest

from shardc.errors import ShardcError
from shardc.runtime.tape.order import dispatch_order
from tests.py.runtime.toy_step import G1, SCHEDULES


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
    stuck = msgspec.structs.replace(
        executable, actions=(("0B0", "0F0", "0U"), ("1F0", "1B0", "1U"))
    )
    with pytest.raises(ShardcError, match=re.escape("action 0B0 waits for ['v0', 'v2']")) as caught:
        dispatch_order(stuck, programs)
    assert caught.value.code == "SHARDC-260"


def test_every_lane_runs_as_it_is_given(toy):
    executable, programs = toy()
    lanes = (("0F1", "0F0", "0B1", "0B0", "0U"), ("1F1", "1B1", "1F0", "1B0", "1U"))
    before, updates = dispatch_order(msgspec.structs.replace(executable, actions=lanes), programs)
    ran = [entry.action for entry in before + updates]
    assert tuple(tuple(a for a in ran if a in lane) for lane in lanes) == lanes
    assert len(ran) == sum(map(len, lanes))


def test_one_lane_may_have_several_stages(toy):
    executable, programs = toy()
    lane = ("0F0", "1F0", "1B0", "0F1", "0B0", "1F1", "1B1", "0B1", "1U", "0U")
    before, updates = dispatch_order(msgspec.structs.replace(executable, actions=(lane,)), programs)
    assert tuple(entry.action for entry in before + updates) == lane


def test_an_update_waits_for_sums_that_others_still_add_to(toy):
    """Even where a lane has it earlier than the other lanes' backwards."""
    executable, programs = toy()
    reads_both = [
        dataclasses.replace(each, args=(*each.args, G1)) if each.program.kind == "update" else each
        for each in programs
    ]
    _, updates = dispatch_order(executable, reads_both)
    assert [entry.action for entry in updates] == ["0U", "1U"]
    early = (executable.actions[0], ("1F0", "1F1", "1B0", "1U", "1B1"))
    stuck = msgspec.structs.replace(executable, actions=early)
    with pytest.raises(ShardcError, match=re.escape("action 1U waits for ['acc1', 'acc1']")):
        dispatch_order(stuck, reads_both)


def test_a_program_that_no_lane_runs_is_refused(toy):
    executable, programs = toy()
    lanes = (executable.actions[0][:-1], executable.actions[1])
    with pytest.raises(ShardcError, match="no lane runs stage0_update"):
        dispatch_order(msgspec.structs.replace(executable, actions=lanes), programs)

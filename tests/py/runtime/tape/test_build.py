"""Slots, moves, drops and donation of an unrolled step."""

import dataclasses
import itertools

import msgspec
import pytest

from shardc.errors import ShardcError
from shardc.plan.executable import ArgumentSpec, Executable, ResultSpec, StageProgram
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import Mesh, TensorSharding
from shardc.runtime.tape.build import build_tape
from shardc.runtime.tape.instructions import Free, Receive, Run, Send
from shardc.schedule.tasks import Task
from tests.py.runtime.toy_step import spec


@dataclasses.dataclass(frozen=True)
class Fake:
    """A program that nobody runs."""

    program: StageProgram
    call: None = None
    in_shardings: tuple = ()
    out_shardings: tuple = ()

    @property
    def args(self):
        return self.program.args

    @property
    def results(self):
        return self.program.results

    @property
    def donated(self):
        return self.program.donated


LETTERS = {"before": "P", "forward": "F", "backward": "B", "update": "U"}


def lanes(programs) -> tuple[tuple[str, ...], ...]:
    """Each stage runs its programs in the order in which they are given."""
    found: list[list[str]] = [[], []]
    for each in programs:
        task = Task(each.stage, LETTERS[each.kind], each.round)
        found[each.stage].append(str(task))
    return tuple(map(tuple, found))


def executable(*programs: StageProgram, results=(), arguments=()) -> Executable:
    meshes = (Mesh((("x", 2),), (0, 1)), Mesh((("x", 2),), (2, 3)))
    return Executable(meshes, programs, arguments, results, 1, lanes(programs))


def tape_of(given: Executable):
    return build_tape(given, [Fake(program) for program in given.programs])


def program(stage, kind, args, results, donated=(), round_=0):
    return StageProgram(
        f"stage{stage}_{kind}",
        stage,
        FunctionKind(kind),
        round_,
        b"",
        tuple(args),
        tuple(results),
        donated,
    )


def refused(given: Executable, match: str) -> None:
    with pytest.raises(ShardcError, match=match) as caught:
        tape_of(given)
    assert caught.value.code == "SHARDC-260"


WHOLE, CUT = spec("v0", (4,), "."), spec("v0", (4,), "x")
STATE = ArgumentSpec("state", (4,), "float32", 0, donated=True, aliased_result=0)


def test_a_value_read_in_two_shardings_is_moved_once_when_it_is_made():
    tape = tape_of(
        executable(
            program(0, "before", [], [WHOLE]),
            program(0, "update", [CUT], [spec("v1", (4,), "x")]),
            program(1, "update", [CUT, WHOLE], [spec("v2", (4,), "x")]),
            program(1, "update", [CUT], [spec("v3", (4,), "x")], round_=1),
            results=(ResultSpec("v1", (4,), "float32", 0),),
        )
    )
    runs = [i for i, each in enumerate(tape.instructions) if isinstance(each, Run)]
    behind = tape.instructions[runs[0] + 1 : runs[1]]
    sent = [tape.messages[each.message] for each in behind if isinstance(each, Send)]
    received = [tape.messages[each.message] for each in behind if isinstance(each, Receive)]
    assert sent == received == tape.messages
    moved = [(tape.slots[a], tape.slots[b]) for each in sent for a, b in each.moves]
    assert {(b.group, b.sharding.dims) for _, b in moved} == {
        (0, (("x",),)),
        (1, (("x",),)),
        (1, ((),)),
    }
    assert all(a.group == 0 and a.sharding == WHOLE.sharding for a, _ in moved)
    assert len(moved) == 3
    # What nobody reads any more is dropped at its last reader: v0 cut on stage 1 in round 1 only.
    freed = [
        {tape.slots[slot].value for each in part if isinstance(each, Free) for slot in each.slots}
        for part in (tape.instructions[i:j] for i, j in itertools.pairwise([*runs, None]))
    ]
    assert freed == [{"v0"}, {"v0"}, {"v0", "v2"}, {"v0", "v3"}]
    assert [tape.slots[slot].value for slot in tape.results if slot is not None] == ["v1"]


def test_an_argument_is_placed_as_its_successor_will_lie():
    given = executable(
        program(0, "before", [spec("arg0", (4,), ".")], [spec("v9", (4,), ".")]),
        program(0, "update", [spec("arg0", (4,), "x")], [spec("v1", (4,), "x")], (0,)),
        results=(ResultSpec("v1", (4,), "float32", 0), ResultSpec("v9", (4,), "float32", 0)),
        arguments=(STATE,),
    )
    tape = tape_of(given)
    assert tape.primary[0] is not None
    assert tape.slots[tape.primary[0]].sharding == TensorSharding((("x",),))
    assert tape.instructions[:2] == [Send(0), Receive(0)]
    assert [tape.slots[b].sharding.dims for _, b in tape.messages[0].moves] == [((),)]


def test_partial_sums_may_not_move():
    partial = spec("v0", (4,), ".", unreduced="x")
    refused(
        executable(
            program(0, "before", [], [partial]),
            program(1, "update", [WHOLE], [spec("v1", (4,), "x")]),
        ),
        "'v0' is a partial sum",
    )
    refused(
        executable(
            program(0, "before", [], [partial]), results=(ResultSpec("v0", (4,), "float32", 0),)
        ),
        "the result 'v0' is a partial sum",
    )


def test_a_result_needs_a_maker():
    refused(
        executable(results=(ResultSpec("v7", (4,), "float32", 0),)),
        "no program makes the result 'v7'",
    )


def test_what_is_read_needs_a_maker():
    refused(
        executable(program(0, "update", [spec("acc0", (4,), ".")], [spec("v1", (4,), ".")])),
        "'acc0' is read on stage 0 but never made",
    )


def test_a_value_is_made_once():
    refused(
        executable(program(0, "before", [], [WHOLE]), program(1, "before", [], [WHOLE])),
        "'v0' is made twice",
    )


def test_an_accumulator_keeps_its_sharding():
    refused(
        executable(
            program(0, "forward", [spec("acc0", (4,), "x")], [spec("acc0", (4,), ".")]),
        ),
        "'acc0' changes its sharding",
    )


@pytest.mark.parametrize("kind", ["before", "update"])
def test_a_buffer_of_the_user_is_donated_by_updates_only_and_with_leave(kind):
    mine = msgspec.structs.replace(STATE, donated=kind == "before", aliased_result=None)
    refused(
        executable(
            program(0, kind, [spec("arg0", (4,), "x")], [spec("v1", (4,), "x")], (0,)),
            arguments=(mine,),
        ),
        f"stage0_{kind} donates 'state'",
    )


def test_what_is_read_later_is_not_donated():
    refused(
        executable(
            program(0, "before", [], [WHOLE]),
            program(0, "update", [WHOLE], [spec("v1", (4,), ".")], (0,)),
            program(0, "update", [WHOLE], [spec("v2", (4,), ".")], round_=1),
        ),
        "donates 'v0', which is read later",
    )

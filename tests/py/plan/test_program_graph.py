"""What tasks need and hold is what their programs take and give."""

import pytest

from shardc.errors import ScheduleError
from shardc.plan.executable import ArgumentSpec, ValueSpec
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import Mesh, TensorSharding
from shardc.plan.program_graph import ProgramValues, between_steps, program_graph
from shardc.schedule.check import check, peaks
from shardc.schedule.registry import schedule_named
from shardc.schedule.simulate import simulate
from shardc.schedule.tasks import Schedule, TaskGraph, parse_lanes
from shardc.schedule.work import Work

MESHES = [Mesh((("x", 2),), (0, 1)), Mesh((("x", 2),), (2, 3)), Mesh((("x", 2),), (4, 5))]


def value(name: str, elements: int, *axes: str, many: bool = True) -> ValueSpec:
    return ValueSpec(name, (elements,), "float32", TensorSharding((axes,)), many)


def program(
    stage: int, kind: FunctionKind, args: list[ValueSpec], results: list[ValueSpec]
) -> ProgramValues:
    return ProgramValues(stage, kind, 0, tuple(args), tuple(results))


# Three stages; `skip` goes from the first to the last past the second; `kept` from B to W.
H0, H1, SKIP = value("v0", 8, "x"), value("v1", 8, "x"), value("v2", 4)
G1, G0, KEPT, SUM = value("v3", 8), value("v4", 8), value("v5", 16), value("acc6", 8, many=False)
F, B, W, U = FunctionKind.FORWARD, FunctionKind.BACKWARD, FunctionKind.WEIGHT, FunctionKind.UPDATE
PROGRAMS = [
    program(0, F, [], [H0, SKIP]),
    program(1, F, [H0], [H1]),
    program(2, F, [H1, SKIP], []),
    program(2, B, [H1, SKIP], [G1]),
    program(1, B, [G1, H0], [G0, KEPT]),
    program(1, W, [KEPT, SUM], [SUM]),
    program(0, W, [G0], []),
    program(1, U, [SUM], []),
]


def graph(name: str, microbatches: int) -> tuple[Schedule, TaskGraph]:
    family = schedule_named(name)
    work = family.work(Work(3, microbatches, prologue=False))
    schedule = family.generate(work)
    return schedule, program_graph(PROGRAMS, schedule, family.graph(work, schedule), MESHES)


def test_a_task_waits_for_the_makers_of_what_it_reads_and_for_nothing_else() -> None:
    _, found = graph("zb-h1", 2)
    needs = {
        str(task): {str(n.task): n.num_bytes for n in found.needs[task]} for task in found.tasks
    }
    assert needs["2F1"] == {"1F1": 32, "0F1": 16}  # bytes of the whole values that are sent
    assert needs["0B1"] == {}  # the first stage sends nothing back
    assert needs["0W1"] == {"1B1": 32}
    assert needs["1W0"] == {"1B0": 0}
    assert needs["1U"] == {"1W0": 0, "1W1": 0}


def test_a_value_is_one_buffer_per_device_group_until_its_last_reader_there() -> None:
    _, found = graph("zb-h1", 1)
    held = {(str(b.maker), b.group, b.num_bytes, tuple(map(str, b.users))) for b in found.buffers}
    assert held == {
        ("0F0", 0, 16, ()),  # 8 floats over 2 devices; sent at once
        ("0F0", 1, 16, ("1F0", "1B0")),
        ("0F0", 0, 16, ()),
        ("0F0", 2, 16, ("2F0", "2B0")),
        ("1F0", 1, 16, ()),
        ("1F0", 2, 16, ("2F0", "2B0")),
        ("2B0", 2, 32, ()),
        ("2B0", 1, 32, ("1B0",)),
        ("1B0", 1, 32, ()),
        ("1B0", 0, 32, ("0W0",)),
        ("1B0", 1, 64, ("1W0",)),
    }


def test_what_arrives_counts_from_when_it_is_sent() -> None:
    schedule, found = graph("zb-h1", 1)
    check(schedule, found)
    # Group 1 holds most while 1B0 runs: v0 and v3, which have come, v4 and v5, which it makes.
    assert peaks(schedule, found) == (32, 16 + 32 + 32 + 64, 16 + 16 + 32)
    assert simulate(schedule, found, lambda task: 1).peak_activations == peaks(schedule, found)


def test_swapping_two_tasks_is_refused_where_a_value_says_so() -> None:
    schedule, found = graph("zb-h1", 1)
    lanes = [list(map(str, lane)) for lane in schedule.lanes]
    first, second = lanes[1].index("1B0"), lanes[1].index("1W0")
    lanes[1][first], lanes[1][second] = lanes[1][second], lanes[1][first]
    with pytest.raises(ScheduleError, match="cannot finish") as caught:
        check(Schedule(parse_lanes(lanes)), found)
    assert caught.value.code == "SHARDC-244"
    assert "1W0 (device 1) for 1B0" in caught.value.message


def test_state_that_other_groups_read_waits_for_the_update_of_its_owner() -> None:
    tied, own, batch = (value(f"arg{n}", 8, many=False) for n in range(3))
    programs = [
        program(0, F, [tied, batch], [H0, SKIP]),
        program(1, F, [H0, own], [H1]),
        program(2, F, [H1, SKIP, tied, batch], []),
        program(2, U, [tied], []),
        *PROGRAMS[3:],
    ]
    arguments = [
        ArgumentSpec("tied", (8,), "float32", 0, aliased_result=0),
        ArgumentSpec("own", (8,), "float32", 1, aliased_result=1),
        ArgumentSpec("batch", (8,), "float32", 0),  # no step makes it
    ]
    schedule, found = graph("1f1b", 2)
    between = between_steps(programs, arguments, schedule, found)
    assert {
        str(reader): [str(need.task) for need in needs] for reader, needs in between.items()
    } == {
        "2F0": ["0U"],
        "2U": ["0U"],
    }
    assert {(n.num_bytes, n.source, n.target) for own in between.values() for n in own} == {
        (0, 0, 2)
    }

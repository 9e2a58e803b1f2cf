"""The plan as a table for people."""

from msgspec import structs

from shardc.plan.decisions import Plan, StagePlan
from shardc.plan.layout import Mesh
from shardc.plan.notes import Note, NoteCode
from shardc.plan.predicted import JudgedSchedule, Predicted
from shardc.report.summary import (
    MOST_SCHEDULES,
    collectives_per_step,
    explain,
    mesh_text,
    seconds,
    size,
)
from tests.py.runtime.toy_step import toy_executable

PLAN = Plan(
    num_stages=2,
    num_microbatches=2,
    schedule="1f1b",
    stages=(
        StagePlan(
            Mesh((("x", 2), ("y", 2)), (0, 1, 2, 3)), (0, 1, 2), 0, 123_456_789, 0.0012, 3 << 20
        ),
        StagePlan(Mesh((), (5,)), (3, 5), 40, 1000, 2e-6, 100),
    ),
    shardings={},
    predicted=Predicted(0.0123, 3 << 20, 2048, 0.01, 0.25),
    objective=0.5,
    lower_bound=0.25,
    planning_time_s=1.25,
    notes=(Note(NoteCode.LOOKUPS, {"count": 3}),),
)


def test_table_says_what_was_decided_and_what_it_costs() -> None:
    text = explain(PLAN)
    for part in (
        "2 stages, 2 microbatches, schedule 1f1b",
        "2x2 (x, y)",
        "0-3",
        "0-2",
        "3,5",
        "123 M",
        "3 MiB",
        "1.2 ms",
        "12.3 ms per step (25% idle in the pipeline), 3 MiB per device, 2 KiB sent",
        "objective 500 ms, proven lower bound 250 ms",
        "note: 3 products with one-hot matrices",
    ):
        assert part in text, f"{part!r} is missing in\n{text}"


def test_of_many_schedules_the_first_are_shown_and_the_chosen_one() -> None:
    many = tuple(JudgedSchedule(f"s{n}", 1, 1e-3 * n) for n in range(1, 21))
    own = JudgedSchedule("1f1b", 1, 0.1, is_planned=True)
    text = explain(structs.replace(PLAN, schedules=(*many, own)))
    rows = [line.split()[0] for line in text.splitlines() if line.startswith((" s", " 1f1b"))]
    assert rows[-MOST_SCHEDULES - 1 :] == [*(f"s{n}" for n in range(1, 11)), "1f1b"]
    assert "... and 10 more in `plan.schedules`" in text
    assert "more in `plan.schedules`" not in explain(structs.replace(PLAN, schedules=many[:3]))


def test_stages_of_one_group_are_not_more_devices() -> None:
    mesh, other = Mesh((("x", 2),), (0, 1)), Mesh((("x", 2),), (2, 3))
    stages = tuple(StagePlan(each, (n,)) for n, each in enumerate((mesh, other) * 3))
    plan = structs.replace(PLAN, num_chunks=3, stages=stages)
    assert str(plan).startswith("2 device groups of 2 devices with 3 stages each, 2 microbatches")
    assert "2 device groups with 3 stages each, 2 microbatches" in explain(plan)
    narrow = structs.replace(PLAN, stages=PLAN.stages[1:] * 2)
    assert str(narrow).startswith("2 stages of 1 device, 2 microbatches")


def test_collectives_are_counted_per_step() -> None:
    executable = toy_executable()
    # Stage 1: two all-reduces in each of the two forwards, one in the update.
    assert collectives_per_step(executable, 1) == {"stablehlo.all_reduce": 5}
    assert "5 AR" in explain(PLAN, executable)


def test_numbers_and_meshes_read_well() -> None:
    assert [seconds(s) for s in (2.0, 0.5, 1e-5, 0.0)] == ["2 s", "500 ms", "10 us", "0 ns"]
    assert [size(n) for n in (0, 1023, 1 << 34)] == ["0 B", "1023 B", "16 GiB"]
    assert mesh_text(Mesh((), (0,))) == "1"

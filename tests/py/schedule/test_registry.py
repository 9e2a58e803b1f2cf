"""Schedules of the user's own: functions and files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import shardc
from shardc.api.request import plan_options
from shardc.cli import main
from shardc.errors import ScheduleError
from shardc.schedule.family import Costs, Lanes, Order
from shardc.schedule.registry import names, plan_schedule, schedule_named
from shardc.schedule.shown.grid import print_grid
from shardc.schedule.tasks import Task
from shardc.schedule.work import Work
from tests.py.schedule.simulated import run

V_FORMED = """\
# two chunks per device, as a V
0 | 0F0 .   .   3F0 3B0 .   .   0B0
1 | .   1F0 2F0 .   .   2B0 1B0 .
"""


def simulate(schedule: str, stages: int, microbatches: int, *more: str) -> Result:
    counts = ["--stages", str(stages), "--microbatches", str(microbatches)]
    return CliRunner().invoke(main, ["simulate", "--schedule", schedule, *counts, *more])


def test_a_grid_file_is_simulated_as_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "mine.grid"
    file.write_text(V_FORMED)
    result = simulate(str(file), 2, 1, "--times", "F=1,B=1,W=0", "--format", "json")
    data = json.loads(result.stdout)
    assert data["makespan"] == 4
    assert data["actions"][0] == ["0F0", "3F0", "3B0", "0B0"]
    assert data["peak_activations"] == [1, 1]


@pytest.mark.parametrize("name", ["zb-h1", "dualpipe", "zb-v", "seq1f1b"])
def test_a_family_written_to_a_file_is_the_family(name: str, tmp_path: Path) -> None:
    found = run(name, 4, 8)
    grid, lanes = tmp_path / "a.grid", tmp_path / "a.json"
    grid.write_text(print_grid(found.planned.schedule))
    lanes.write_text(json.dumps(found.planned.schedule.to_json()))
    for file in (grid, lanes):
        assert run(str(file), 4, 8).result.timeline == found.result.timeline


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("0 | 0F0 0B0\n1 | 1B0 1F0", "SHARDC-244", "row 1, column 0 of the grid (1B0)"),
        ("0 | 0F0 0B0\n1 | 1F0", "SHARDC-243", "row 1 of the grid"),
        ("0 | 0F0 . 0B0 1B0\n1 | 1F0", "SHARDC-243", "row 1, column 0 of the grid (1F0)"),
        ("0 | 0F0 0B0 0F0\n1 | 1F0 1B0", "SHARDC-243", "row 0, column 2 of the grid (0F0)"),
        ("0 | 0F0 0B0 0W0\n1 | 1F0 1B0", "SHARDC-243", "1W0"),
        ("0 | 0F0 0B0", "SHARDC-242", "one row for each of 0 to 1"),
        ("0 | 0F0 0B0\n1 | 2F0 2B0", "SHARDC-243", "stage 1"),
        ("0 | 0F0 0Z0", "SHARDC-241", "row 0, column 1"),
        ("0 | 0F0 9F0 0B0\n1 | 1F0 1B0", "SHARDC-243", "row 0, column 1 of the grid (9F0)"),
        ("0 | 99999999F0\n1 | 1F0", "SHARDC-243", "row 0, column 0 of the grid (99999999F0)"),
        ("0 | 0F0 0B0 0F0'\n1 | 1F0 1B0", "SHARDC-243", "row 0, column 2 of the grid (0F0')"),
        ("0 |\n1 |", "SHARDC-243", "row 0 of the grid"),
        ("0 | 0F0 1F0 1B0 0B0\n1 |", "SHARDC-243", "row 0 of the grid"),
        ("0 | 0F0 0B0 1F0 1B0 2F0 2B0\n1 | 3F0 3B0", "SHARDC-243", "device 0 has 3 of"),
        ("# nothing", "SHARDC-242", "no rows"),
    ],
)
def test_a_wrong_grid_is_refused_at_its_cell(
    text: str, code: str, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.grid"
    file.write_text(text)
    result = simulate(str(file), 2, 1)
    assert result.exit_code == 2
    assert f"error[{code}]" in result.stderr
    assert said in result.stderr
    assert code == "SHARDC-242" or "mine.grid:" in result.stderr or said == "stage 1"
    assert "help:" in result.stderr


def test_a_grid_may_run_every_backward_as_one_program(tmp_path: Path) -> None:
    """X is B and W in one, also where no W stands apart."""
    grid = tmp_path / "mine.grid"
    found = []
    for backward in "BX":
        grid.write_text(f"0 | 0F0 0{backward}0\n1 | 1F0 1{backward}0")
        found.append(json.loads(simulate(str(grid), 2, 1, "--format", "json").stdout))
    assert found[0]["makespan"] == found[1]["makespan"] == 6
    assert found[0]["peak_activations"] == found[1]["peak_activations"]


@pytest.mark.parametrize("option", ["--chunks", "--slices"])
def test_no_chunks_and_no_slices_are_refused(option: str) -> None:
    name = "interleaved-1f1b" if option == "--chunks" else "terapipe"
    result = simulate(name, 2, 2, option, "0")
    assert (result.exit_code, f"0 {option[2:]}" in result.stderr) == (2, True)


def test_a_file_that_is_no_schedule_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    for text in ("{", "[]", '{"lanes": 3}', '{"lanes": [["0F0", "what"]]}'):
        file.write_text(text)
        result = simulate(str(file), 1, 1)
        assert (result.exit_code, "SHARDC-241" in result.stderr) == (2, True)


def one_at_a_time(work: Work, costs: Costs) -> Lanes:
    return [
        [Task(stage, kind, k) for k in work.microbatches() for kind in "FB"]
        for stage in range(work.num_stages)
    ]


def test_a_registered_function_is_a_schedule_like_any_other() -> None:
    family = shardc.register_schedule("one-at-a-time", one_at_a_time)
    assert "one-at-a-time" in names()
    assert schedule_named("one-at-a-time") is family
    found = run("one-at-a-time", 3, 4)
    assert found.result.makespan_s == 4 * 3 * 3
    assert found.peaks == [1, 1, 1]
    assert plan_options(schedule="one-at-a-time").schedule == "one-at-a-time"


def swapped(work: Work, costs: Costs) -> Lanes:
    first, *others = map(list, one_at_a_time(work, costs))
    return [[first[1], first[0], *first[2:]], *others]


def leaks(work: Work, costs: Costs) -> Lanes:
    return [list(lane)[:-1] for lane in one_at_a_time(work, costs)]


def twice(work: Work, costs: Costs) -> Lanes:
    return [[*lane, lane[0]] for lane in one_at_a_time(work, costs)]


def fails(work: Work, costs: Costs) -> Lanes:
    return [[Task(0, "F", 1 // 0)]]


@pytest.mark.parametrize(
    ("order", "code", "said", "where"),
    [
        (swapped, "244", r"0B0 \(device 0\) for 0F0", "row 0, column 0 of the grid (0B0)"),
        (leaks, "243", "does not contain 0B1, 1B1", "row 0 of the grid"),
        (twice, "243", "contains twice 0F0", "row 0, column 4 of the grid (0F0)"),
        (lambda work, costs: [[], []], "243", "does not contain 0F0", "row 0 of the grid"),
        (lambda work, costs: [[("F", 0)]] * 2, "241", "is not a Task", "row 0, column 0"),
        (lambda work, costs: [[Task(0, "F", 0)]], "242", "1 lanes for 2 device groups", "None"),
        (lambda work, costs: None, "241", "NoneType", "None"),
        (fails, "241", "2 device groups and 2 microbatches: ZeroDivisionError", "(fails)"),
    ],
)
def test_a_wrong_function_is_refused_where_it_is_wrong(
    order: Order, code: str, said: str, where: str
) -> None:
    """As soon as it is asked, whoever asks: the simulation, and the planner for what it holds."""
    family = shardc.register_schedule("wrong", order)
    work = family.work(Work(2, 2))
    for ask in (
        lambda: plan_schedule("wrong", Work(2, 2), Costs()),
        lambda: family.generate(work),
        lambda: family.in_flight(work),
    ):
        with pytest.raises(ScheduleError, match=said) as caught:
            ask()
        assert caught.value.code == f"SHARDC-{code}" and caught.value.help
        assert where in str(caught.value.where)


def test_what_a_function_itself_refuses_is_not_wrapped() -> None:
    def refuses(work: Work, costs: Costs) -> Lanes:
        raise ScheduleError("an odd number", code="SHARDC-242")

    shardc.register_schedule("refuses", refuses)
    with pytest.raises(ScheduleError, match=r"^error\[SHARDC-242\]: an odd number"):
        plan_schedule("refuses", Work(2, 2), Costs())


@pytest.mark.parametrize(
    ("name", "options"), [("1f1b", {}), ("auto", {}), ("mine", {"place": "nowhere"})]
)
def test_names_and_places_of_shardcs_own_cannot_be_taken(
    name: str, options: dict[str, str]
) -> None:
    with pytest.raises(ScheduleError) as caught:
        shardc.register_schedule(name, one_at_a_time, **options)  # type: ignore[arg-type]
    assert caught.value.code == "SHARDC-242"


FAMILY = """
from shardc.schedule.family import ScheduleFamily
from shardc.schedule.tasks import Task

def order(work, costs):
    return [
        [Task(stage, kind, k) for k in work.microbatches() for kind in "FB"]
        for stage in range(work.num_stages)
    ]

FAMILIES = (ScheduleFamily("one-by-one", order),)
"""


@pytest.mark.slow
def test_one_file_more_is_one_family_more(tmp_path: Path) -> None:
    """And its form with W apart, and the best order on its placement."""
    (tmp_path / "one_by_one.py").write_text(FAMILY)
    program = f"""
from shardc.schedule import families
families.__path__.append({str(tmp_path)!r})
from shardc.schedule.registry import best_orders, schedule_named
from shardc.schedule.work import Work
for name in ("one-by-one", "2bp-one-by-one"):
    assert schedule_named(name).generate(Work(2, 3, split_backward=name[0] == "2")).lanes
assert "one-by-one" in best_orders()
"""
    subprocess.run([sys.executable, "-c", program], check=True)

"""Schedules of the user's own: functions and files."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import shardc
from shardc.api.request import plan_options
from shardc.cli import main
from shardc.errors import ScheduleError
from shardc.schedule.family import Costs, Lanes
from shardc.schedule.registry import names, schedule_named
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


def test_a_registered_function_that_forgets_an_action_is_refused() -> None:
    shardc.register_schedule("forgets", lambda work, costs: [[Task(0, "F", 0)]])
    with pytest.raises(ScheduleError, match="does not contain 0B0") as caught:
        run("forgets", 1, 1)
    assert caught.value.code == "SHARDC-243"


@pytest.mark.parametrize(
    ("name", "options"), [("1f1b", {}), ("auto", {}), ("mine", {"place": "nowhere"})]
)
def test_names_and_places_of_shardcs_own_cannot_be_taken(
    name: str, options: dict[str, str]
) -> None:
    with pytest.raises(ScheduleError) as caught:
        shardc.register_schedule(name, one_at_a_time, **options)  # type: ignore[arg-type]
    assert caught.value.code == "SHARDC-242"

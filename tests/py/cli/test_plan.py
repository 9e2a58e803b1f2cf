"""`shardc plan`: the contract's JSON, plan files, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shardc.api.planning import find
from shardc.plan.decisions import Plan
from shardc.plan.notes import Note, NoteCode
from shardc.report.reading import judged
from tests.py.cli.programs import shardc, write_mlp


@pytest.mark.slow
def test_json_has_the_words_of_the_contract_and_the_file_is_a_plan(tmp_path: Path) -> None:
    file, output = write_mlp(tmp_path), tmp_path / "plan.json"
    options = ["--stages", 2, "--microbatches", 2, "--schedule", "gpipe", "--mesh", "2x2"]
    result = shardc("plan", file, "--cluster", "cpu8", *options, "-o", output, "--format", "json")
    assert result.exit_code == 0, result.stderr
    data = json.loads(result.stdout)
    plan = Plan.load(output)
    assert data["num_stages"] == plan.num_stages == 2
    assert data["num_microbatches"] == 2
    assert data["requested"] == {"stages": 2, "microbatches": 2}
    assert data["schedule"] == "gpipe"
    assert data["predicted_step_time_s"] == plan.predicted.step_time_s > 0
    assert data["predicted_peak_bytes_per_device"] == plan.predicted.peak_bytes_per_device > 0
    assert data["communication_bytes_per_step"] == plan.predicted.communication_bytes
    assert data["planning_time_s"] > 0
    assert data["lower_bound"] <= data["objective"] * (1 + 1e-9)
    assert [stage["mesh"] for stage in data["stages"]] == [[2, 2], [2, 2]]
    assert data["stages"][1]["devices"] == [4, 5, 6, 7]
    # The batch is what analysis found: the last two arguments.
    assert plan.batch_arguments == (10, 11)


@pytest.mark.slow
def test_text_is_a_table_and_the_batch_may_be_named(tmp_path: Path) -> None:
    file = write_mlp(tmp_path)
    options = ["--stages", 1, "--microbatches", 2, "--batch-args", "10,11", "--memory-limit"]
    result = shardc("plan", file, "--cluster", "cpu8", *options, "1.5MiB", "--no-cache")
    assert result.exit_code == 0, result.stderr
    assert "1 stage, 2 microbatches" in result.stdout
    assert "predicted:" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "code", "exit_code"),
    [
        (["--stages", "few"], "SHARDC-180", 2),
        (["--mesh", "2by4"], "SHARDC-180", 2),
        (["--batch-args", "x"], "SHARDC-180", 2),
        (["--memory-limit", "lots"], "SHARDC-180", 2),
        (["--schedule", "zigzag"], "SHARDC-240", 2),
        (["--batch-args", "12"], "SHARDC-186", 2),
        (["--stages", "1", "--memory-limit", "1KiB"], "SHARDC-220", 3),
        (["--stages", "1", "--microbatches", "1", "-o", "/nowhere/plan.json"], "SHARDC-180", 2),
    ],
)
def test_refusals(tmp_path: Path, options: list[str], code: str, exit_code: int) -> None:
    result = shardc("plan", write_mlp(tmp_path), "--cluster", "cpu8", *options)
    assert result.exit_code == exit_code, result.stderr
    assert f"error[{code}]" in result.stderr
    assert "help:" in result.stderr


def test_missing_and_damaged_files_are_bad_input(tmp_path: Path) -> None:
    damaged = tmp_path / "bad.mlir"
    damaged.write_text("module {\n  func.func @main( {")
    for file, code in ((tmp_path / "none.mlir", "SHARDC-120"), (damaged, "SHARDC-120")):
        result = shardc("plan", file, "--cluster", "cpu8")
        assert result.exit_code == 2
        assert f"error[{code}]" in result.stderr
    result = shardc("plan", write_mlp(tmp_path), "--cluster", "nowhere")
    assert result.exit_code == 2
    assert "error[SHARDC-100]" in result.stderr


def test_ctrl_c_before_there_is_a_plan_exits_cleanly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object) -> Plan:
        raise KeyboardInterrupt

    monkeypatch.setattr(find, "plan_program", interrupted)
    result = shardc("plan", write_mlp(tmp_path), "--cluster", "cpu8", "--no-cache")
    assert result.exit_code == 130
    assert result.stderr.strip() == "interrupted"


@pytest.mark.slow
def test_ctrl_c_leaves_the_best_plan_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    right = find.plan_program

    def interrupted(*args: Any) -> Plan:
        return msgspec.structs.replace(right(*args), notes=(Note(NoteCode.INTERRUPTED),))

    monkeypatch.setattr(find, "plan_program", interrupted)
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.setenv("SHARDC_PROGRESS", "1")
    found = shardc("plan", write_mlp(tmp_path), "--cluster", "cpu8", "--stages", "1")
    assert found.exit_code == 0, found.output
    assert "planning was interrupted; going on with the best plan so far" in caplog.text
    assert not (tmp_path / "kept").exists()


@pytest.mark.slow
def test_shardings_may_be_asked_for_and_have_prices(tmp_path: Path) -> None:
    file = write_mlp(tmp_path)
    mesh = ["--stages", 1, "--microbatches", 1, "--mesh", "data=2,model=4"]
    asked = ["--sharding", "argument 10=data,-", "--prices", "--no-cache", "--format", "json"]
    result = shardc("plan", file, "--cluster", "cpu8", *mesh, *asked)
    assert result.exit_code == 0, result.stderr
    data = json.loads(result.stdout)
    assert data["stages"][0]["axes"] == ["data", "model"]
    assert list(data["sharding_prices_s"]) == ["shardings['argument 10']"]


def test_a_sharding_without_a_spec_is_refused(tmp_path: Path) -> None:
    result = shardc("plan", write_mlp(tmp_path), "--cluster", "cpu8", "--sharding", "argument 10")
    assert result.exit_code == 2
    assert "SHARDC-180" in result.stderr


@pytest.mark.slow
def test_choices_are_explained(tmp_path: Path) -> None:
    one = ["--stages", 1, "--microbatches", 1, "--mesh", 8, "--explain", "dot_general"]
    result = shardc("plan", write_mlp(tmp_path), "--cluster", "cpu8", *one)
    assert result.exit_code == 0, result.stderr
    assert "stablehlo.dot_general at " in result.stdout
    assert "with its neighbours unchanged" in result.stdout


@pytest.mark.slow
def test_equal_layers_can_be_tied(tmp_path: Path) -> None:
    options = ["--stages", 1, "--microbatches", 1, "--mesh", "8", "--no-cache", "--format", "json"]
    found = {}
    for how in ("free", "tied"):
        how_asked = [*options, "--equal-layers", how]
        result = shardc("plan", write_mlp(tmp_path), "--cluster", "cpu8", *how_asked)
        assert result.exit_code == 0, result.stderr
        found[how] = json.loads(result.stdout)
    (free,), (tied,) = found["free"]["stages"], found["tied"]["stages"]
    assert (free["num_folded"], free["folded_objective"]) == (0, None)
    assert tied["num_folded"] > 0 and tied["folded_objective"] == tied["objective"]
    assert free["objective"] <= tied["objective"] * (1 + 1e-9)
    assert any("equal layers share their shardings" in note for note in found["tied"]["notes"])


@pytest.mark.slow
def test_pipelines_by_hand_are_ranked_beside_those_of_the_search(tmp_path: Path) -> None:
    file, output = write_mlp(tmp_path), tmp_path / "plan.json"
    mine, huge = tmp_path / "mine.json", tmp_path / "huge.json"
    stage = '{"layers": 2, "mesh": [2, 2]}'
    mine.write_text(
        f'{{"version": 1, "name": "mine", "microbatches": 2, "stages": [{stage}, {stage}]}}'
    )
    huge.write_text('{"version": 1, "name": "one device", "stages": [{"mesh": [1]}]}')
    options = ["--cluster", "cpu8", "--top", 2, "--stages-spec", mine, "--stages-spec", huge]
    options += ["--memory-limit", "130KiB", "-o", output, "--format", "json"]
    result = shardc("plan", file, *options)
    assert result.exit_code == 0, result.stderr
    data = json.loads(result.stdout)
    rows = data["alternatives"]
    assert {row["name"]: row["by_hand"] for row in rows} == {
        "search": False,
        "mine": True,
        "one device": True,
    }
    plan = Plan.load(output)
    times = [row["step_time_s"] for row in rows if row["exact"] is not None]
    assert times == sorted(times)
    assert times[0] == data["predicted_step_time_s"] == plan.predicted.step_time_s
    assert next(row for row in rows if row["name"] == "one device")["missing_bytes"] > 0
    assert plan.account is not None
    assert {"mine", "one device"} <= {each.name for each in plan.account.judged}


@pytest.mark.slow
def test_a_pipeline_by_hand_that_wins_has_those_of_the_search_in_its_record(
    tmp_path: Path,
) -> None:
    file, spec, output = write_mlp(tmp_path), tmp_path / "mine.json", tmp_path / "plan.json"
    spec.write_text('{"version": 1, "name": "mine", "stages": [{"mesh": [1]}]}')
    forced = ["--stages", 1, "--microbatches", 4, "--mesh", "1", "--top", 2, "-o", output]
    result = shardc("plan", file, "--cluster", "cpu8", *forced, "--stages-spec", spec)
    assert result.exit_code == 0, result.stderr
    assert [each.name for each in judged(Plan.load(output))] == ["this plan", "search"]


@pytest.mark.slow
def test_a_pipeline_by_hand_is_planned_compared_and_run(tmp_path: Path) -> None:
    file, spec = write_mlp(tmp_path), tmp_path / "spec.json"
    plans = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, sizes in zip(plans, ([1], [4]), strict=True):
        stage = {"layers": 2, "mesh": sizes}
        spec.write_text(json.dumps({"version": 1, "microbatches": 2, "stages": [stage, stage]}))
        options = ["--cluster", "cpu8", "--stages-spec", spec, "-o", path]
        assert shardc("plan", file, *options).exit_code == 0
    text = shardc("plan", "--compare", *plans)
    assert text.exit_code == 0 and "is faster" in text.stdout
    data = json.loads(shardc("plan", "--compare", *plans, "--format", "json").stdout)
    assert data["faster"] in map(str, plans)
    ran = shardc("run", file, "--devices", 8, "--stages-spec", spec, "--check", "--steps", 2)
    assert ran.exit_code == 0, ran.output


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--stages", "2"], "SHARDC-183"),
        (["--prices"], "SHARDC-183"),
        (["--sharding", "argument 10=data"], "SHARDC-183"),
        (["--stages-spec", "SPEC"], "SHARDC-183"),
    ],
)
def test_options_that_contradict_a_pipeline_by_hand(
    tmp_path: Path, options: list[str], code: str
) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text('{"version": 1, "stages": [{}]}')
    given = [str(spec) if each == "SPEC" else each for each in options]
    result = shardc("plan", write_mlp(tmp_path), "--cluster", "cpu8", "--stages-spec", spec, *given)
    assert result.exit_code == 2
    assert f"error[{code}]" in result.stderr


def test_nothing_is_given_beside_plans_to_compare() -> None:
    compared = ["--compare", "one.json", "other.json"]
    for more in (["step.mlir"], ["--top", 3], ["--stages", "2"], ["-o", "plan.json"]):
        result = shardc("plan", *compared, *more)
        assert result.exit_code == 2
        assert "--compare takes two plan files" in result.stderr
    assert "SHARDC-200" in shardc("plan", *compared, "--format", "json").stderr
    assert "--compare PLAN PLAN" in shardc("plan", "--help").stdout


def test_a_file_and_a_cluster_are_needed(tmp_path: Path) -> None:
    assert shardc("plan").exit_code == 2
    assert shardc("plan", write_mlp(tmp_path)).exit_code == 2

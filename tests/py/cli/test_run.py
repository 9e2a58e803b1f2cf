"""`shardc run`: runs, checks, and tells when the check fails."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
import pytest

from shardc.cli import run
from tests.py.cli.programs import shardc, write_mlp

ROOT = Path(__file__).parents[3]
SMALL = ["--devices", 4, "--stages", 2, "--microbatches", 2, "--steps", 2]


@pytest.mark.slow
def test_json_has_the_words_of_the_contract(tmp_path: Path) -> None:
    result = shardc("run", write_mlp(tmp_path), *SMALL, "--check", "--format", "json")
    assert result.exit_code == 0, result.stderr
    data = json.loads(result.stdout)
    assert data["max_relative_error"] <= 1e-5
    assert data["float64_max_relative_error"] <= 1e-9
    assert 0 < data["reference_error"] <= 1e-5
    assert data["outputs_compared"] == 11
    assert data["nonfinite_reference_values"] == 0
    assert (data["num_stages"], data["num_microbatches"], data["num_devices"]) == (2, 2, 4)
    assert data["step_time_s"] > 0
    assert data["requested"] == {"stages": 2, "microbatches": 2}
    assert all("because splitting it costs more" in note for note in data["notes"])


@pytest.mark.slow
def test_more_stages_than_layers_run_with_fewer_and_say_so(tmp_path: Path) -> None:
    (file := tmp_path / "sine.mlir").write_text(
        "func.func public @main(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {\n"
        "  %y = stablehlo.sine %x : tensor<8x4xf32>\n  return %y : tensor<8x4xf32>\n}"
    )
    result = shardc("run", file, "--devices", 2, "--stages", 2, "--check", "--format", "json")
    assert result.exit_code == 0, result.stderr
    data = json.loads(result.stdout)
    assert (data["requested"]["stages"], data["num_stages"]) == (2, 1)
    assert any(note.startswith("1 stage instead of 2: ") for note in data["notes"])


@pytest.mark.slow
def test_a_plan_from_a_file_and_inputs_from_a_file(tmp_path: Path) -> None:
    file, plan = write_mlp(tmp_path), tmp_path / "plan.json"
    options = ["--stages", 1, "--microbatches", 4, "--mesh", 4, "-o", plan]
    assert shardc("plan", file, "--cluster", "cpu8", *options).exit_code == 0
    shapes = [(m,) if bias else (n, m) for n, m in _WIDTHS for bias in (True, False)]
    random = np.random.default_rng(0)
    arrays = [random.normal(0, 0.1, s).astype(np.float32) for s in (*shapes, (16, 32), (16, 8))]
    inputs = tmp_path / "x.npz"
    np.savez(inputs, *arrays)
    result = shardc("run", file, "--devices", 4, "--plan", plan, "--inputs", inputs, "--check")
    assert result.exit_code == 0, result.stderr
    assert "1 stage, 4 microbatches" in result.stdout
    assert "11 outputs compared, 0 differ" in result.stdout

    arrays[0] = np.full_like(arrays[0], np.nan)
    np.savez(inputs, *arrays)
    base = ["run", file, "--devices", 4, "--plan", plan, "--inputs", inputs]
    base += ["--check", "--steps", 1]
    result = shardc(*base)
    assert result.exit_code == 1
    assert "not finite" in result.stderr
    assert shardc(*base, "--allow-nonfinite").exit_code == 0
    result = shardc("run", file, "--devices", 2, "--plan", plan)
    assert result.exit_code == 2
    assert "error[SHARDC-101]" in result.stderr
    result = shardc("run", file, "--devices", 4, "--plan", plan, "--stages", 2)
    assert result.exit_code == 2
    assert "error[SHARDC-183]" in result.stderr


_WIDTHS = [(32, 64), (64, 64), (64, 64), (64, 64), (64, 8)]


@pytest.mark.slow
def test_a_wrong_program_is_exit_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def swapping(*arguments: Any, **options: Any) -> Any:
        executable = lower(*arguments, **options)
        results = list(executable.results)
        alike = [i for i, each in enumerate(results) if each.shape == (64, 64)]
        i, j = next((i, j) for i in alike for j in alike if i < j and same_stage(results, i, j))
        results[i], results[j] = results[j], results[i]
        return msgspec.structs.replace(executable, results=tuple(results))

    def same_stage(results: list[Any], i: int, j: int) -> bool:
        return bool(results[i].stage == results[j].stage)

    lower = run.compiler.lower
    monkeypatch.setattr(run.compiler, "lower", swapping)
    result = shardc("run", write_mlp(tmp_path), *SMALL, "--check", "--format", "json")
    assert result.exit_code == 1
    data = json.loads(result.stdout)
    assert data["passed"] is False
    assert data["failures"]


@pytest.mark.slow
def test_a_plan_for_another_program_is_refused(tmp_path: Path) -> None:
    file, plan = write_mlp(tmp_path), tmp_path / "plan.json"
    other = tmp_path / "other.mlir"
    other.write_text(jax.jit(lambda x: x * 2 + 1).lower(np.ones(8, np.float32)).as_text())
    shardc("plan", file, "--cluster", "cpu8", "--stages", 1, "--microbatches", 1, "-o", plan)
    result = shardc("run", other, "--devices", 8, "--plan", plan)
    assert result.exit_code == 2
    assert "error[SHARDC-200]" in result.stderr


@pytest.mark.slow
def test_a_plan_with_edited_lanes_is_refused(tmp_path: Path) -> None:
    path, plan = write_mlp(tmp_path), tmp_path / "plan.json"
    shape = ("--stages", "2", "--microbatches", "2", "--schedule", "gpipe")
    done = shardc("plan", path, "--cluster", "cpu8", *shape, "-o", plan)
    assert done.exit_code == 0, done.output
    edited = json.loads(plan.read_text())
    edited["lanes"] = [["0F0"], ["1F0"]]
    plan.write_text(json.dumps(edited))
    found = shardc("run", path, "--devices", "8", "--plan", plan)
    assert found.exit_code == 2
    assert "error[SHARDC-243]: the schedule does not contain" in found.output


def test_too_few_gpus() -> None:
    result = shardc("run", "none.mlir", "--devices", 4096, "--platform", "gpu")
    assert result.exit_code == 2
    assert "error[SHARDC-101]" in result.stderr


@pytest.mark.slow
def test_the_gpt_of_the_examples_from_the_shell() -> None:
    arguments = "--devices 8 --stages 2 --microbatches 4 --schedule 1f1b --check --format json"
    code = "from shardc.cli import main; main()"
    command = [sys.executable, "-c", code, "run", "examples/gpt.mlir", *arguments.split()]
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    data = json.loads(result.stdout)
    assert data["passed"] is True
    assert data["outputs_compared"] == 105
    assert (data["num_stages"], data["num_microbatches"], data["num_devices"]) == (2, 4, 8)

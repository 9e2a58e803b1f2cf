"""`shardc compile`: one file per stage, the schedule, the plan, and every form on the way."""

import json
from pathlib import Path

import pytest

from shardc.ir.context import parse
from shardc.ir.walk import functions, symbol
from shardc.plan.decisions import Plan
from tests.py.cli.programs import shardc, write_mlp


@pytest.mark.slow
def test_files_of_a_plan(tmp_path: Path) -> None:
    file, plan, out, dump = (tmp_path / name for name in ("mlp.mlir", "p.json", "out", "dump"))
    write_mlp(tmp_path)
    options = ["--stages", 2, "--microbatches", 2, "--schedule", "1f1b", "-o", plan]
    assert shardc("plan", file, "--cluster", "cpu8", *options).exit_code == 0
    result = shardc(
        "compile", file, "--plan", plan, "-o", out, "--dump-dir", dump, "--format", "json"
    )
    assert result.exit_code == 0, result.stderr
    names = ["plan.json", "schedule.json", "stage0.mlir", "stage1.mlir"]
    assert sorted(path.name for path in out.iterdir()) == names
    data = json.loads(result.stdout)
    assert sorted(data["files"]) == sorted(str(out / name) for name in names)
    assert Plan.load(out / "plan.json") == Plan.load(plan)

    schedule = json.loads((out / "schedule.json").read_text())
    assert schedule["schedule"] == "1f1b"
    assert schedule["actions"][1][:4] == ["1F0", "1B0", "1F1", "1B1"]
    for stage in range(2):
        module = parse((out / f"stage{stage}.mlir").read_text())
        programs = [p["name"] for p in schedule["programs"] if p["stage"] == stage]
        assert [symbol(function) for function in functions(module.operation)] == programs

    dumps = sorted(path.name for path in dump.iterdir())
    assert dumps[0] == "00-import.mlir"
    assert any("split-microbatches" in name for name in dumps)
    assert any("localize" in name for name in dumps)
    for path in dump.iterdir():
        parse(path.read_text())

    for plan_file, folder, code in (
        (plan, file / "below", "SHARDC-180"),
        (file, out, "SHARDC-200"),
    ):
        result = shardc("compile", file, "--plan", plan_file, "-o", folder)
        assert result.exit_code == 2
        assert f"error[{code}]" in result.stderr

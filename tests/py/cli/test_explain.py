"""`shardc explain` and its kin: what a plan file alone can tell."""

import json
from pathlib import Path

from tests.py.cli.programs import shardc
from tests.py.report.test_reading import planned


def plan_file(folder: Path, wish: str = "megatron") -> Path:
    path = folder / f"{wish}.json"
    planned(wish).save(path)
    return path


def test_a_plan_file_is_explained_in_words_and_as_json(tmp_path: Path) -> None:
    path = plan_file(tmp_path)
    text = shardc("explain", path, "--sources")
    assert text.exit_code == 0, text.output
    assert text.output.startswith("plan: d (4): Megatron tensor parallel 100%\n")
    assert "predicted:" in text.output
    assert "\nfit: " in text.output and "\nrate of device test, " in text.output
    data = json.loads(shardc("explain", path, "--format", "json").stdout)
    assert data["axes"][0]["words"] == "Megatron tensor parallel 100%"
    assert data["sources"].keys() >= {"axes", "fit", "judged"}


def test_a_pattern_is_explained_from_the_file_alone(tmp_path: Path) -> None:
    path = plan_file(tmp_path)
    found = shardc("explain", path, "momentum.*.down", "--format", "json")
    lines = json.loads(found.stdout)["explained"]
    assert len(lines) == 3
    assert "optimizer state, 128x64 float32 [d, -]" in lines[0]
    nothing = shardc("explain", path, "no.such.thing")
    assert nothing.exit_code == 2
    assert "SHARDC-180" in nothing.output

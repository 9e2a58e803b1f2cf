"""What plans predict is what XLA compiles: collectives to the byte, memory about."""

import json
from pathlib import Path

import pytest

from benchmarks.predicted import MESHES, compare
from tests.py.programs import PROGRAMS

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results" / "2026-11-22-predicted.json"


@pytest.mark.parametrize(
    ("program", "mesh"),
    [
        ("mlp", "2x4"),
        pytest.param("conv", "2x2x2", marks=pytest.mark.slow),
        pytest.param("mlp_batch_norm", "2 stages of 2x2", marks=pytest.mark.slow),
    ],
)
def test_a_plan_predicts_its_programs(program: str, mesh: str) -> None:
    for row in compare(program, mesh):
        assert row["planned_bytes"] > 0
        assert row["differ"] == []
        assert 0.75 <= row["peak_ratio"] <= 1.33


def test_all_programs_were_compared_and_agree() -> None:
    found = json.loads(RESULTS.read_text())
    rows = found["rows"]
    assert {(row["program"], row["mesh"]) for row in rows} >= {
        (program, mesh) for program in PROGRAMS for mesh in MESHES
    }
    assert all(row["differ"] == [] for row in rows)
    errors = [row["peak_ratio"] - 1 for row in rows]
    assert sum(map(abs, errors)) / len(errors) <= 0.15
    assert min(errors) >= -0.25

"""The contest's script: its reader and its evaluator, which shares no code with the solver."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import iopddl
from shardc.solver.problem.problem import evaluate
from tests.py.solver.random_problems import training_chain

ROOT = Path(__file__).parents[3]


@pytest.fixture
def instance(tmp_path: Path) -> Path:
    problem = training_chain(5, 0, 0.4)

    def integers(costs: np.ndarray) -> list[int]:
        return [int(c) for c in (costs * 1e6).ravel()]

    tables = [integers(table) for table in problem.edge_costs]
    tables[0][0] = iopddl.FORBIDDEN
    raw = {
        "problem": {
            "name": "chain",
            "nodes": {
                "intervals": [list(span) for span in problem.intervals],
                "costs": [integers(costs) for costs in problem.costs],
                "usages": [usage.tolist() for usage in problem.usages],
            },
            "edges": {"nodes": [list(edge) for edge in problem.edges], "costs": tables},
            "usage_limit": problem.usage_limit,
        }
    }
    path = tmp_path / "chain.json.gz"
    path.write_bytes(gzip.compress(json.dumps(raw).encode()))
    return path


def test_both_evaluators_agree(instance: Path) -> None:
    raw = iopddl.read(instance)
    problem = iopddl.to_problem(raw)
    rng = np.random.default_rng(0)
    choices: list[Any] = [rng.integers(0, 6, problem.num_nodes).tolist() for _ in range(50)]
    choices += [[0] * problem.num_nodes, [5] * problem.num_nodes]
    allowed = 0
    for choice in choices:
        cost, fits = iopddl.score(raw, choice)
        known = evaluate(problem, choice)
        assert fits == known.feasible
        allowed += fits
        if fits:
            assert cost == known.cost
    assert 0 < allowed < len(choices)


def test_an_instance_is_solved_and_scored(instance: Path) -> None:
    found = iopddl.measure(instance, "2", seed=0, clock="none")
    assert found["feasible"] and found["lower_bound"] <= found["objective"]
    assert found["instance"] == "chain" and found["score"] is None


def test_several_processes_answer_together(instance: Path) -> None:
    command = [sys.executable, "-m", "tests.py.solver.several_processes", str(instance)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout == "together\n", done.stderr


def test_totals_above_53_bits_are_exact(instance: Path) -> None:
    """Forbidden is infinite inside the solver, so dear choices are never taken for forbidden."""
    small = iopddl.measure(instance, "2", seed=0, clock="none")
    raw = json.loads(gzip.decompress(instance.read_bytes()))
    scale = 5 * 10**11
    for costs in (*raw["problem"]["nodes"]["costs"], *raw["problem"]["edges"]["costs"]):
        costs[:] = [c if c == iopddl.FORBIDDEN else c * scale for c in costs]
    instance.write_bytes(json.dumps(raw).encode())
    large = iopddl.measure(instance, "2", seed=0, clock="none")
    assert large["feasible"] and large["objective"] % scale == 0
    assert large["objective"] == pytest.approx(small["objective"] * scale, rel=5e-3)
    everything = [len(costs) - 1 for costs in raw["problem"]["nodes"]["costs"]]
    assert iopddl.score(raw["problem"], everything)[0] > 2**61


def test_what_cannot_be_met_is_said(instance: Path) -> None:
    raw = json.loads(gzip.decompress(instance.read_bytes()))
    raw["problem"]["usage_limit"] = 1
    instance.write_bytes(json.dumps(raw).encode())
    found = iopddl.measure(instance, "2", seed=0, clock="none")
    assert not found["feasible"] and "SHARDC-220" in found["problem"]

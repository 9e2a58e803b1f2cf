"""The evaluator, by hand."""

import math

import numpy as np
import pytest

from shardc.solver.problem.problem import Problem, Solution, evaluate

TABLE = np.array([[1.0, 2.0], [4.0, 8.0]])


def two_nodes(**changes: object) -> Problem:
    data: dict[str, object] = {
        "costs": [np.array([0.5, 0.25]), np.array([0.0, 16.0])],
        "edges": [(0, 1)],
        "edge_costs": [TABLE],
    }
    return Problem(**{**data, **changes})  # type: ignore[arg-type]  # names checked by dataclass


def test_costs_of_nodes_and_edges_add_up() -> None:
    assert evaluate(two_nodes(), [1, 1]) == (0.25 + 16.0 + 8.0, 0, True)


def test_parallel_edges_and_self_pairs_count_each_time() -> None:
    problem = two_nodes(edges=[(0, 1), (0, 1), (1, 0), (0, 0)], edge_costs=[TABLE] * 4)
    assert evaluate(problem, [1, 0]).cost == 0.25 + 0.0 + 4.0 + 4.0 + 2.0 + 8.0


def test_forbidden_is_infeasible() -> None:
    problem = two_nodes(edge_costs=[np.array([[np.inf, 1.0], [1.0, 1.0]])])
    assert evaluate(problem, [0, 0]) == (math.inf, 0, False)
    assert evaluate(problem, [0, 1]).feasible


def test_peak_counts_half_open_intervals() -> None:
    usages = [np.array([10, 20]), np.array([5, 7])]
    touching = two_nodes(usages=usages, intervals=[(0, 2), (2, 4)], usage_limit=20)
    assert evaluate(touching, [1, 1]) == (16.25 + 8.0, 20, True)
    overlapping = two_nodes(usages=usages, intervals=[(0, 3), (2, 4)], usage_limit=26)
    assert evaluate(overlapping, [1, 1]) == (16.25 + 8.0, 27, False)
    assert evaluate(overlapping, [1, 0]).feasible
    never = two_nodes(usages=usages, intervals=[(0, 0), (5, 3)], usage_limit=0)
    assert evaluate(never, [1, 1]).peak_usage == 0


def test_shapes_are_checked() -> None:
    with pytest.raises(AssertionError, match="edge 0-1"):
        two_nodes(edge_costs=[np.zeros((2, 3))]).check()


def test_gap_is_relative() -> None:
    assert Solution((), 2.0, 1.5, True, False).gap == 0.25
    assert Solution((), 0.0, 0.0, True, True).gap == 0.0

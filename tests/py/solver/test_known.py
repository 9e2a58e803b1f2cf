"""Equal problems are searched once."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shardc.solver import known
from shardc.solver.problem.problem import Problem, Solution
from shardc.solver.solve import solve


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[Solution]:
    """The answers that were searched for."""
    found: list[Solution] = []

    def counted(problem: Problem, **asked: Any) -> Solution:
        found.append(solve(problem, **asked))
        return found[-1]

    monkeypatch.setattr(known, "solve", counted)
    monkeypatch.setattr(known, "_known", type(known._known)())
    return found


def problem(last: float = 3.0) -> Problem:
    """Two nodes of two strategies and an edge; made anew, so that no array is shared."""
    costs = [np.array([1.0, 2.0]), np.array([2.0, last])]
    return Problem(costs=costs, edges=[(0, 1)], edge_costs=[np.array([[0.0, 5.0], [1.0, 0.0]])])


def test_an_equal_problem_is_searched_once(searched: list[Solution]) -> None:
    first = known.solve_once(problem(), time_limit_s=60.0, seed=0)
    assert known.solve_once(problem(), time_limit_s=5.0, seed=0) is first
    assert len(searched) == 1


def test_what_changes_the_answer_is_searched_again(searched: list[Solution]) -> None:
    known.solve_once(problem(), time_limit_s=60.0, seed=0)
    known.solve_once(problem(), time_limit_s=60.0, seed=1)
    known.solve_once(problem(last=0.5), time_limit_s=60.0, seed=0)
    edges = replace(problem(), edges=[(0, 0)])
    known.solve_once(edges, time_limit_s=60.0, seed=0)
    limited = replace(
        problem(), usages=[np.array([1, 0])] * 2, intervals=[(0, 1)] * 2, usage_limit=1
    )
    known.solve_once(limited, time_limit_s=60.0, seed=0)
    assert len(searched) == 5


def test_an_answer_that_was_cut_short_is_not_kept(
    searched: list[Solution], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = known.solve
    monkeypatch.setattr(known, "solve", lambda p, **a: replace(whole(p, **a), cut_short=True))
    known.solve_once(problem(), time_limit_s=60.0, seed=0)
    known.solve_once(problem(), time_limit_s=60.0, seed=0)
    assert len(searched) == 2

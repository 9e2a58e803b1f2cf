"""Which problems share a remembered answer."""

from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest

from shardc.solver import solve_once
from shardc.solver.problem.problem import Problem
from shardc.solver.solve import solve


@pytest.mark.parametrize(("most", "solved"), [(16, 1), (15, 2)])
def test_what_is_held_matters_only_if_some_choice_exceeds_the_limit(
    monkeypatch: pytest.MonkeyPatch, most: int, solved: int
) -> None:
    asked: list[Problem] = []
    monkeypatch.setattr(solve_once, "_known", OrderedDict())
    monkeypatch.setattr(solve_once, "solve", lambda p, **o: asked.append(p) or solve(p, **o))
    cost, usage = np.array([1.0, 2.0]), np.array([8, 1])
    problem = Problem([cost], usages=[usage], intervals=[(0, 1)], usage_limit=most)
    for more in (1, 2):
        found = solve_once.solve_once(replace(problem, usages=[usage * more]), time_limit_s=9.0)
        assert found.choice == ((0,) if 8 * more <= most else (1,))
    assert len(asked) == solved

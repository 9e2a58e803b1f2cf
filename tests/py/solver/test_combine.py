"""Several choices of one problem give a better one, the best of all that mix them."""

import itertools
import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.solver.combine import combine
from shardc.solver.problem.problem import Problem, Solution, evaluate
from shardc.solver.solve import solve
from tests.py.solver.random_problems import problems, training_chain


def answer(problem: Problem, choice: tuple[int, ...]) -> Solution:
    """A choice as an answer about which nothing is proven."""
    score = evaluate(problem, choice)
    return Solution(choice, score.cost, -math.inf, score.feasible, optimal=False)


@given(problems(limited=True), st.randoms(use_true_random=False))
def test_it_is_the_best_of_all_mixtures(problem: Problem, random: Random) -> None:
    sizes = [range(len(costs)) for costs in problem.costs]
    allowed = [c for c in itertools.product(*sizes) if evaluate(problem, c).feasible]
    if not allowed:
        return
    picked = [random.choice(allowed) for _ in range(3)]
    found = [answer(problem, choice) for choice in picked]
    best = combine(problem, found)
    mixtures = itertools.product(*({choice[v] for choice in picked} for v in range(len(sizes))))
    scores = [evaluate(problem, mixture) for mixture in mixtures]
    assert best.objective == pytest.approx(min(s.cost for s in scores if s.feasible), abs=1e-9)
    score = evaluate(problem, best.choice)
    assert score.feasible and score.cost == best.objective
    assert best.lower_bound == -math.inf and not best.optimal


def test_the_bound_is_that_of_the_whole_problem() -> None:
    """What is proven about mixtures is not taken for a bound of everything."""
    problem = training_chain(6, 0, 0.4)
    optimum = solve(problem, effort_s=2.0)
    assert optimum.optimal
    rng = np.random.default_rng(3)
    worse = [answer(problem, tuple(rng.integers(0, 6, problem.num_nodes))) for _ in range(200)]
    allowed = [each for each in worse if each.feasible]
    assert len(allowed) > 2
    mixed = combine(problem, allowed[:2])
    assert optimum.objective < mixed.objective <= min(each.objective for each in allowed[:2])
    assert mixed.lower_bound <= optimum.objective and not mixed.optimal
    known = combine(problem, [*allowed[:2], optimum])
    assert known.objective == pytest.approx(optimum.objective) and known.optimal


def test_one_answer_stays_as_it_is() -> None:
    problem = training_chain(5, 1, 0.4)
    found = solve(problem, effort_s=1.0)
    assert combine(problem, [found]).choice == found.choice

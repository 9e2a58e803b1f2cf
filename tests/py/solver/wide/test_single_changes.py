"""`change_single_nodes`: after it no change of one node alone is for the better."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.errors import InfeasibleError
from shardc.solver.exact.running_solve import Search
from shardc.solver.problem.memory_times import Live
from shardc.solver.problem.problem import Problem, evaluate
from shardc.solver.solve import solve
from shardc.solver.wide.single_changes import change_single_nodes
from tests.py.solver.random_problems import problems, training_chain


def better_single_change(problem: Problem, choice: np.ndarray) -> tuple[int, int] | None:
    """A node and a strategy that is cheaper and fits, by the definition."""
    cost = evaluate(problem, choice).cost
    for v in range(problem.num_nodes):
        for new in range(len(problem.costs[v])):
            other = choice.copy()
            other[v] = new
            score = evaluate(problem, other)
            if score.feasible and score.cost < cost - 1e-6:
                return v, new
    return None


@pytest.mark.slow
@given(problems(limited=True), st.integers(0, 99))
def test_no_single_change_is_left(problem: Problem, seed: int) -> None:
    rng = np.random.default_rng(seed)
    starts = [np.array([rng.integers(len(c)) for c in problem.costs]) for _ in range(9)]
    for start in starts:
        before = evaluate(problem, start)
        if before.feasible:
            search = Search(problem, 1.0, 1.0, None, 0.0, 0.0, 0.0)
            after = change_single_nodes(
                problem, Live.of(problem), search.whole, start, lambda: None
            )
            assert evaluate(problem, after).feasible
            assert evaluate(problem, after).cost <= before.cost + 1e-9
            assert better_single_change(problem, after) is None


def test_a_search_that_ends_within_a_gap_leaves_none() -> None:
    found = 0
    for seed in range(6):
        problem = training_chain(8, seed, 0.3)
        try:
            solution = solve(problem, gap=0.3, effort_s=0.05)
        except InfeasibleError:
            continue
        assert better_single_change(problem, np.array(solution.choice)) is None
        found += not solution.optimal
    assert found >= 2

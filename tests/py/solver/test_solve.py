"""`solve` against brute force, and its promises."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.errors import InfeasibleError
from shardc.solver.problem.problem import Problem, Progress, Solution, evaluate
from shardc.solver.solve import LimitError, solve
from tests.py.solver.random_problems import brute_force, problems, training_chain


def check_against_brute_force(problem: Problem) -> None:
    best = brute_force(problem)
    if best.cost is None:
        with pytest.raises(InfeasibleError) as caught:
            solve(problem)
        if isinstance(caught.value, LimitError):
            assert best.least_peak is not None and problem.usage_limit is not None
            assert caught.value.least_bytes <= best.least_peak <= caught.value.peak_bytes
        else:
            assert best.least_peak is None
        return
    solution = solve(problem)
    score = evaluate(problem, solution.choice)
    assert score.feasible and solution.feasible
    assert solution.objective == score.cost == pytest.approx(best.cost, abs=1e-6)
    assert solution.lower_bound <= best.cost + 1e-6
    assert solution.optimal


@pytest.mark.slow
@given(problems(limited=False))
def test_solver_equals_brute_force_without_limit(problem: Problem) -> None:
    check_against_brute_force(problem)


@pytest.mark.slow
@given(problems(limited=True))
def test_solver_equals_brute_force_with_limit(problem: Problem) -> None:
    check_against_brute_force(problem)


@pytest.mark.slow
@given(problems(limited=True, forbidden=False, most_nodes=5), st.floats(0.0, 0.5))
def test_gap_is_kept(problem: Problem, gap: float) -> None:
    best = brute_force(problem).cost
    if best is None:
        return
    solution = solve(problem, gap=gap)
    assert solution.lower_bound <= best + 1e-6 <= solution.objective + 2e-6
    assert solution.gap <= max(gap, 1e-9) * (1 + 1e-6)


@pytest.mark.parametrize("share", [None, 0.3, 0.4])
def test_training_chain_is_proven_optimal(share: float | None) -> None:
    problem = training_chain(10, 0, share)
    solution = solve(problem)
    assert solution.optimal and evaluate(problem, solution.choice).feasible


@pytest.mark.slow
def test_tighter_limits_never_cost_less() -> None:
    costs = [solve(training_chain(8, 1, share)).objective for share in (None, 0.4, 0.3, 0.25)]
    assert costs == sorted(costs)
    assert costs[-1] > costs[0]


@pytest.mark.slow
def test_order_of_nodes_and_scale_of_costs_do_not_matter() -> None:
    problem = training_chain(8, 2, 0.3)
    to = np.random.default_rng(0).permutation(problem.num_nodes)
    back = np.argsort(to)
    moved = Problem(
        [problem.costs[v] * 3 for v in back],
        [(int(to[u]), int(to[v])) for u, v in problem.edges],
        [table * 3 for table in problem.edge_costs],
        [problem.usages[v] for v in back],
        [problem.intervals[v] for v in back],
        problem.usage_limit,
    )
    assert solve(moved).objective == pytest.approx(3 * solve(problem).objective)


def test_same_seed_gives_the_same_answer() -> None:
    problem = training_chain(8, 3, 0.3)
    first, second = solve(problem, seed=7), solve(problem, seed=7)
    assert (first.choice, first.lower_bound) == (second.choice, second.lower_bound)


def test_the_objective_decides() -> None:
    """Without costs any choice is optimal; with them the cheap one must be found."""
    problem = training_chain(8, 4, None)
    blind = Problem(
        [np.zeros_like(c) for c in problem.costs],
        problem.edges,
        [np.zeros_like(t) for t in problem.edge_costs],
    )
    without = evaluate(problem, solve(blind).choice).cost
    assert solve(problem).objective < 0.95 * without


def test_hint_is_a_start() -> None:
    problem = training_chain(6, 5, 0.3)
    best = solve(problem)
    seen: list[Progress] = []
    again = solve(problem, hint=best.choice, progress=seen.append)
    assert again.objective == best.objective
    assert all(p.objective in (None, pytest.approx(best.objective)) for p in seen)


def interrupted(problem: Problem, when_found: bool) -> Solution:
    def stop(progress: Progress) -> None:
        if not when_found or progress.objective is not None:
            raise KeyboardInterrupt

    return solve(problem, progress=stop)


def test_interrupt_gives_the_best_so_far_with_its_bound() -> None:
    problem = training_chain(6, 6, 0.3)
    solution = interrupted(problem, when_found=True)
    assert evaluate(problem, solution.choice).feasible
    assert solution.lower_bound <= solve(problem).objective <= solution.objective
    assert "interrupted" in solution.log[-1]


def test_interrupt_before_the_first_choice_is_passed_on() -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted(training_chain(4, 6, 0.3), when_found=False)


def test_time_limit_gives_the_best_so_far() -> None:
    problem = training_chain(6, 7, 0.3)
    best = solve(problem)
    hurried = solve(problem, time_limit_s=0.0, hint=best.choice)
    assert hurried.objective == best.objective and hurried.feasible
    assert "time limit" in hurried.log[-1]


def test_no_choice_in_time_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardc.solver.exact.running_solve.FIRST_CHOICE_S", -1.0)
    with pytest.raises(InfeasibleError, match="SHARDC-222"):
        solve(training_chain(6, 8, 0.3), time_limit_s=0.0)


def test_a_limit_that_nothing_meets_names_the_missing_bytes() -> None:
    usages = [np.array([60, 40]), np.array([70, 30])]
    problem = Problem([np.zeros(2)] * 2, (), (), usages, [(0, 2), (1, 3)], 50)
    with pytest.raises(LimitError, match=r"SHARDC-220.*70 bytes, 20 too many") as caught:
        solve(problem)
    assert caught.value.peak_bytes == caught.value.least_bytes == 70


def test_constraints_that_contradict_each_other_are_an_error() -> None:
    differ = np.where(np.eye(2, dtype=bool), np.inf, 0.0)
    triangle = Problem([np.zeros(2)] * 3, [(0, 1), (1, 2), (2, 0)], [differ] * 3)
    with pytest.raises(InfeasibleError, match="SHARDC-221"):
        solve(triangle)


def test_empty_problem() -> None:
    solution = solve(Problem([]))
    assert (solution.choice, solution.objective, solution.optimal) == ((), 0.0, True)


def test_importing_the_solver_loads_neither_ortools_nor_jax() -> None:
    code = (
        "import sys, shardc.solver;"
        "assert not {'ortools', 'jax', 'jaxlib'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nothing_is_looked_for_that_costs_more_than_is_wanted() -> None:
    problem = training_chain(8, 1, 0.4)
    best = solve(problem, effort_s=2.0)
    given_up = solve(problem, effort_s=2.0, cutoff=0.5 * best.lower_bound)
    assert evaluate(problem, given_up.choice).feasible
    assert 0.5 * best.lower_bound < given_up.lower_bound <= best.objective + 1e-9
    wanted = solve(problem, effort_s=2.0, cutoff=2.0 * best.objective)
    assert (wanted.objective, wanted.lower_bound) == (best.objective, best.lower_bound)

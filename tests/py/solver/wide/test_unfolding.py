"""Equal layers as one, and apart again."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardc.solver.problem.problem import Problem, evaluate
from shardc.solver.problem.repeats import equal_layers
from shardc.solver.solve import solve
from tests.py.solver.random_problems import brute_force, problems, unrolled


@pytest.fixture(autouse=True)
def every_problem_is_worth_folding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardc.solver.wide.unfolding.LEAST_NODES", 0)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.integers(0, 99), st.sampled_from([None, 0.4, 0.6, 0.8]))
def test_bound_and_choices_enclose_the_optimum(seed: int, share: float | None) -> None:
    problem = unrolled(2, seed, share)
    best = brute_force(problem).cost
    if best is None:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shardc.solver.problem.repeats.ROUNDS", 0)  # the ends count as equal, too
        assert len(set(equal_layers(problem).tolist())) < problem.num_nodes
        tied = solve(problem, effort_s=0.2, equal_layers="tied")
        relaxed = solve(problem, effort_s=0.2, equal_layers="relaxed")
    for solution in (tied, relaxed):
        score = evaluate(problem, solution.choice)
        assert score.feasible and score.cost == solution.objective
        assert solution.lower_bound <= best + 1e-9 <= solution.objective + 2e-9
    assert relaxed.objective <= tied.objective + 1e-12


@pytest.mark.parametrize("share", [None, 0.5])
def test_tied_layers_agree_and_the_cost_of_that_is_proven(share: float | None) -> None:
    problem = unrolled(12, 3, share, size=5)
    leaders = equal_layers(problem)
    solution = solve(problem, effort_s=1.0, equal_layers="tied")
    choice = np.array(solution.choice)
    assert (choice == choice[leaders]).all()
    assert solution.num_folded == problem.num_nodes - len(set(leaders.tolist())) > 24
    assert solution.folded_objective == solution.objective
    free = solve(problem, effort_s=1.0, equal_layers="free")
    assert free.num_folded == 0 and free.folded_objective is None
    assert solution.lower_bound <= free.objective + 1e-9
    assert free.objective <= solution.objective + 1e-9


def test_layers_part_where_that_is_cheaper() -> None:
    # Six are live at once, of which three may take the cheap strategy.
    cost, usage = np.array([0.0, 1.0]), np.array([10, 1])
    layers = Problem([cost] * 8, [], [], [usage] * 8, [(0, 4)] * 2 + [(5, 9)] * 6, usage_limit=33)
    tied, relaxed = (solve(layers, equal_layers=how) for how in ("tied", "relaxed"))
    assert relaxed.objective == relaxed.lower_bound == 3.0 < tied.objective
    assert tied.folded_objective == relaxed.folded_objective == tied.objective
    assert relaxed.lower_bound >= tied.lower_bound


def test_layers_part_where_no_choice_of_all_fits() -> None:
    cost = np.array([1.0, 2.0])
    first, second = np.array([[0.0], [np.inf]]), np.array([[np.inf], [0.0]])
    chain = np.zeros((2, 2))
    edges = [(v, v + 1) for v in range(9)]
    problem = Problem(
        [cost] * 10 + [np.zeros(1)] * 2,
        [*edges, (0, 10), (9, 11)],
        [*[chain] * 9, first, second],
    )
    leaders = np.array([0] * 10 + [10, 11])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shardc.solver.wide.unfolding.equal_layers", lambda problem: leaders)
        solution = solve(problem, equal_layers="tied")
    assert solution.objective == 11.0 and solution.folded_objective is None
    assert any("forbidden" in line for line in solution.log)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(problems(limited=True, most_nodes=5))
def test_problems_without_layers_are_solved_as_ever(problem: Problem) -> None:
    best = brute_force(problem).cost
    if best is not None:
        solution = solve(problem, effort_s=0.1, equal_layers="relaxed")
        assert evaluate(problem, solution.choice).feasible
        assert solution.lower_bound <= best + 1e-6 <= solution.objective + 2e-6


def test_small_problems_are_not_folded_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = unrolled(12, 3, None)
    monkeypatch.setattr("shardc.solver.wide.unfolding.LEAST_NODES", problem.num_nodes + 1)
    assert solve(problem, equal_layers="relaxed").num_folded == 0
    assert solve(problem, equal_layers="tied").num_folded > 0

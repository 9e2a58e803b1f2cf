"""Wide problems, made of narrow ones by lowering what counts as wide."""

import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from shardc.errors import InfeasibleError
from shardc.solver.exact.running_solve import Search
from shardc.solver.problem.contraction import contract
from shardc.solver.problem.problem import Problem, Progress, evaluate
from shardc.solver.solve import solve
from shardc.solver.wide.rounds import is_wide
from tests.py.solver.random_problems import brute_force, problems, training_chain


@pytest.fixture(autouse=True)
def everything_is_wide() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shardc.solver.wide.rounds.NODES_TO_TABULATE", 0)
        patch.setattr("shardc.solver.wide.rounds.CELLS_TO_TABULATE", 1)
        yield


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(problems(limited=True, most_nodes=5))
def test_bound_and_choice_enclose_the_optimum(problem: Problem) -> None:
    best = brute_force(problem).cost
    if best is None:
        with pytest.raises(InfeasibleError):
            solve(problem, effort_s=0.02)
        return
    solution = solve(problem, effort_s=0.05)
    score = evaluate(problem, solution.choice)
    assert score.feasible and score.cost == solution.objective
    assert solution.lower_bound <= best + 1e-6 <= solution.objective + 2e-6


def test_order_of_nodes_and_scale_of_costs_hardly_matter() -> None:
    problem = training_chain(8, 2, 0.3)
    to = np.random.default_rng(0).permutation(problem.num_nodes)
    back = np.argsort(to)
    scale = 3 * 2.0**40  # sums far above 2**53 units of the smallest cost
    moved = Problem(
        [problem.costs[v] * scale for v in back],
        [(int(to[u]), int(to[v])) for u, v in problem.edges],
        [table * scale for table in problem.edge_costs],
        [problem.usages[v] for v in back],
        [problem.intervals[v] for v in back],
        problem.usage_limit,
    )
    one, other = solve(problem, effort_s=0.5), solve(moved, effort_s=0.5)
    assert other.objective / scale == pytest.approx(one.objective, rel=5e-3)


@pytest.mark.parametrize("stop", ["interrupt", "clock"])
def test_whatever_stops_it_leaves_the_best_so_far(stop: str) -> None:
    problem = training_chain(8, 5, 0.4)

    def interrupt(progress: Progress) -> None:
        if progress.objective is not None:
            raise KeyboardInterrupt

    if stop == "interrupt":
        solution = solve(problem, progress=interrupt)
    else:
        solution = solve(problem, time_limit_s=0.0, effort_s=5.0)
    assert evaluate(problem, solution.choice).feasible
    assert ("interrupted" if stop == "interrupt" else "time limit") in solution.log[-1]


def test_same_seed_gives_the_same_answer() -> None:
    problem = training_chain(8, 3, 0.3)
    first, second = (solve(problem, seed=7, effort_s=0.2) for _ in range(2))
    assert (first.choice, first.lower_bound) == (second.choice, second.lower_bound)


def search_of(problem: Problem, work: float) -> Search:
    search = Search(problem, 1e9, 1.0, None, time.monotonic(), work, 0.0)
    search.enter(contract(problem))
    return search


def test_width_is_that_of_the_largest_table(monkeypatch: pytest.MonkeyPatch) -> None:
    search = search_of(training_chain(8, 4, 0.3), 1e10)
    assert is_wide(search)
    monkeypatch.setattr("shardc.solver.wide.rounds.CELLS_TO_TABULATE", 1 << 60)
    assert not is_wide(search)
    monkeypatch.setattr("shardc.solver.wide.rounds.CELLS_TO_TABULATE", 1)
    monkeypatch.setattr("shardc.solver.wide.rounds.NODES_TO_TABULATE", len(search.reduced.sizes))
    assert not is_wide(search)


def test_with_little_work_fewer_nodes_are_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = training_chain(8, 4, 0.3)
    monkeypatch.setattr("shardc.solver.wide.rounds.CELLS_TO_TABULATE", 1)
    monkeypatch.setattr("shardc.solver.wide.rounds.NODES_TO_TABULATE", 1_000)
    monkeypatch.setattr("shardc.solver.wide.rounds.FEW_NODES_TO_TABULATE", 10)
    assert not is_wide(search_of(problem, 1e10))
    assert is_wide(search_of(problem, 1e8))


@pytest.mark.slow
def test_elimination_goes_on_where_a_first_round_of_descent_gets_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = training_chain(8, 2, 0.3)
    rounds = "shardc.solver.wide.rounds"
    monkeypatch.setattr(f"{rounds}.NODES_TO_TABULATE", 1_000)
    monkeypatch.setattr(f"{rounds}.FEW_NODES_TO_TABULATE", 10)
    monkeypatch.setattr(f"{rounds}.LOOKS_FOR_BOTH", 1)
    found = solve(problem, effort_s=5.0)
    phases = [line.split(":")[0] for line in found.log]
    assert phases.index("messages") < phases.index("bound")
    monkeypatch.setattr(f"{rounds}.FEW_NODES_TO_TABULATE", 1_000)
    tabulated = solve(problem, effort_s=5.0)
    assert found.objective == pytest.approx(tabulated.objective, rel=1e-9)
    assert tabulated.lower_bound == pytest.approx(tabulated.objective, rel=1e-9), "proven optimal"
    monkeypatch.setattr(f"{rounds}.FEW_NODES_TO_TABULATE", 10)
    monkeypatch.setattr(f"{rounds}.WORK_FOR_BOTH", 1e30)
    alone = solve(problem, effort_s=5.0)
    assert all(not line.startswith("bound") for line in alone.log)

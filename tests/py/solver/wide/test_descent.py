"""The phases of a descent keep their promises alone, and with no work at all."""

import random
import time

import numpy as np
import pytest

from shardc.solver.exact.running_solve import Search
from shardc.solver.problem.contraction import contract
from shardc.solver.problem.network import Network
from shardc.solver.problem.problem import Problem, evaluate
from shardc.solver.solve import solve
from shardc.solver.wide.descent import Descent
from tests.py.solver.random_problems import training_chain


def descent_on(problem: Problem) -> Descent:
    search = Search(problem, 1e9, 1.0, None, time.monotonic(), 1e9, 0.0)
    search.enter(contract(problem, search.live))
    network = Network(search.reduced)
    return Descent(network, search, np.zeros(len(search.reduced.times)), random.Random(0))


def test_all_phases_together_come_near_the_optimum() -> None:
    problem = training_chain(5, 0, 0.4)
    best = solve(problem)
    descent = descent_on(problem)
    descent.pass_messages(2e6, (0.3, 0.03))
    assert -np.inf < descent.bound <= best.objective + 1e-9
    descent.oscillate(1e6, (0.1, 0.01))
    descent.polish(4e6)
    descent.report()
    search = descent.search
    assert search.best is not None
    score = evaluate(problem, search.best)
    assert score.feasible and search.best_cost <= 1.02 * best.objective
    assert (descent.least_costs().min()) <= best.objective + 1e-9


def test_strategies_of_the_optimum_are_never_ruled_out() -> None:
    problem = training_chain(5, 1, 0.4)
    best = solve(problem)
    descent = descent_on(problem)
    descent.pass_messages(2e6, (0.3, 0.03))
    reduced = descent.search.reduced
    here = reduced.restrict(np.array(best.choice))
    assert evaluate(problem, reduced.expand(here)).cost <= best.objective + 1e-9
    least = descent.least_costs()[descent.network.first[:-1] + here]
    assert (least <= best.objective + 1e-9).all()


def test_without_any_message_prices_stay_finite() -> None:
    """Prices begin from the size of the costs, which must not come from a bound of -inf."""
    descent = descent_on(training_chain(5, 2, 0.3))
    descent.pass_messages(0.0, (0.3, 0.03))
    descent.oscillate(1e6, (0.5, 0.5))
    assert np.isfinite(descent.prices).all() and descent.prices.any()


def test_a_first_choice_is_reported_at_once() -> None:
    """The clock may stop the search at any look: it must know that something fits."""
    descent = descent_on(training_chain(4, 3, None))
    descent.look(np.zeros(len(descent.network.sizes), np.int64))
    assert descent.search.best is not None


def test_forbidden_pairs_of_a_choice_are_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardc.solver.wide.descent.MOST_BROKEN", 1.0)
    problem = training_chain(12, 0, 1.0)
    search = Search(problem, 1e9, 1.0, None, time.monotonic(), 1e9, 0.0)
    search.enter(contract(problem, search.live))
    reduced, rng = search.reduced, np.random.default_rng(0)
    choice = np.array([rng.integers(size) for size in reduced.sizes], np.int64)
    wide = [i for i, table in enumerate(reduced.tables) if min(table.shape) > 2]
    for i in rng.choice(wide, 3, replace=False):
        u, v = reduced.edges[i]
        reduced.tables[i][choice[u], choice[v]] = np.inf
    network = Network(reduced)
    descent = Descent(network, search, np.zeros(len(reduced.times)), random.Random(0))
    assert 2 <= len(network.forbidden(choice)) <= 6 and network.cost(choice) == np.inf
    mended = descent.mend(choice)
    assert network.forbidden(mended) == [] and network.cost(mended) < np.inf
    assert (mended == choice).any(), "what is far from them stays"

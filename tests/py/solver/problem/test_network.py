"""Flat arrays say the same as the problem they come from."""

import numpy as np
import pytest
from hypothesis import given

from shardc.solver.problem.contraction import contract
from shardc.solver.problem.network import Network
from shardc.solver.problem.problem import evaluate
from shardc.solver.problem.reduced import Reduced
from tests.py.solver.random_problems import graphs, training_chain


def random_choice(reduced: Reduced, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.array([rng.integers(size) for size in reduced.sizes], np.int64)


@given(graphs(most_nodes=8))
def test_cost_is_that_of_the_expanded_choice(reduced: Reduced) -> None:
    network = Network(reduced)
    choice = random_choice(reduced, 0)
    assert network.cost(choice) == pytest.approx(reduced.cost(choice))


def test_cost_and_prices_agree_with_the_evaluator_on_a_training_step() -> None:
    problem = training_chain(6, 0, 0.3)
    reduced = contract(problem)
    network = Network(reduced)
    choice = random_choice(reduced, 1)
    assert network.cost(choice) == pytest.approx(evaluate(problem, reduced.expand(choice)).cost)
    assert reduced.memory is not None
    prices = np.zeros(len(reduced.memory.base))
    prices[0] = 2.0
    used = reduced.memory.profile(choice)[0] - reduced.memory.base[0]
    dearer = network.priced(prices) - network.priced(None)
    assert dearer[network.first[:-1] + choice].sum() == pytest.approx(2.0 * used)


@pytest.mark.slow
@given(graphs(most_nodes=8))
def test_blocks_hold_every_edge_from_both_ends(reduced: Reduced) -> None:
    network = Network(reduced)
    assert sorted(network.order.tolist()) == list(range(len(reduced.sizes)))
    for (u, v), table in zip(reduced.edges, reduced.tables, strict=True):
        for a, b, cells in ((u, v, table), (v, u, table.T)):
            i = network.near[a].tolist().index(b)
            columns = network.columns[a]
            assert (network.blocks[a][:, columns[i] : columns[i + 1]] == cells).all()
            assert (i < network.earlier[a]) == (network.rank[b] < network.rank[a])

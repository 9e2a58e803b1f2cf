"""Every pass proves a bound on every choice; on trees it is the optimum."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.solver.problem.network import Network
from shardc.solver.problem.reduced import Reduced
from shardc.solver.wide.trws import Messages
from tests.py.solver.random_problems import graphs, random_graph


@given(graphs(), st.integers(1, 6))
def test_bounds_and_slacks_hold_for_every_choice(reduced: Reduced, passes: int) -> None:
    network = Network(reduced)
    messages = Messages(network)
    slacks = np.zeros(len(network.flat))
    for i in range(passes):
        slacks[:] = 0.0
        bound, choice = messages.run(network.flat, forward=i % 2 == 0, slacks=slacks)
        assert network.cost(choice) >= bound + reduced.constant - 1e-9
    for each in itertools.product(*map(range, reduced.sizes)):
        cost = network.cost(np.array(each, np.int64)) - reduced.constant
        least = bound + slacks[network.first[:-1] + np.array(each)]
        assert (least <= cost + 1e-9).all()


@given(st.integers(0, 99))
def test_a_chain_is_solved_by_one_pass_forth_and_back(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 5, 12).tolist()
    names = rng.permutation(12).tolist()
    chain = random_graph(sizes, tuple((min(e), max(e)) for e in itertools.pairwise(names)), rng)
    network = Network(chain)
    messages = Messages(network)
    messages.run(network.flat, forward=True)
    bound, choice = messages.run(network.flat, forward=False)
    assert network.cost(choice) == pytest.approx(bound + chain.constant)


def test_forbidden_pairs_leave_finite_bounds() -> None:
    """Contraction leaves each strategy a partner on every edge, but not every pair is allowed."""
    rng = np.random.default_rng(0)
    graph = random_graph([3, 3, 3], ((0, 1), (1, 2), (0, 2)), rng)
    for table in graph.tables:
        table[np.eye(3, dtype=bool)] = np.inf
    network = Network(graph)
    messages = Messages(network)
    for i in range(4):
        bound, _ = messages.run(network.flat, forward=i % 2 == 0)
        assert np.isfinite(bound)

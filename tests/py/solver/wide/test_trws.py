"""Every pass proves a bound on every choice; on trees it is the optimum."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.solver.problem.network import Network
from shardc.solver.problem.problem import Floats
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


def one_by_one(
    network: Network, costs: Floats, sent: dict[tuple[int, int], Floats], forward: bool
) -> tuple[float, list[int], Floats]:
    """A pass by definition: bound, choice and slacks; `sent` has the messages, (from, to)."""
    bound, choice, slacks = 0.0, [0] * len(network.sizes), np.zeros(len(network.flat))
    passed: set[int] = set()
    for v in network.order.tolist() if forward else network.order.tolist()[::-1]:
        near, at = network.near[v].tolist(), slice(network.first[v], network.first[v + 1])
        column = dict(zip(near, network.columns[v].tolist(), strict=False))
        before = [w for w in near if w in passed]
        after = [w for w in near if w not in passed]
        belief = costs[at].copy()
        for w in after:
            belief = belief + sent[w, v]
        known = belief
        for w in before:
            known = known + network.blocks[v][:, column[w] + choice[w]]
            belief = belief + sent[w, v]
        choice[v] = int(known.argmin())
        most = max(len(before), len(after), 1)
        kept = 1.0 - len(after) / most
        bound += kept * float(belief.min())
        slacks[at] = kept * (belief - belief.min())
        for w in after:
            table = network.blocks[v][:, column[w] : column[w] + network.sizes[w]]
            sums = table + (belief / most - sent[w, v])[:, None]
            sent[v, w] = sums.min(axis=0)
            slacks[at] += (sums - sent[v, w]).min(axis=1)
        passed.add(v)
    return bound, choice, slacks


@pytest.mark.slow
@given(st.integers(0, 99), st.integers(1, 40))
def test_nodes_that_take_their_turn_together_do_as_one_by_one(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = itertools.combinations(range(count), 2)
    edges = tuple(pair for pair in pairs if rng.random() < 3.0 / count)
    network = Network(random_graph(rng.integers(1, 4, count).tolist(), edges, rng))
    ways = [way for u, v in edges for way in ((u, v), (v, u))]
    sent = {(v, w): np.zeros(network.sizes[w]) for v, w in ways}
    messages = Messages(network)
    for i in range(4):
        slacks = np.zeros(len(network.flat))
        forward = i % 2 == 0
        bound, choice = messages.run(network.flat, forward=forward, slacks=slacks)
        expected = one_by_one(network, network.flat, sent, forward)
        assert (bound, choice.tolist()) == expected[:2]
        np.testing.assert_array_equal(slacks, expected[2])

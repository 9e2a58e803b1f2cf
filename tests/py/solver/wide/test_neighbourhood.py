"""Re-choosing a ball is exact on what is free, and never dearer than before."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.solver.problem.network import Network
from shardc.solver.problem.reduced import Reduced
from shardc.solver.wide.neighbourhood import improve
from tests.py.solver.random_problems import graphs


@given(graphs(most_nodes=7), st.integers(0, 5), st.sampled_from([2, 9, 1 << 20]))
def test_what_is_free_is_chosen_best(reduced: Reduced, seed: int, most_cells: int) -> None:
    network, rng = Network(reduced), random.Random(seed)
    start = np.array([rng.randrange(size) for size in reduced.sizes], np.int64)
    free = sorted(rng.sample(range(len(start)), rng.randint(1, len(start))))
    found, work = improve(network, network.flat, start, free, most_cells, rng)
    held = [v for v in range(len(start)) if v not in free]
    assert (found[held] == start[held]).all() and work > 0
    assert network.cost(found) <= network.cost(start) + 1e-9
    if most_cells > 9:
        best = np.inf
        for each in itertools.product(*(range(reduced.sizes[v]) for v in free)):
            choice = start.copy()
            choice[free] = each
            best = min(best, network.cost(choice))
        assert network.cost(found) == pytest.approx(best)


def test_edges_that_share_one_table_are_different_edges() -> None:
    """Holding a node conditions its own edges only, though the others have the same array."""
    table = np.array([[0.0, 3.0], [5.0, 1.0]])
    edges = tuple(itertools.combinations(range(5), 2))
    shared = Reduced(
        costs=tuple(np.array([0.0, v / 2]) for v in range(5)),
        edges=edges,
        tables=(table,) * len(edges),
        memory=None,
        constant=0.0,
        times=np.zeros(0, np.int64),
        names=tuple(range(5)),
        terms=({},) * 5,
        num_nodes=5,
        steps=(),
    )
    network = Network(shared)
    best = min(
        network.cost(np.array(each, np.int64)) for each in itertools.product((0, 1), repeat=5)
    )
    choice = np.array([1, 0, 1, 0, 1], np.int64)
    rng = random.Random(0)
    for _ in range(20):
        before = network.cost(choice)
        choice, _ = improve(network, network.flat, choice, range(5), 8, rng)
        assert network.cost(choice) <= before
    assert network.cost(choice) == best
    assert table.tolist() == [[0.0, 3.0], [5.0, 1.0]]

"""Messages that begin where those of one layer for all end."""

import numpy as np
import pytest

from shardc.solver.problem.contraction import contract
from shardc.solver.problem.network import Network
from shardc.solver.problem.repeats import equal_layers
from shardc.solver.solve import solve
from shardc.solver.wide.quotient import LAYERS, groups_of, warm_messages
from shardc.solver.wide.trws import Messages
from tests.py.solver.random_problems import unrolled


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_any_start_gives_a_bound_and_this_one_a_better(seed: int) -> None:
    problem = unrolled(30, seed, None, size=6)
    network = Network(contract(problem))
    groups = groups_of(network, equal_layers(problem))
    warm, _ = warm_messages(network, network.flat, groups)
    cold = Messages(network)
    optimum = solve(problem, effort_s=2.0).objective
    for number in range(4):
        bounds = [m.run(network.flat, forward=number % 2 == 0)[0] for m in (warm, cold)]
        first, second = (bound + network.reduced.constant for bound in bounds)
        assert second - 1e-9 <= first <= optimum + 1e-9


def test_groups_are_alike_and_layers_in_a_group_a_multiple_of_three_apart() -> None:
    problem = unrolled(12, 0, None, size=5)
    network = Network(contract(problem))
    leaders = equal_layers(problem)
    groups = groups_of(network, leaders)
    for group in set(groups.tolist()):
        members = np.flatnonzero(groups == group)
        names = [network.reduced.names[v] for v in members]
        assert len({leaders[name] for name in names}) == 1
        alike = np.flatnonzero(leaders == leaders[names[0]]).tolist()
        assert len({alike.index(name) % LAYERS for name in names}) == 1
        costs = [network.reduced.costs[v] for v in members]
        assert all(np.array_equal(cost, costs[0]) for cost in costs)

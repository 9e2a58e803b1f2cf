"""Equal layers are found by their structure."""

import numpy as np
import pytest

from shardc.solver.problem.problem import Problem
from shardc.solver.problem.repeats import equal_layers
from tests.py.solver.random_problems import training_chain, unrolled


@pytest.mark.parametrize("moments", [0, 2])
def test_each_node_of_a_layer_stands_for_its_like_in_the_other_layers(moments: int) -> None:
    num_layers = 9
    problem = unrolled(num_layers, 0, None, moments=moments)
    leaders = equal_layers(problem)
    counts = np.unique(leaders, return_counts=True)[1]
    # The ends of the chain have other neighbours; what is in between is alike.
    inside = num_layers - 2
    assert (counts >= inside).sum() == 4 + moments  # a weight, three nodes, moments
    assert counts.max() <= num_layers  # two nodes of one layer never stand for each other


def test_equal_moments_stay_apart() -> None:
    leaders = equal_layers(unrolled(5, 1, None, moments=2))
    first, second = leaders[6:11], leaders[12:17]
    assert not set(first.tolist()) & set(second.tolist())


def test_nodes_of_a_leader_are_alike() -> None:
    problem = unrolled(6, 2, 0.5, size=3)
    for node, leader in enumerate(equal_layers(problem).tolist()):
        assert np.array_equal(problem.costs[node], problem.costs[leader])
        assert np.array_equal(problem.usages[node], problem.usages[leader])


def test_what_differs_stands_for_itself() -> None:
    problem = training_chain(6, 0, 0.4)  # no two nodes cost the same
    assert equal_layers(problem).tolist() == list(range(problem.num_nodes))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_tiny_problems(count: int) -> None:
    problem = Problem([np.zeros(2)] * count)
    assert equal_layers(problem).tolist() == [0] * count

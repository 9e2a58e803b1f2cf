"""Variable elimination: exact with large tables, a bound with small ones."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.solver.exact.elimination import eliminate, eliminate_both_ways, plan_order
from shardc.solver.problem.problem import Problem, evaluate


@st.composite
def graphs(draw: st.DrawFn) -> Problem:
    """Finite costs, at most one edge per pair."""
    sizes = draw(st.lists(st.integers(2, 3), min_size=1, max_size=6))
    pairs = list(itertools.combinations(range(len(sizes)), 2))
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return Problem(
        [rng.random(k) for k in sizes], edges, [rng.random((sizes[u], sizes[v])) for u, v in edges]
    )


def least_costs(problem: Problem) -> list[np.ndarray]:
    """Per node and strategy the least cost of any choice with it."""
    least = [np.full(len(c), np.inf) for c in problem.costs]
    for choice in itertools.product(*(range(len(c)) for c in problem.costs)):
        cost = evaluate(problem, choice).cost
        for v, s in enumerate(choice):
            least[v][s] = min(least[v][s], cost)
    return least


@given(graphs())
def test_large_tables_give_the_optimum_and_all_slacks(problem: Problem) -> None:
    order = plan_order([len(c) for c in problem.costs], problem.edges, 1 << 20)
    assert order.exact
    bound, choice, slacks = eliminate_both_ways(order, problem.costs, problem.edge_costs)
    least = least_costs(problem)
    assert bound == pytest.approx(least[0].min())
    assert evaluate(problem, choice).cost == pytest.approx(bound)
    for slack, exact in zip(slacks, least, strict=True):
        assert slack + bound == pytest.approx(exact)


@given(graphs())
def test_small_tables_give_bounds(problem: Problem) -> None:
    order = plan_order([len(c) for c in problem.costs], problem.edges, 9)
    bound, choice, slacks = eliminate_both_ways(order, problem.costs, problem.edge_costs)
    least = least_costs(problem)
    assert bound <= least[0].min() + 1e-9
    assert evaluate(problem, choice).cost >= least[0].min() - 1e-9
    for slack, exact in zip(slacks, least, strict=True):
        assert (slack + bound <= exact + 1e-9).all()


@given(graphs())
def test_the_order_is_that_of_keys_that_are_counted_anew_each_time(problem: Problem) -> None:
    sizes = [len(c) for c in problem.costs]
    near = {v: {u for e in problem.edges if v in e for u in e} - {v} for v in range(len(sizes))}
    expected = []

    def key(v: int) -> tuple[int, float, int]:
        missing = sum(u not in near[w] for u, w in itertools.combinations(near[v], 2))
        return missing, math.fsum(math.log2(sizes[u]) for u in near[v]), v

    while near:
        v = min(near, key=key)
        expected.append(v)
        joined = near.pop(v)
        for u in joined:
            near[u] = (near[u] | joined) - {u, v}
    assert [v for v, _ in plan_order(sizes, problem.edges, 1 << 20).buckets] == expected


def test_no_table_is_larger_than_allowed() -> None:
    clique = list(itertools.combinations(range(8), 2))
    order = plan_order([4] * 8, clique, 64)
    assert not order.exact
    shapes = [i.shape for _, groups in order.buckets for g in groups for i in g.inputs]
    assert max(np.prod(np.max([s], axis=0)) for s in shapes) <= 64


@pytest.mark.slow
def test_ties_are_broken_by_the_lowest_index() -> None:
    order = plan_order([3, 3], [(0, 1)], 100)
    _, choice = eliminate(order, [np.zeros(3)] * 2, [np.zeros((3, 3))])
    assert choice.tolist() == [0, 0]

"""Small problems for the solver's tests, and the answer by trying every choice."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from shardc.solver.problem.problem import Problem, evaluate
from shardc.solver.problem.reduced import Reduced


@dataclass(frozen=True)
class Best:
    """The answer by brute force: cost of the cheapest feasible choice, None if there is none, and
    the smallest peak of any finite choice, None if no choice is finite."""

    cost: float | None
    least_peak: int | None


def brute_force(problem: Problem) -> Best:
    """Tries every choice."""
    cost: float | None = None
    least_peak: int | None = None
    for choice in itertools.product(*(range(len(c)) for c in problem.costs)):
        score = evaluate(problem, choice)
        if np.isfinite(score.cost):
            least_peak = (
                score.peak_usage if least_peak is None else min(least_peak, score.peak_usage)
            )
        if score.feasible and (cost is None or score.cost < cost):
            cost = score.cost
    return Best(cost, least_peak)


def cells(forbidden: bool) -> st.SearchStrategy[float]:
    """Costs: many ties, some fractions, some negative, some forbidden."""
    numbers = st.one_of(
        st.integers(0, 5).map(float), st.floats(-1.0, 9.0, width=32, allow_subnormal=False)
    )
    return st.one_of(numbers, st.just(np.inf)) if forbidden else numbers


@st.composite
def problems(
    draw: st.DrawFn, *, limited: bool, forbidden: bool = True, most_nodes: int = 6
) -> Problem:
    """Problems of at most 4 ** most_nodes choices, with parallel edges and self pairs."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=most_nodes))
    nodes = range(len(sizes))

    def array(*shape: int) -> np.ndarray:
        count = int(np.prod(shape))
        values = draw(st.lists(cells(forbidden), min_size=count, max_size=count))
        return np.array(values, np.float64).reshape(shape)

    ends = st.sampled_from(nodes)
    edges = draw(st.lists(st.tuples(ends, ends), max_size=9))
    costs = [array(size) for size in sizes]
    tables = [array(sizes[u], sizes[v]) for u, v in edges]
    if not limited:
        return Problem(costs, edges, tables)
    usages = [
        np.array(draw(st.lists(st.integers(0, 9), min_size=size, max_size=size)), np.int64)
        for size in sizes
    ]
    starts = [draw(st.integers(0, 4)) for _ in nodes]
    intervals = [(lo, lo + draw(st.integers(0, 4))) for lo in starts]
    return Problem(costs, edges, tables, usages, intervals, draw(st.integers(0, 25)))


@st.composite
def graphs(draw: st.DrawFn, *, most_nodes: int = 6) -> Reduced:
    """Finite costs, at most one edge per pair, no memory."""
    sizes = draw(st.lists(st.integers(2, 3), min_size=1, max_size=most_nodes))
    pairs = list(itertools.combinations(range(len(sizes)), 2))
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return random_graph(sizes, edges, rng)


def random_graph(
    sizes: Sequence[int], edges: Sequence[tuple[int, int]], rng: np.random.Generator
) -> Reduced:
    """Nodes of so many choices with random costs below 1, joined by random tables; no memory."""
    return Reduced(
        costs=tuple(rng.random(size) for size in sizes),
        edges=tuple(edges),
        tables=tuple(rng.random((sizes[u], sizes[v])) for u, v in edges),
        memory=None,
        constant=1.0,
        times=np.zeros(0, np.int64),
        names=tuple(range(len(sizes))),
        terms=tuple({} for _ in sizes),
        num_nodes=len(sizes),
        steps=(),
    )


def training_chain(num_layers: int, seed: int, share: float | None) -> Problem:
    """A chain forth and back with rungs, weights that live throughout, and reshard-like edges.

    Args:
        share: of the sum of the largest usages, as the limit; None = no limit.
    """
    rng = np.random.default_rng(seed)
    positions = rng.random((6, 2))
    reshard = np.abs(positions[:, None] - positions[None]).sum(axis=2)
    costs, edges, usages, intervals = [], [], [], []
    end = 4 * num_layers

    def node(lo: int, hi: int) -> int:
        costs.append(rng.random(6))
        usages.append(rng.integers(1, 100, 6))
        intervals.append((lo, hi))
        return len(costs) - 1

    forward = [node(2 * i, end - 2 * i) for i in range(num_layers)]
    backward = [node(end - 2 * i - 2, end - 2 * i) for i in reversed(range(num_layers))]
    weights = [node(0, end) for _ in range(num_layers)]
    chain = forward + backward
    edges += list(itertools.pairwise(chain))
    edges += [(f, b) for f, b in zip(forward, reversed(backward), strict=True)]
    edges += [(w, f) for w, f in zip(weights, forward, strict=True)]
    edges += [(w, b) for w, b in zip(weights, reversed(backward), strict=True)]
    edges += [(forward[i], forward[i + 2]) for i in range(num_layers - 2)]
    limit = None if share is None else int(share * sum(int(u.max()) for u in usages))
    return Problem(costs, edges, [reshard] * len(edges), usages, intervals, limit)


def unrolled(
    num_layers: int, seed: int, share: float | None, *, size: int = 2, moments: int = 0
) -> Problem:
    """A first node, equal layers of three nodes, a last node, and for each layer a weight that all
    of its nodes use, with some moments of it.

    Args:
        share: of the sum of the largest usages, as the limit; None = no limit.
        size: strategies of each node.
    """
    rng = np.random.default_rng(seed)
    kinds = [(rng.random(size), rng.integers(1, 100, size)) for _ in range(6)]
    reshard = rng.random((4, size, size)) * (1.0 - np.eye(size))
    costs, usages, intervals = [], [], []
    edges: list[tuple[int, int]] = []
    tables = []

    def node(kind: int, lo: int, hi: int) -> int:
        costs.append(kinds[kind][0])
        usages.append(kinds[kind][1])
        intervals.append((lo, hi))
        return len(costs) - 1

    def edge(u: int, v: int, table: int) -> None:
        edges.append((u, v))
        tables.append(reshard[table])

    end = 3 * num_layers + 2
    weights = [node(0, 0, end) for _ in range(num_layers)]
    for _ in range(moments):
        node(2, 0, end)  # what belongs to no layer
        for weight in weights:
            edge(weight, node(1, 0, end), 0)
    before = node(2, 0, 2)
    for layer in range(num_layers):
        for part in range(3):
            here = node(3 + part % 2, 3 * layer + part, 3 * layer + part + 3)
            edge(before, here, 1)
            edge(weights[layer], here, 2 + part // 2)
            before = here
    edge(before, node(5, end - 1, end), 1)
    limit = None if share is None else int(share * sum(int(u.max()) for u in usages))
    return Problem(costs, edges, tables, usages, intervals, limit)

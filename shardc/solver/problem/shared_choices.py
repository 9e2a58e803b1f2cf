"""Lets nodes share one choice: their costs and memory are merged into one node."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardc.solver.problem.problem import Floats, Ints, Problem


@dataclass(frozen=True)
class Folded:
    """A problem whose nodes represent several nodes of another one.

    A choice costs, and holds at every time, exactly as much as its expansion, so the optimum
    is the best choice of the other problem in which these nodes agree.

    Attributes:
        part: per node of the other problem, its representative here.
        leaders: per node of the other problem, the first node that shares its choice.
    """

    problem: Problem
    part: Ints
    leaders: Ints

    def expand(self, choice: Sequence[int] | Ints) -> Ints:
        """The corresponding choice of the other problem."""
        return np.asarray(choice, np.int64)[self.part]


def fold(problem: Problem, leaders: Ints) -> Folded:
    """Makes each node follow its leader (for most nodes, itself). Nodes with the same leader must
    have equally many strategies and the same bytes."""
    firsts, part = np.unique(leaders, return_inverse=True)
    parts: list[int] = part.tolist()
    costs = [np.zeros(len(problem.costs[v])) for v in firsts]
    for v, cost in zip(parts, problem.costs, strict=True):
        costs[v] += cost
    edges, tables = _fold_edges(problem, parts)
    intervals, more = [(0, 0)] * len(firsts), dict[int, list[tuple[int, int]]]()
    seen = np.zeros(len(firsts), bool)
    for v, lo, hi in problem.spans():
        assert np.array_equal(problem.usages[v], problem.usages[firsts[parts[v]]])
        if seen[parts[v]]:
            more.setdefault(parts[v], []).append((lo, hi))
        else:
            seen[parts[v]] = True
            intervals[parts[v]] = (lo, hi)
    usages = [problem.usages[v] for v in firsts] if problem.usages else ()
    limited = problem.usage_limit is not None
    return Folded(
        Problem(
            costs,
            edges,
            tables,
            usages,
            intervals if limited else (),
            problem.usage_limit,
            more,
        ),
        part,
        leaders,
    )


def _fold_edges(problem: Problem, parts: list[int]) -> tuple[list[tuple[int, int]], list[Floats]]:
    """Merges all edges between the same two nodes with the same table."""
    counts: dict[tuple[int, int, int], int] = {}
    known: dict[int, Floats] = {}
    for (u, v), table in zip(problem.edges, problem.edge_costs, strict=True):
        known[id(table)] = table
        key = parts[u], parts[v], id(table)
        counts[key] = counts.get(key, 0) + 1
    edges = [(u, v) for u, v, _ in counts]
    tables = [known[key] * count for (_, _, key), count in counts.items()]
    return edges, tables

"""The problem of the intra-operator planner, in numbers: choose one strategy per node."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Problem:
    """Nodes with strategies, edges that price pairs of strategies, and a limit on live bytes.

    Attributes:
        costs: per node one cost per strategy (seconds); inf = forbidden.
        edges: pairs of nodes; repeated pairs and self-loops all count.
        edge_costs: per edge an array [strategies of u, strategies of v] (seconds; inf = forbidden).
            Edges may share one array object, which is never written to.
        usages: per node the bytes that each of its strategies holds while the node is live;
            () if there is no limit.
        intervals: per node the times [lo, hi) at which it is live; lo >= hi = never.
        usage_limit: the most bytes that nodes live at one time may hold; None = no limit.
        more_intervals: node -> further intervals, in each of which it holds its bytes (added up
            where they overlap), for nodes that represent several.
    """

    costs: Sequence[Floats]
    edges: Sequence[tuple[int, int]] = ()
    edge_costs: Sequence[Floats] = ()
    usages: Sequence[Ints] = ()
    intervals: Sequence[tuple[int, int]] = ()
    usage_limit: int | None = None
    more_intervals: Mapping[int, Sequence[tuple[int, int]]] = MappingProxyType({})

    @property
    def num_nodes(self) -> int:
        return len(self.costs)

    def spans(self) -> Iterator[tuple[int, int, int]]:
        """Each node and interval (node, lo, hi) in which it is live."""
        for v, (lo, hi) in enumerate(self.intervals):
            if lo < hi:
                yield v, lo, hi
        for v, more in self.more_intervals.items():
            for lo, hi in more:
                if lo < hi:
                    yield v, lo, hi

    def check(self) -> None:
        """Asserts that all shapes agree; only the compiler builds problems."""
        assert len(self.edges) == len(self.edge_costs), "one cost array per edge"
        for v, cost in enumerate(self.costs):
            assert cost.ndim == 1 and len(cost) > 0, f"node {v} has no strategies"
        for (u, v), table in zip(self.edges, self.edge_costs, strict=True):
            shape = (len(self.costs[u]), len(self.costs[v]))
            assert table.shape == shape, f"edge {u}-{v}: {table.shape} is not {shape}"
        if self.usage_limit is not None:
            assert len(self.usages) == len(self.intervals) == self.num_nodes
            for v, usage in enumerate(self.usages):
                assert len(usage) == len(self.costs[v]), f"node {v}: one usage per strategy"


class Evaluation(NamedTuple):
    """The score of a choice: seconds (inf if forbidden), peak bytes, and whether it
    is allowed (finite, and within the limit if there is one)."""

    cost: float
    peak_usage: int
    feasible: bool


def evaluate(problem: Problem, choice: Sequence[int] | Ints) -> Evaluation:
    """Scores `choice` (one strategy index per node) by definition; shares no code with `solve`.

    Sums are rounded exactly (fsum), so they do not depend on the order of nodes and edges.
    """
    picks = [int(c) for c in choice]
    terms = [float(cost[c]) for cost, c in zip(problem.costs, picks, strict=True)]
    for (u, v), table in zip(problem.edges, problem.edge_costs, strict=True):
        terms.append(float(table[picks[u], picks[v]]))
    cost = math.fsum(terms) if all(map(math.isfinite, terms)) else math.inf
    peak = _peak(problem, [int(u[c]) for u, c in zip(problem.usages, picks, strict=False)])
    fits = problem.usage_limit is None or peak <= problem.usage_limit
    return Evaluation(cost, peak, math.isfinite(cost) and fits)


def least_peak(problem: Problem) -> int:
    """Peak bytes if each node holds its minimum: a lower bound on the peak of any choice."""
    return _peak(problem, [int(usage.min()) for usage in problem.usages])


def most_peak(problem: Problem) -> int:
    """Peak bytes if each node holds its maximum: no choice has a higher peak."""
    return _peak(problem, [int(usage.max()) for usage in problem.usages])


def _peak(problem: Problem, held: Sequence[int]) -> int:
    """The most bytes live at one time, if node v holds `held[v]` while it is live."""
    changes: dict[int, int] = {}
    for v, lo, hi in problem.spans() if held else ():
        changes[lo] = changes.get(lo, 0) + held[v]
        changes[hi] = changes.get(hi, 0) - held[v]
    peak = live = 0
    for time in sorted(changes):
        live += changes[time]
        peak = max(peak, live)
    return peak


@dataclass(frozen=True)
class Progress:
    """The state of a running `solve`.

    Attributes:
        phase: current phase, in a word or two.
        seconds: since the start.
        objective: cost of the best feasible choice so far, None before the first.
        lower_bound: proven so far; -inf before the first bound.
    """

    phase: str
    seconds: float
    objective: float | None
    lower_bound: float


@dataclass(frozen=True)
class Solution:
    """The best choice found, and what is proven about it.

    Attributes:
        choice: one strategy index per node.
        objective: cost of `choice` by `evaluate` (seconds).
        lower_bound: no feasible choice costs less; equals `objective` if `optimal`.
        feasible: `choice` is finite and within the limit (always true for results of `solve`).
        optimal: the bound proves that nothing is cheaper (up to 1e-9 of the objective).
        log: one line per phase: its name, time, objective, bound.
        num_folded: nodes that shared the choice of another one, as equal layers do, in the search
            or (if tied) in the answer.
        folded_objective: cost of the best choice found in which these nodes agree (seconds); None
            if nothing was folded.
        cut_short: the clock or Ctrl-C ended the search; more time may give a better choice.
    """

    choice: tuple[int, ...]
    objective: float
    lower_bound: float
    feasible: bool
    optimal: bool
    log: tuple[str, ...] = ()
    num_folded: int = 0
    folded_objective: float | None = None
    cut_short: bool = False

    @property
    def gap(self) -> float:
        """(objective - lower_bound) / |objective|; 0.0 if an objective of 0 is optimal."""
        if self.objective == self.lower_bound:
            return 0.0
        return (self.objective - self.lower_bound) / max(abs(self.objective), 1e-300)

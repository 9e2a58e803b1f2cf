"""A contracted problem, and its expansion to the whole choice."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardc.solver.problem.memory_times import Memory, Terms
from shardc.solver.problem.problem import Floats, Ints


@dataclass(frozen=True)
class Picked:
    """Node `node` keeps only the strategies `kept` (previous indices)."""

    node: int
    kept: Ints


@dataclass(frozen=True)
class Follows:
    """Node `node` takes `table[choice of leaders]`; no leaders: a fixed strategy."""

    node: int
    leaders: tuple[int, ...]
    table: Ints


@dataclass(frozen=True)
class Reduced:
    """A contracted problem: nodes 0..n-1, at most one edge per pair.

    Attributes:
        costs: per node finite costs per strategy.
        edges, tables: pairs u < v and their cost arrays [strategies of u, strategies of v].
        memory: of the choice at the times that matter; None = nothing can exceed the limit.
        constant: cost of everything already decided.
        times: per time of `memory`, its original number.
        names: per node, its number in the original problem.
        terms: per node, its memory, as in `memory`.
        num_nodes, steps: number of original nodes, and the reductions applied to them.
    """

    costs: tuple[Floats, ...]
    edges: tuple[tuple[int, int], ...]
    tables: tuple[Floats, ...]
    memory: Memory | None
    constant: float
    times: Ints
    names: tuple[int, ...]
    terms: tuple[Terms, ...]
    num_nodes: int
    steps: tuple[Picked | Follows, ...]

    @property
    def sizes(self) -> list[int]:
        return [len(cost) for cost in self.costs]

    def fitting_strategies(self) -> list[npt.NDArray[np.bool_]]:
        """Per node, the strategies that fit into memory if all others hold their minimum."""
        fit = [np.ones(size, bool) for size in self.sizes]
        if self.memory is not None:
            for node, terms in zip(fit, self.terms, strict=True):
                for (lo, hi), usage in terms.items():
                    node &= usage <= self.memory.limit - self.memory.base[lo:hi].max()
        return fit

    def expand(self, choice: Ints) -> Ints:
        """The choice for every node of the original problem."""
        full = np.zeros(self.num_nodes, np.int64)
        full[list(self.names)] = choice
        for step in reversed(self.steps):
            if isinstance(step, Picked):
                full[step.node] = step.kept[full[step.node]]
            else:
                full[step.node] = step.table[tuple(full[u] for u in step.leaders)]
        return full

    def restrict(self, full: Ints) -> Ints:
        """The closest strategies here to a choice of the original problem: a node whose
        strategy was removed takes its cheapest one."""
        here = np.asarray(full, np.int64).copy()
        for step in self.steps:
            if isinstance(step, Picked):
                found = np.flatnonzero(step.kept == here[step.node])
                here[step.node] = found[0] if len(found) else 0
        names = np.array(self.names, np.int64)
        return here[names] if len(names) else names

    def cost(self, choice: Ints) -> float:
        """Cost of a choice of the contracted nodes, including the constant."""
        total = self.constant + sum(float(c[s]) for c, s in zip(self.costs, choice, strict=True))
        for (u, v), table in zip(self.edges, self.tables, strict=True):
            total += float(table[choice[u], choice[v]])
        return total

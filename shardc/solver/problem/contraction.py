"""Exact reductions: the rest has the same optimum, and `expand` restores the whole choice."""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from shardc.errors import InfeasibleError
from shardc.solver.interrupt import poll
from shardc.solver.problem.memory_times import Live, Memory, Terms, drop_safe_times
from shardc.solver.problem.problem import Floats, Ints, Problem
from shardc.solver.problem.reduced import Follows, Picked, Reduced
from shardc.solver.problem.tables import SharedTables

MOST_CELLS_OF_A_FOLD = 200_000  # to fold one node into the edge between its two neighbours
MOST_CELLS_TO_COMPARE = 20_000_000  # to compare all strategies of a node


def contract(problem: Problem, live: Live | None = None) -> Reduced:
    """Applies every exact reduction to a fixpoint.

    Removes forbidden strategies; folds a node with one strategy, or whose strategy follows from a
    neighbour's, into its neighbours; splits an edge that is the sum of two node costs; eliminates
    nodes with at most two neighbours and no relevant memory; removes a strategy that another one
    matches or beats at every choice of the neighbours, with no more memory at any time.

    Args:
        live: times at which memory is limited; None = all.
    Raises:
        InfeasibleError: SHARDC-221, a node has no strategy of finite cost left.
    """
    return _to_fixpoint(_Graph(problem, live or Live.of(problem)))


def contract_further(reduced: Reduced, kept: Sequence[Ints]) -> Reduced:
    """Keeps only the strategies `kept` of each node, and applies every reduction again."""
    graph = _Graph(reduced, Live(list(reduced.terms), reduced.times))
    for v, strategies in zip(reduced.names, kept, strict=True):
        if len(strategies) < len(graph.cost[v]):
            graph.pick(v, strategies)
    graph.update_times()
    return _to_fixpoint(graph)


def _to_fixpoint(graph: "_Graph") -> Reduced:
    graph.settle(graph.nodes())
    while graph.changed:
        found = graph.remove_dominated()
        graph.settle([*found, *graph.update_times()])
    return graph.reduced()


def _changes(base: Ints) -> Ints:
    """The differences of a profile; one more than its times, so intervals may end after it."""
    return np.diff(base, prepend=0, append=0)


class _Graph:
    """The mutable graph behind `contract`. Costs only add up, so the order does not matter."""

    def __init__(self, start: Problem | Reduced, live: Live) -> None:
        names = start.names if isinstance(start, Reduced) else range(start.num_nodes)
        self.cost: dict[int, Floats] = {
            v: np.asarray(cost, np.float64) for v, cost in zip(names, start.costs, strict=True)
        }
        self.near: dict[int, dict[int, Floats]] = {v: {} for v in names}
        if isinstance(start, Reduced):
            tables: Sequence[Floats] = start.tables
            self.limit = None if start.memory is None else start.memory.limit
            base = np.zeros(0, np.int64) if start.memory is None else start.memory.base
            self.constant, self.steps = start.constant, list(start.steps)
        else:
            base = np.zeros(len(live.times), np.int64)
            self.limit = start.usage_limit
            self.constant, self.steps, tables = 0.0, [], start.edge_costs
        self.times = live.times
        self.base_change = _changes(base)
        self.terms: dict[int, Terms] = {v: {} for v in names}
        for v, terms in zip(names, live.terms, strict=True):
            for span, usage in terms.items():
                self.add_usage(v, span, usage)
        self.fresh: dict[int, dict[int, None]] = {v: {} for v in names}  # edges not examined yet
        self.changed: set[int] = set(names)  # nodes to check for dominated strategies
        self.compared: dict[bytes, Ints] = {}  # digest of a node -> its undominated strategies
        matrices = [np.asarray(table, np.float64) for table in tables]
        self.shared = SharedTables(matrices)
        for (a, b), matrix in zip(start.edges, matrices, strict=True):
            u, v = names[a], names[b]
            if u == v:
                self.cost[u] = self.cost[u] + np.diagonal(matrix)
            else:
                self.add_edge(u, v, matrix)

    def nodes(self) -> list[int]:
        return list(self.cost)

    def add_edge(self, u: int, v: int, matrix: Floats) -> None:
        known = self.near[u].get(v)
        total = matrix if known is None else known + matrix
        self.fresh[u][v] = None
        self.fresh[v][u] = None
        self.near[u][v] = total
        self.near[v][u] = total.T

    def settle(self, start: Iterable[int]) -> None:
        """Runs the local rules until none applies."""
        queue = list(start)[::-1]
        waiting = set(queue)
        while queue:
            poll()
            v = queue.pop()
            waiting.discard(v)
            if v not in self.cost:
                continue
            again = self.visit(v)
            self.changed.update(again, (v,) if again else ())
            for u in again:
                if u not in waiting:
                    waiting.add(u)
                    queue.append(u)

    def visit(self, v: int) -> list[int]:
        """Applies the rules to `v` until none applies; returns the nodes to visit again."""
        near, fresh = self.near[v], self.fresh[v]
        again: dict[int, None] = {}
        self.forbid(v, np.isfinite(self.cost[v]), again)
        while len(self.cost[v]) > 1 and fresh:
            u = next(iter(fresh))
            del fresh[u]
            if u not in near:
                continue
            cells, all_finite, splits = self.shared.facts(near[u])
            if all_finite:
                if splits:
                    self.split(v, u)
                    again[u] = None
                continue
            if not self.forbid(v, cells.any(axis=1), again):
                continue  # `v` is visited again at once: the edge is fresh from the other end
            v_follows = bool((cells.sum(axis=0) == 1).all())
            u_follows = bool((cells.sum(axis=1) == 1).all())
            if u_follows and not (v_follows and len(self.near[u]) >= len(near)):
                again.update(dict.fromkeys(self.absorb(u, v, np.argmax(cells, axis=1))))
            elif v_follows:
                again.update(dict.fromkeys(self.absorb(v, u, np.argmax(cells, axis=0))))
                return list(again)
        if len(self.cost[v]) == 1:
            again.update(dict.fromkeys(near))
            self.steps.append(Follows(v, (), np.zeros((), np.int64)))
            self.remove(v, {u: near[u][0] for u in near})
        elif not self.terms[v] and len(near) <= 2:
            again.update(dict.fromkeys(self.eliminate(v)))
        return list(again)

    def forbid(self, v: int, allowed: npt.NDArray[np.bool_], again: dict[int, None]) -> bool:
        """Keeps only the `allowed` strategies of `v`; returns whether all are."""
        if allowed.all():
            return True
        if not allowed.any():
            raise InfeasibleError(
                f"every strategy of node {v} is forbidden, directly or by a neighbour",
                code="SHARDC-221",
                help="remove one of the sharding constraints on this op or its neighbours",
            )
        self.pick(v, np.flatnonzero(allowed))
        again.update(dict.fromkeys(self.near[v]))
        return False

    def split(self, v: int, u: int) -> None:
        """Replaces an edge that is a sum of node costs by these node costs."""
        matrix = self.near[v].pop(u)
        del self.near[u][v]
        self.cost[v] = self.cost[v] + matrix[:, 0]
        self.cost[u] = self.cost[u] + (matrix[0] - matrix[0, 0])

    def pick(self, v: int, kept: Ints) -> None:
        """Keeps only the strategies `kept` of `v`."""
        self.steps.append(Picked(v, kept))
        self.cost[v] = self.cost[v][kept]
        for u, matrix in self.near[v].items():
            self.near[v][u] = matrix[kept]
            self.near[u][v] = self.near[v][u].T
            self.fresh[u][v] = None
            self.fresh[v][u] = None
        terms, self.terms[v] = self.terms[v], {}
        for span, usage in terms.items():
            self.add_usage(v, span, usage[kept])

    def add_usage(self, v: int, span: tuple[int, int], usage: Ints) -> None:
        """Adds bytes to `v`; the part common to all its strategies goes into the base profile."""
        terms = self.terms[v]
        if span in terms:
            usage = usage + terms.pop(span)
        least = int(usage.min())
        if least:
            self.base_change[span[0]] += least
            self.base_change[span[1]] -= least
            usage = usage - least
        if usage.any():
            terms[span] = usage

    def remove(self, v: int, rows: dict[int, Floats]) -> None:
        """Removes the decided node `v`; `rows` is added to its neighbours' costs."""
        self.constant += float(self.cost.pop(v)[0])
        for u, row in rows.items():
            self.cost[u] = self.cost[u] + row
            del self.near[u][v]
        del self.near[v], self.fresh[v]
        assert not self.terms.pop(v), "a single strategy has no usage above its minimum"

    def absorb(self, v: int, u: int, follow: Ints) -> list[int]:
        """Merges `v`, whose strategy is `follow[strategy of u]`, into `u`."""
        self.steps.append(Follows(v, (u,), follow))
        at = np.arange(len(follow))
        self.cost[u] = self.cost[u] + self.cost.pop(v)[follow] + self.near[v][u][follow, at]
        del self.near[u][v]
        moved = self.near.pop(v)
        del self.fresh[v]
        del moved[u]
        for w, matrix in moved.items():
            del self.near[w][v]
            self.add_edge(u, w, matrix[follow])
        for span, usage in self.terms.pop(v).items():
            self.add_usage(u, span, usage[follow])
        return [u, *moved]

    def eliminate(self, v: int) -> list[int]:
        """Removes `v`, which has no relevant memory and at most two neighbours."""
        near = list(self.near[v])
        cost = self.cost[v]
        if not near:
            self.steps.append(Follows(v, (), np.array(np.argmin(cost))))
            self.constant += float(cost.min())
        elif len(near) == 1:
            total = cost[:, None] + self.near[v][near[0]]
            self.steps.append(Follows(v, (near[0],), np.argmin(total, axis=0)))
            self.cost[near[0]] = self.cost[near[0]] + total.min(axis=0)
            del self.near[near[0]][v]
        else:
            a, b = near
            left, right = self.near[v][a], self.near[v][b]
            if left.size * right.shape[1] > MOST_CELLS_OF_A_FOLD:
                return []
            cube = (cost[:, None] + left)[:, :, None] + right[:, None, :]
            self.steps.append(Follows(v, (a, b), np.argmin(cube, axis=0)))
            del self.near[a][v], self.near[b][v]
            self.add_edge(a, b, cube.min(axis=0))
        del self.cost[v], self.near[v], self.terms[v], self.fresh[v]
        return near

    def remove_dominated(self) -> list[int]:
        """Removes strategies that another strategy of the same node always beats or equals; returns
        the nodes that lost some, and their neighbours."""
        found: dict[int, None] = {}
        for v in sorted(self.changed & self.cost.keys()):
            poll()
            key = self.digest(v)
            if key not in self.compared:
                self.compared[key] = self.undominated(v)
            kept = self.compared[key]
            if len(kept) < len(self.cost[v]):
                self.pick(v, kept)
                found.update(dict.fromkeys([v, *self.near[v]]))
        self.changed = set(found)
        return list(found)

    def digest(self, v: int) -> bytes:
        """Equal for nodes with equal costs and neighbours, as in equal layers."""
        digest = hashlib.blake2b(self.cost[v].tobytes(), digest_size=16)
        for matrix in self.near[v].values():
            digest.update(matrix.shape[1].to_bytes(4, "little"))
            digest.update(np.ascontiguousarray(matrix))
        for usage in self.terms[v].values():
            digest.update(b"usage")
            digest.update(np.ascontiguousarray(usage))
        return digest.digest()

    def undominated(self, v: int) -> Ints:
        """Indices of the strategies of `v` that no other one dominates."""
        cost = self.cost[v]
        if len(cost) ** 2 * sum(m.shape[1] for m in self.near[v].values()) > MOST_CELLS_TO_COMPARE:
            return np.arange(len(cost))
        worse = cost[:, None] - cost[None, :]  # [s, t]: the most that s can cost above t
        for matrix in self.near[v].values():
            # [neighbour's, s, t]: the maximum over whole matrices is faster than within rows.
            theirs = matrix.T
            finite = np.isfinite(theirs)
            if finite.all():
                step = theirs[:, :, None] - theirs[:, None, :]
            else:
                step = theirs[:, :, None] - np.where(finite, theirs, 0.0)[:, None, :]
                step[np.broadcast_to(~finite[:, None, :], step.shape)] = -np.inf
            worse = worse + np.maximum.reduce(step, axis=0)
        beats = worse <= 0
        for usage in self.terms[v].values():
            beats &= usage[:, None] <= usage[None, :]
        # Among equal strategies the first one stays.
        beats &= ~beats.T | (np.arange(len(cost))[:, None] < np.arange(len(cost))[None, :])
        np.fill_diagonal(beats, False)
        useful = np.flatnonzero(~beats.any(axis=0))
        return useful if len(useful) else np.arange(len(cost))

    def update_times(self) -> list[int]:
        """Drops times that have become safe; returns the nodes that this freed."""
        fewer: list[int] = []
        if self.limit is not None and len(self.times):
            before = self.terms
            base = np.cumsum(self.base_change)[:-1]
            self.terms, base, kept = drop_safe_times(self.terms, base, self.limit)
            self.base_change = _changes(base)
            self.times = self.times[kept]
            fewer = [v for v, terms in self.terms.items() if len(terms) < len(before[v])]
            self.changed.update(fewer)
        return fewer

    def reduced(self) -> Reduced:
        names = self.nodes()
        index = {v: i for i, v in enumerate(names)}
        edges = [(u, w) for u in names for w in self.near[u] if index[u] < index[w]]
        terms = tuple(self.terms[v] for v in names)
        memory = None
        if self.limit is not None and len(self.times):
            sizes = [len(self.cost[v]) for v in names]
            base = np.cumsum(self.base_change)[:-1]
            memory = Memory.build(terms, sizes, base, self.limit)
        return Reduced(
            costs=tuple(self.cost[v] for v in names),
            edges=tuple((index[u], index[w]) for u, w in edges),
            tables=tuple(np.ascontiguousarray(self.near[u][w]) for u, w in edges),
            memory=memory,
            constant=self.constant,
            times=self.times,
            names=tuple(names),
            terms=terms,
            num_nodes=len(names) + sum(isinstance(s, Follows) for s in self.steps),
            steps=tuple(self.steps),
        )

"""One question, asked many times: which choice minimises cost plus priced memory?"""

import heapq
import math
import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from shardc.solver.contraction import Reduced
from shardc.solver.elimination import Order, eliminate, eliminate_both_ways, plan_order
from shardc.solver.problem import Floats, Ints

MOST_BITS = 24  # cells of the largest table (logarithm): 128 MiB


class Oracle:
    """Minimises node costs and edges of a contracted problem, exactly where elimination is cheap.

    Attributes:
        order: of the elimination; `order.exact` says whether answers are optimal.
    """

    def __init__(self, reduced: Reduced, check_time: Callable[[], None], most_cells: int) -> None:
        self.reduced = reduced
        self.check_time = check_time
        self.sizes = reduced.sizes
        self.first = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)
        self.flat = np.concatenate([*reduced.costs, np.zeros(0)])
        self.bits, self.order = _affordable_order(self.sizes, reduced.edges, most_cells, check_time)

    def costs(self, prices: Floats | None) -> list[Floats]:
        """Node costs, with what their memory costs at `prices` (per byte and kept time)."""
        memory = self.reduced.memory
        flat = self.flat
        if prices is not None and memory is not None:
            flat = flat + memory.price_of_strategies(prices)
        return [flat[a:b] for a, b in zip(self.first[:-1], self.first[1:], strict=True)]

    def choices_while_tuning(self, prices: Floats | None) -> Iterator[tuple[float, Ints]]:
        """Takes the order with the best bound at `prices`: larger tables are not always better.

        Yields:
            What `minimise` gives with each order that was tried.
        """
        best = self.order
        most, _ = result = self.minimise(prices)
        yield result
        bits = self.bits
        while not self.order.exact and bits > max(self.bits - 3, 10):
            bits -= 1
            self.order = plan_order(self.sizes, self.reduced.edges, 1 << bits)
            result = self.minimise(prices)
            if result[0] > most:
                most, best = result[0], self.order
            yield result
        self.order = best

    def minimise(self, prices: Floats | None) -> tuple[float, Ints]:
        """A lower bound on min over x of cost(x) + prices * (usage(x) - limit), and a choice that
        attains it where the order is exact."""
        bound, choice = eliminate(
            self.order, self.costs(prices), self.reduced.tables, self.check_time
        )
        return bound + self._constant(prices), choice

    def minimise_both_ways(self, prices: Floats | None) -> tuple[float, Ints, list[Floats]]:
        """Like `minimise`, and per node and strategy how far above the bound all choices with this
        strategy are."""
        bound, choice, slacks = eliminate_both_ways(
            self.order, self.costs(prices), self.reduced.tables, self.check_time
        )
        return bound + self._constant(prices), choice, slacks

    def _constant(self, prices: Floats | None) -> float:
        memory = self.reduced.memory
        if prices is None or memory is None:
            return self.reduced.constant
        spare = (memory.base - memory.limit).astype(np.float64)
        return self.reduced.constant + float(prices @ spare)

    def least_usage(self, weights: Floats) -> tuple[float, Ints]:
        """Like `minimise`, with bytes (weighted over the times) for costs: a bound in bytes."""
        memory = self.reduced.memory
        assert memory is not None
        flat = memory.price_of_strategies(weights)
        costs = [flat[a:b] for a, b in zip(self.first[:-1], self.first[1:], strict=True)]
        tables = [np.where(np.isfinite(t), 0.0, np.inf) for t in self.reduced.tables]
        bound, choice = eliminate(self.order, costs, tables, self.check_time)
        return bound + float(weights @ memory.base), choice

    def improve(
        self,
        costs: Sequence[Floats],
        choice: Ints,
        free: Sequence[int],
        most_cells: int,
        rng: random.Random,
    ) -> tuple[Ints, int]:
        """Best choice for the nodes `free`, all others and a few random ones held where they are.

        Exact on what is not held, so it hardly ever gets worse; the caller compares.

        Returns:
            The choice, and the work in cells.
        """
        is_free = np.zeros(len(choice), bool)
        is_free[list(free)] = True
        inner: list[tuple[int, int]] = []
        inner_tables: list[Floats] = []
        local: dict[int, Floats] = {v: costs[v] for v in free}
        for v in free:
            for u, table in self.near(v):
                if not is_free[u]:
                    local[v] = local[v] + table[:, choice[u]]
                elif v < u:
                    inner.append((v, u))
                    inner_tables.append(table)
        held = _nodes_to_hold(list(free), inner, self.sizes, most_cells, rng)
        for (u, v), table in zip(inner, inner_tables, strict=True):
            if u in held and v not in held:
                local[v] = local[v] + table[choice[u]]
            elif v in held and u not in held:
                local[u] = local[u] + table[:, choice[v]]
        names = [v for v in free if v not in held]
        index = {v: i for i, v in enumerate(names)}
        kept = [i for i, (u, v) in enumerate(inner) if u in index and v in index]
        order = plan_order(
            [self.sizes[v] for v in names],
            [(index[inner[i][0]], index[inner[i][1]]) for i in kept],
            4 * most_cells,
        )
        inside = [local[v] for v in names]
        _, found = eliminate(order, inside, [inner_tables[i] for i in kept], self.check_time)
        better = choice.copy()
        better[names] = found
        return better, order.num_cells + 200 * len(free)

    def near(self, v: int) -> list[tuple[int, Floats]]:
        """Neighbours of `v`, each with the table [strategies of v, strategies of it]."""
        if not hasattr(self, "_near"):
            near: list[list[tuple[int, Floats]]] = [[] for _ in self.sizes]
            for (u, w), table in zip(self.reduced.edges, self.reduced.tables, strict=True):
                near[u].append((w, table))
                near[w].append((u, table.T))
            self._near = near
        return self._near[v]


def _affordable_order(
    sizes: Sequence[int],
    edges: Sequence[tuple[int, int]],
    most_cells: int,
    check_time: Callable[[], None],
) -> tuple[int, Order]:
    """The order with the largest tables whose pass stays within `most_cells`, and the logarithm of
    the largest table."""
    small, large = MOST_BITS - 12, MOST_BITS + 1  # logarithms; `small` is taken to be affordable
    best: Order | None = None
    while large - small > 1:
        check_time()
        middle = (small + large + 1) // 2
        order = plan_order(sizes, edges, 1 << middle)
        if order.num_cells <= most_cells:
            small, best = middle, order
            if order.exact:
                break
        else:
            large = middle
    return small, best or plan_order(sizes, edges, 1 << small)


def _nodes_to_hold(
    free: list[int],
    edges: list[tuple[int, int]],
    sizes: Sequence[int],
    most_cells: int,
    rng: random.Random,
) -> set[int]:
    """Nodes to hold so that eliminating the others needs no table above `most_cells`.

    Eliminates in order of table size; whenever a table would be too large, a node of it is held,
    one with many neighbours more often than one with few.
    """
    near: dict[int, set[int]] = {v: set() for v in free}
    for u, v in edges:
        near[u].add(v)
        near[v].add(u)
    degree = {v: len(near[v]) for v in free}
    most_log = math.log2(most_cells)
    log_size = {v: math.log2(sizes[v]) for v in free}
    noise = {v: rng.random() * 2 for v in free}
    held: set[int] = set()

    def weight(v: int) -> float:
        return math.fsum(log_size[u] for u in near[v]) + log_size[v]

    heap = [(weight(v) + noise[v], v) for v in free]
    heapq.heapify(heap)
    while heap:
        key, v = heapq.heappop(heap)
        if v not in near:
            continue
        if weight(v) + noise[v] > key:
            heapq.heappush(heap, (weight(v) + noise[v], v))
            continue
        while v in near and near[v] and weight(v) > most_log:
            target = max([*sorted(near[v]), v], key=lambda u: degree[u] * rng.random())
            held.add(target)
            for u in near.pop(target):
                near[u].discard(target)
                heapq.heappush(heap, (weight(u) + noise[u], u))
        around = near.pop(v, set())
        for u in around:
            near[u] |= around
            near[u] -= {u, v}
    return held

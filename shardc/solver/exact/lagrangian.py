"""The Lagrangian oracle: the choice that minimises cost plus priced memory, for many prices."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from shardc.solver.exact.elimination import Order, eliminate, eliminate_both_ways, plan_order
from shardc.solver.problem.problem import Floats, Ints
from shardc.solver.problem.reduced import Reduced

MOST_BITS = 24  # log2 of the cells of the largest table: 128 MiB


class Oracle:
    """Minimises node costs and edges of a contracted problem, exactly if elimination is cheap.

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
        """Node costs plus the cost of their memory at `prices` (per byte and kept time)."""
        memory = self.reduced.memory
        flat = self.flat
        if prices is not None and memory is not None:
            flat = flat + memory.price_of_strategies(prices)
        return [flat[a:b] for a, b in zip(self.first[:-1], self.first[1:], strict=True)]

    def choices_while_tuning(self, prices: Floats | None) -> Iterator[tuple[float, Ints]]:
        """Keeps the order with the best bound at `prices`: larger tables are not always better.

        Yields:
            The result of `minimise` for each order tried.
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
        attains it if the order is exact."""
        bound, choice = eliminate(
            self.order, self.costs(prices), self.reduced.tables, self.check_time
        )
        return bound + self._constant(prices), choice

    def minimise_both_ways(self, prices: Floats | None) -> tuple[float, Ints, list[Floats]]:
        """Like `minimise`; also returns, per node and strategy, how far above the bound all choices
        with this strategy are."""
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
        """Like `minimise`, with bytes (weighted over the times) as costs: a bound in bytes."""
        memory = self.reduced.memory
        assert memory is not None
        flat = memory.price_of_strategies(weights)
        costs = [flat[a:b] for a, b in zip(self.first[:-1], self.first[1:], strict=True)]
        tables = [np.where(np.isfinite(t), 0.0, np.inf) for t in self.reduced.tables]
        bound, choice = eliminate(self.order, costs, tables, self.check_time)
        return bound + float(weights @ memory.base), choice


def _affordable_order(
    sizes: Sequence[int],
    edges: Sequence[tuple[int, int]],
    most_cells: int,
    check_time: Callable[[], None],
) -> tuple[int, Order]:
    """The order with the largest tables whose pass needs at most `most_cells`, and log2 of
    the largest table."""
    small, large = MOST_BITS - 12, MOST_BITS + 1  # log2 sizes; `small` is assumed affordable
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

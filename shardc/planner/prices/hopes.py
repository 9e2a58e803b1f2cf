"""The least that a stage may take once more of its prices are known."""

from collections.abc import Iterator

import numpy as np

from shardc.plan.layout import Mesh
from shardc.plan.stages_spec import Recompute
from shardc.planner.prices.points import derived_from
from shardc.planner.prices.ranges import Ranges, prefix_sums
from shardc.planner.prices.stage_prices import StagePrices
from shardc.solver.problem.problem import Floats, Ints

# Lower bounds on the extra time of full recomputation: as a share of a layer's forward time; and of
# what its ops take longer on one device, once that is known.
AGAIN, SURE = 0.3, 0.8


class Hopes:
    """Lower bounds on the prices of stages, where some prices of their layers are unknown.

    A higher price takes no less time than a lower one, and more recomputation no less time than
    less; full recomputation takes `AGAIN` more. An unpriced layer takes at least as long as if it
    were split evenly and nothing were sent. What is known in one microbatch alone takes no less
    time in several: but what one needs for weights and gradients, each of several may do without.
    No stage holds less than its own stash, split evenly. Views in doubt get optimistic prices only
    once they are open.

    Args:
        of_doubtful: whether open views in doubt get optimistic prices, too.
    """

    def __init__(self, prices: StagePrices, of_doubtful: bool = True) -> None:
        self._prices, self._of_doubtful = prices, of_doubtful
        self._worth: dict[Recompute, bool] = {}  # whether layers then keep clearly less
        self._tables: dict[tuple[int, int, int], tuple[Floats, Ints]] = {}
        self._points: dict[tuple[Mesh, int], tuple[tuple[int, Floats], ...]] = {}  # of `_on`
        self._several: dict[tuple[Mesh, int, int], Ranges] = {}  # of `_in_several`
        self._room: dict[tuple[Recompute, int, int, int], Floats] = {}  # `_may_fit`, by level
        self._round = -1  # of the prices behind the tables

    def stage_s(self, size: int, count: int, held: int) -> Floats:
        """`StagePrices.stage_s`, or less where prices are unknown."""
        return self._table(size, count, held)[0]

    def open(self, size: int, count: int, held: int, first: int, last: int) -> bool:
        """Prices what the least time of a stage depends on, if its size is open; whether any of it
        was unknown. More recomputation counts only if layers then keep clearly less."""
        prices = self._prices
        number = int(self._table(size, count, held)[1][first, last])
        if number < 0:
            return False
        at, point = divmod(number, len(prices.points))
        view, level = prices.views_of(size)[at], prices.points[point].recompute
        near, known = prices.near(count, size), prices.in_one_alone(view, point)
        if count > 1 and (known is not None or prices.in_one_alone(view, 0) is not None):
            several = prices.like_several(count, size)
            near = several if prices.has(several) else near
        if known is None and level != prices.points[0].recompute and level not in self._worth:
            self._worth[level] = prices.costs.keeps_less(near, level)
            self._forget()  # `_again_s` is known better
        else:
            prices.ask(view, near, point if known is None else known)
        return True

    def _table(self, size: int, count: int, held: int) -> tuple[Floats, Ints]:
        """`stage_s`, and by view and point what to price for it; -1: nothing."""
        prices, key = self._prices, (size, count, held)
        if self._round != prices.round:
            self._forget()
            self._round = prices.round
        if key not in self._tables:
            best = prices.stage_s(*key).copy()
            which = np.full(best.shape, -1)
            if not prices.is_open(size):
                best = np.minimum(best, self._even_s(size, count))
            for number, view in enumerate(prices.views_of(size)):
                if (view, count) not in self._points:
                    self._points[view, count] = tuple(self._on(view, count))
                for point, hoped_s in self._points[view, count]:
                    least_s = np.where(self._may_fit(point, *key), hoped_s, np.inf)
                    better = np.triu(prices.in_doubt(view) * least_s < best)
                    best = np.where(better, least_s, best)
                    which[better] = number * len(prices.points) + point
                for point, ranges in self._in_several(view, count, held):
                    fits = ranges.peaks(held) <= prices.limit
                    least_s = np.where(fits, prices.in_doubt(view) * ranges.seconds, np.inf)
                    better = np.triu(least_s < best)
                    best = np.where(better, ranges.seconds, best)
                    which[better] = number * len(prices.points) + point
            self._tables[key] = best, which
        return self._tables[key]

    def _forget(self) -> None:
        self._tables.clear()
        self._points.clear()
        self._several.clear()
        self._room.clear()

    def _even_s(self, size: int, count: int) -> Floats:
        """[first, last layer]: seconds if all were split evenly; inf if they are not in order."""
        own_s = [self._prices.even_s(size, count, kind) for kind in self._prices.kinds]
        table = prefix_sums(own_s)
        table[np.tril_indices(len(own_s), -1)] = np.inf
        return table

    def _on(self, view: Mesh, count: int) -> Iterator[tuple[int, Floats]]:
        """Points to price on an open view, with the least seconds of all stages at these."""
        prices, points = self._prices, self._prices.points
        known_kinds = prices.known_kinds(view, 0)
        if known_kinds is None or not (self._of_doubtful or prices.in_doubt(view) == 1.0):
            return
        least = {kind: prices.at_least_s(view, count, kind) for kind in set(prices.kinds)}
        own_s = prefix_sums([least[kind] for kind in prices.kinds])
        if len(known_kinds) < len(least):
            yield 0, own_s
        for level in dict.fromkeys(point.recompute for point in points):
            own = [n for n, point in enumerate(points) if point.recompute == level]
            known = [n for n in own if prices.known_kinds(view, n) is not None]
            if len(known) == len(own) or not self._worth.get(level, True):
                continue
            point = own[len(known)]
            base = derived_from(points, point)
            if known:
                seconds = prices.at_point(view, count, known[-1]).seconds
                yield point if base is None else base, seconds
            elif prices.backward:
                again = {kind: self._again_s(view, count, level, kind) for kind in least}
                yield point, own_s + prefix_sums([again[kind] for kind in prices.kinds])

    def _may_fit(self, point: int, size: int, count: int, held: int) -> Floats:
        """[first, last layer]: whether the stash of a stage would fit if it were split evenly."""
        prices, level = self._prices, self._prices.points[point].recompute
        key = level, size, count, held
        if key not in self._room:
            stash = prices.costs.least_stash(count, level)
            own = prefix_sums([stash[kind] for kind in prices.kinds])
            self._room[key] = np.asarray(held / size * own <= prices.limit)
        return self._room[key]

    def _in_several(self, view: Mesh, count: int, held: int) -> tuple[tuple[int, Ranges], ...]:
        """The points of an open view with prices in one microbatch alone, and the least that all
        stages may take there in several."""
        prices, size = self._prices, len(view.device_ids)
        if count == 1:
            return ()
        points = [
            point
            for point in range(len(prices.points))
            if prices.in_one_alone(view, point) is not None
            and self._may_fit(point, size, count, held)[0, -1]
        ]
        if not points or not prices.has(prices.like_several(count, size)):
            return ()
        for point in points:
            key = view, count, point
            if key not in self._several:
                self._several[key] = prices.of_one(view, count, point)
        return tuple((point, self._several[view, count, point]) for point in points)

    def _again_s(self, view: Mesh, count: int, level: Recompute, kind: int) -> float:
        """A lower bound on the extra seconds of a layer with more recomputation."""
        prices = self._prices
        own = prices.cost(view, count, 0, kind)
        if not self._worth.get(level):
            return AGAIN * own.forward_s
        more = prices.costs.more(prices.near(count, 1), level, kind)
        again_s = (more.backward - 1.0) * own.backward_s + (more.forward - 1.0) * own.forward_s
        return min(SURE * again_s, again_s)

"""Pipelines whose stages have unequal numbers of devices."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from shardc.planner.budget import BUDGET
from shardc.planner.pipelines.lines import Lines
from shardc.planner.proposal import Found, Key
from shardc.solver.interrupt import poll_between
from shardc.solver.pipeline.stages import CLOSE, Pipeline, plan_stages

HOPED_CLOSE = 1e-3  # relative error of the step that is hoped for
WORTH = 0.97  # unequal stages must be estimated faster by this factor: estimates are not closer


class UnequalStages:
    """Finds the pipelines of unequal stages that are clearly faster than all equal ones.

    Args:
        num_stages: None: any.
        counts: numbers of microbatches to try.
        may_open: whether the budget allows pricing layers on more views, or at more points.
        near: shapes within this factor of each other count as equally fast.

    Attributes:
        exhausted: the budget ended before all numbers of microbatches were tried.
    """

    def __init__(
        self,
        lines: Lines,
        num_stages: int | None,
        counts: Sequence[int],
        schedules: Sequence[str],
        may_open: Callable[[], bool],
        near: float,
    ) -> None:
        self._lines, self._num_stages, self._near = lines, num_stages, near
        self._counts, self._schedules = counts, schedules
        self._may_open = may_open
        self._entries = 0
        self.exhausted = False

    def run(self, equal: Sequence[Found]) -> list[Found]:
        """Some pipelines, the best one among them; none if none is clearly faster than all of
        `equal`, which begins with the fastest."""
        found: list[Found] = []
        below_s = min([WORTH * each.pipeline.step_time_s for each in equal[:1]], default=math.inf)
        keys = itertools.product(self._ordered(equal), self._schedules[::-1])
        for number, (count, name) in enumerate(keys):
            poll_between()
            if number >= BUDGET.least_searches and self._entries > BUDGET.most_entries:
                self.exhausted = True
                break
            key = Key(self._num_stages or 0, 0, count, name)
            pipeline = self._best(key, below_s)
            if pipeline is not None:
                found.append(Found(replace(key, num_stages=len(pipeline.stages)), pipeline))
                below_s = pipeline.step_time_s
        return found

    def _ordered(self, equal: Sequence[Found]) -> list[int]:
        """Numbers of microbatches, those nearest to the best one's first."""
        best = equal[0].key.num_microbatches if equal else max(self._counts, default=1)
        return sorted(self._counts, key=lambda count: abs(math.log(count / best)))

    def _best(self, key: Key, below_s: float) -> Pipeline | None:
        """The best pipeline in as many microbatches as `key`, if it is faster than `below_s`."""
        prices = self._lines.prices
        pipeline, priced = None, -1  # by the prices of this round
        most_s = below_s  # of what is hoped for
        while True:
            poll_between()
            may_hope = self._may_hope()
            hope = self._planned(key, most_s, hoped=True) if may_hope else None
            if hope is not None and self._opens(key, hope):
                continue
            if hope is None and may_hope and pipeline is None:
                return None  # what is known is no faster than what is hoped for
            if priced != prices.round:
                priced = prices.round
                pipeline = self._planned(key, below_s, hoped=False)
                if pipeline is None:
                    return None
                known_s, most_s = most_s, pipeline.step_time_s / self._near
                if may_hope and hope is None and most_s > known_s:
                    continue  # slower than by earlier prices: more may be worth hoping for
            assert pipeline is not None
            if not self._lines.settle(key, pipeline):
                return pipeline if self._lines.is_settled(key, pipeline) else None

    def _opens(self, key: Key, hope: Pipeline) -> bool:
        """Prices what a hoped pipeline depends on; whether any of it was unknown."""
        prices = self._lines.prices
        closed = {size for *_, size in hope.stages if not prices.is_open(size)}
        for size in closed:
            prices.open_size(size, prices.near(key.num_microbatches, size))
        return self._lines.open_hoped(key, hope) or any(map(prices.is_open, closed))

    def _may_hope(self) -> bool:
        """Whether the budgets allow searching stages of all sizes, and pricing them."""
        entries = self._num_entries(self._lines.prices.sizes)
        return self._may_open() and self._entries + entries <= BUDGET.most_entries

    def _num_entries(self, sizes: Sequence[int]) -> int:
        """Stages x layers x devices x sizes, as the dynamic program counts devices."""
        devices = self._lines.cluster.num_devices
        columns = devices // math.gcd(devices, *sizes)
        return self._lines.prices.num_layers**2 * columns * len(sizes)

    def _planned(self, key: Key, below_s: float, *, hoped: bool) -> Pipeline | None:
        """The best stages by current prices, or by hoped ones."""
        prices = self._lines.prices
        sizes = prices.sizes if hoped else prices.open_sizes()
        self._entries += self._num_entries(sizes)
        line_of = self._lines.of_hopes if hoped else self._lines.of
        line = line_of(sizes, self._lines.cluster.num_devices, key)
        close = HOPED_CLOSE if hoped else CLOSE
        return plan_stages(line, num_stages=self._num_stages, below_s=below_s, close=close)

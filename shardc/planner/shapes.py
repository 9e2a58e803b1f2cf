"""Ranks the shapes of a pipeline by the prices of their layers.

A shape is a number of stages, microbatches and a schedule; the dynamic program
(`shardc.solver.pipeline.stages`) chooses the layers of each stage and the view of its submesh.
Shapes are visited best first, by an estimate that tends to be low, and layers are priced only when
such a shape needs it: views without any price count as if all work were split evenly and nothing
were sent; prices in other microbatches are inter- or extrapolated.
"""

import functools
import heapq
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from shardc.cluster import Cluster
from shardc.options import PlanOptions
from shardc.plan.alternatives import Alternative
from shardc.plan.shape import PipelineShape
from shardc.planner.budget import BUDGET
from shardc.planner.pipelines.found_stages import FoundStages
from shardc.planner.pipelines.lines import KnownLines, Lines
from shardc.planner.pipelines.unequal import UnequalStages
from shardc.planner.prices.known_prices import CLEARLY
from shardc.planner.prices.stage_prices import StagePrices
from shardc.planner.proposal import Found, Key, Proposal, by_use, proposal_of
from shardc.planner.split_cache import Splits
from shardc.solver.interrupt import poll_between
from shardc.solver.pipeline.stages import Pipeline

NEAR, FAR = 1.005, 1.05  # a shape estimated slower than the best by this factor is not worth more
CLOSER = 0.99  # of an earlier limit of memory, that turned out too high again


class ShapeSearch:
    """Searches the shapes of one program on one cluster.

    Args:
        wanted: number to price exactly: if it is `Budget.wanted`, those near the best, else all.

    Attributes:
        prices: of stages.
        counts, whole_counts: numbers of microbatches to try with and without a pipeline.
        exhausted: the budget ended before every promising shape was visited.
    """

    def __init__(
        self,
        prices: StagePrices,
        splits: Splits,
        cluster: Cluster,
        options: PlanOptions,
        counts: Sequence[int],
        whole_counts: Sequence[int],
        schedules: Sequence[str],
        spent: Callable[[], float],
        wanted: int = BUDGET.wanted,
    ) -> None:
        self.prices, self.splits = prices, splits
        self.cluster, self.options = cluster, options
        self.counts, self.whole_counts = list(counts), list(whole_counts)
        self.schedules = list(schedules)
        self.exhausted = False
        self._spent = spent
        self._lines = Lines(prices, cluster, self._may_ask)
        self._wanted, self._ranking = wanted, wanted != BUDGET.wanted
        self._until_s = 0.0

    def run(self) -> list[Found]:
        """The shapes found, fastest first; none if nothing fits."""
        keys = list(self.all_keys())
        if not keys or not self._open_first(keys):
            return []
        queue = [_entry(self.least_s(key), number, key, 0) for number, key in enumerate(keys)]
        heapq.heapify(queue)
        found: list[Found] = []
        unsure: list[Found] = []  # depend on prices in other microbatches
        enough: dict[int, int] = {}  # size of a single stage -> its fastest number of microbatches
        while queue and len(found) < self._wanted:
            poll_between()
            _, _, number, least_s, key, rounds = heapq.heappop(queue)
            if least_s == math.inf:
                break
            if found and not self._ranking and least_s > self._far_s(found):
                break
            if key.num_stages == 1 and key.num_microbatches > enough.get(key.size, math.inf):
                continue  # more microbatches only cost more
            if not self.prices.is_open(key.size) and not self._open(key):
                continue
            if rounds == 0 and self.least_s(key) > least_s * (1.0 + 1e-9):
                heapq.heappush(queue, _entry(self.least_s(key), number, key, 0))
                continue  # its size was priced meanwhile
            may_open = self._may_ask(BUDGET.opening if found or unsure else BUDGET.until_one_fits)
            pipeline = self._lines.equal(key)
            hope = self._hope(key, pipeline) if may_open else None
            if hope is not None and hope.step_time_s <= least_s * (1.0 + 1e-9) and rounds:
                self._lines.open_hoped(key, hope)
                heapq.heappush(queue, _entry(least_s, number, key, rounds))
                continue
            known_s = math.inf if pipeline is None else pipeline.step_time_s
            next_s = known_s if hope is None else hope.step_time_s
            if next_s == math.inf:
                continue
            if rounds == 0 or next_s > least_s * (1.0 + 1e-9):
                heapq.heappush(queue, _entry(next_s, number, key, max(rounds, 1)))
                continue
            assert pipeline is not None
            if not self._lines.is_settled(key, pipeline):
                if not self._may_ask():
                    self.exhausted = True
                    unsure.append(Found(key, pipeline))
                    continue
                if not self.prices.has(key.num_microbatches):
                    continue
            if self._price(key, pipeline):
                heapq.heappush(queue, _entry(least_s, number, key, rounds))
                continue
            found.append(Found(key, pipeline))
            if key.num_stages == 1 and not self._ranking and self._lines.is_fastest(key, pipeline):
                enough.setdefault(key.size, key.num_microbatches)
        found = found or unsure
        found += self._unequal(found)
        return sorted(found, key=lambda each: each.pipeline.step_time_s)

    def _open_first(self, keys: Sequence[Key]) -> bool:
        """Prices the layers as one stage on all devices, and on submeshes like a node, whatever the
        budget; whether any shape can be priced."""
        near = sorted(keys, key=lambda key: abs(key.size - self.cluster.num_devices_per_node))
        whole = [key for key in near if key.num_stages == 1]
        for some in (whole, near):
            first = next((key for key in some if self.prices.has(self._first(key))), None)
            if first is not None and not self.prices.is_open(first.size):
                self.prices.open_size(first.size, self._first(first))
        return bool(self.prices.open_sizes())

    def _first(self, key: Key) -> int:
        """The number of microbatches at which layers are first priced on a view."""
        if key.num_stages == 1:
            return key.num_microbatches
        near = by_use(self.counts, self.cluster, self.prices.costs.rows)
        return next((count for count in near if self.prices.has(count)), near[0])

    def _may_ask(self, share: float = 1.0) -> bool:
        """Whether less than this share of the budget is spent."""
        return self.prices.work < share * BUDGET.pricing_work and self._spent() < max(1.0, share)

    def _open(self, key: Key) -> bool:
        """Prices the layers on views of a shape's size, if the budget allows; whether it did."""
        if not self._may_ask(BUDGET.opening):
            self.exhausted = True
            return False
        first = self._first(key)
        if self.prices.has(first):
            self.prices.open_size(key.size, first)
        return self.prices.is_open(key.size)

    def all_keys(self) -> Iterator[Key]:
        """Every shape of equal stages, or the requested ones."""
        devices, asked = self.cluster.num_devices, self.options.stages
        for size in self.prices.sizes:
            for stages in range(1, min(self.prices.num_layers, devices // size) + 1):
                if asked != "auto" and stages != asked:
                    continue
                exact = stages * size == devices or self.options.mesh != "auto"
                if not exact and (asked == "auto" or not self._is_largest(size, stages)):
                    continue
                for count in self.counts if stages > 1 else self.whole_counts:
                    # Among equally fast schedules, later ones hold less; a single stage or
                    # microbatch runs them all alike.
                    names = self.schedules[::-1] if min(stages, count) > 1 else self.schedules[-1:]
                    for name in names:
                        yield Key(stages, size, count, name)

    def _is_largest(self, size: int, stages: int) -> bool:
        return size == max(n for n in self.prices.sizes if n * stages <= self.cluster.num_devices)

    def least_s(self, key: Key) -> float:
        """A lower bound on the seconds of any split of the layers into equal stages."""
        count, hops = key.num_microbatches, key.num_stages - 1
        all_s = self.prices.least_s(key.size, count)
        least_s = all_s * (1.0 + (count - 1) / key.num_stages)
        if hops:
            sizes = key.size, key.size
            ways = [self.prices.crossing(*sizes, crosses, count) for crosses in (False, True)]
            least_s += hops * min(float(np.min(way.trip_s[:-1])) for way in ways)
        return least_s

    def _far_s(self, found: Sequence[Found]) -> float:
        """Seconds above which another shape is not worth pricing."""
        far = NEAR if len(found) >= BUDGET.least else FAR
        return max(far * found[0].pipeline.step_time_s, self._until_s)

    def widened(self, wanted: int, until_s: float) -> list[Found]:
        """Like `run`, for up to `wanted` shapes with estimates up to `until_s`; known
        prices are reused."""
        self._wanted, self._until_s = max(wanted, self._wanted), until_s
        return self.run()

    def estimated(self, wanted: Callable[[Key], bool] = lambda key: True) -> list[Found]:
        """Shapes of equal stages on submeshes with priced layers, by current estimates, fastest
        first. Prices nothing."""
        shapes = [(key, self._lines.equal(key)) for key in self.priced_keys() if wanted(key)]
        found = [Found(key, pipeline) for key, pipeline in shapes if pipeline is not None]
        return sorted(found, key=lambda each: each.pipeline.step_time_s)

    def priced_keys(self) -> Iterator[Key]:
        """The shapes of equal stages on submeshes with priced layers."""
        return (key for key in self.all_keys() if self.prices.is_open(key.size))

    def is_tight(self, key: Key) -> bool:
        """Whether a shape does not fit, or would be faster with more memory, by current prices."""
        pipeline = self._lines.equal(key)
        return pipeline is None or not self._lines.is_fastest(key, pipeline)

    def _hope(self, key: Key, pipeline: Pipeline | None) -> Pipeline | None:
        """The best stages by the most optimistic prices of what is not priced yet; None if they are
        hardly faster than the best by current prices."""
        most_s = math.inf if pipeline is None else pipeline.step_time_s / NEAR
        return self._lines.hoped(key, most_s)

    def _price(self, key: Key, pipeline: Pipeline) -> bool:
        """Settles the prices of a pipeline, then opens unexplored views; whether any was new."""
        if self._lines.settle(key, pipeline):
            return True
        if not self._may_ask(BUDGET.doubtful):
            return False
        return self.prices.open_doubtful(key.size, self.prices.near(key.num_microbatches, key.size))

    def _unequal(self, best: Sequence[Found]) -> list[Found]:
        """Pipelines of any stages that are clearly faster than the best of equal ones."""
        if self.options.mesh != "auto" or 1 in (self.cluster.num_devices, self.options.stages):
            return []
        asked = None if self.options.stages == "auto" else self.options.stages
        may_open = functools.partial(self._may_ask, BUDGET.opening)
        lines = Lines(self.prices, self.cluster, self._may_ask, hopes_of_doubtful=False)
        unequal = UnequalStages(lines, asked, self.counts, self.schedules, may_open, NEAR)
        found = unequal.run(best)
        self.exhausted |= unequal.exhausted
        return found

    def settled(self, each: Found) -> Found | None:
        """A shape by prices in its own microbatches, as far as the budget allows; None if it does
        not fit by these."""
        key, pipeline = each.key, each.pipeline
        while self.prices.has(key.num_microbatches) and self._lines.settle(key, pipeline):
            found = self._lines.equal(key)
            if found is None:
                return None
            pipeline = found
        return Found(key, pipeline)

    def tighter(self, each: Found, stage: int, needed: int) -> Found | None:
        """The best stages of a shape by current prices, assuming that all exceed their estimated
        memory by the same factor as `stage`, which needs `needed` bytes; None if there are none."""
        known = self._stages(each).estimated_bytes(min(stage, len(each.pipeline.stages) - 1))
        limit = int(self.prices.limit * min(known / needed, 1.0))
        if each.limit_bytes is not None:
            limit = min(limit, int(CLOSER * each.limit_bytes))
        lines = KnownLines(self.prices.within(limit), self.cluster)
        pipeline = lines.equal(each.key) if each.key.size else lines.unequal(each.key)
        return None if pipeline is None else Found(each.key, pipeline, limit)

    def _stages(self, each: Found) -> FoundStages:
        """The stages of a shape: all on one view, unless they are clearly faster on several. Equal
        stages are solved once."""
        key, size = each.key, each.key.size
        if each.limit_bytes is not None:
            return FoundStages(self.prices.within(each.limit_bytes), key, each.pipeline)
        best = FoundStages(self.prices, key, each.pipeline)
        if len(set(best.views)) == 1 or any(own != size for *_, own in each.pipeline.stages):
            return best
        most_s = CLEARLY * each.pipeline.step_time_s
        for view in self.prices.open_views(size):
            pipeline = self._lines.equal(key, view)
            if pipeline is not None and pipeline.step_time_s < most_s:
                most_s = pipeline.step_time_s
                best = FoundStages(self.prices, key, pipeline, view)
        return best

    def judged(self, each: Found, name: str) -> Alternative:
        """A found shape among alternatives, with its estimate; `name` is its proposer."""
        return Alternative(
            name,
            each.key.num_microbatches,
            each.key.schedule,
            tuple(view.shape for view in self._stages(each).views),
            tuple(last + 1 - first for first, last, _ in each.pipeline.stages),
            each.pipeline.step_time_s,
        )

    def proposal(self, each: Found) -> Proposal | None:
        """The shape in the compiler's form; None if its stages do not begin at layers, or cannot
        be placed on the nodes."""
        found = self._stages(each)
        meshes = found.meshes(self.cluster, self.options.mesh_axes)
        if meshes is None:
            return None
        shape = PipelineShape(
            each.key.num_microbatches,
            (),
            meshes,
            each.key.schedule,
            self.options.batch_args,
        )
        shape = found.with_residency(shape)
        return proposal_of(shape, found.pipeline, self.splits, self.prices.origin)


def _entry(
    seconds: float, number: int, key: Key, rounds: int
) -> tuple[float, int, int, float, Key, int]:
    """An entry of the queue: the fastest shape first; ties go to the fewest microbatches, because
    prices scaled to more microbatches often tie."""
    return float(f"{seconds:.9g}"), key.num_microbatches, number, seconds, key, rounds

"""The input of the dynamic program: a line of layers and one of devices, with prices."""

import math
from collections.abc import Callable, Sequence

from shardc.cluster import Cluster
from shardc.plan.layout import Mesh
from shardc.planner.prices.hopes import Hopes
from shardc.planner.prices.known_prices import KnownPrices
from shardc.planner.prices.sends import takes_turns
from shardc.planner.prices.stage_prices import StagePrices
from shardc.planner.proposal import Key
from shardc.solver.pipeline.stage_line import INSIDE, Line, Place
from shardc.solver.pipeline.stages import Pipeline, plan_stages
from shardc.solver.problem.problem import Floats


class KnownLines:
    """Finds the best stages by known prices."""

    def __init__(self, prices: KnownPrices, cluster: Cluster) -> None:
        self.prices, self.cluster = prices, cluster

    def of(self, sizes: Sequence[int], devices: int, key: Key, only: Mesh | None = None) -> Line:
        """The input of the dynamic program, for stages on one view or any; not cached, because
        prices change."""
        count, prices = key.num_microbatches, self.prices
        return self._line(
            sizes, devices, key, lambda m, held: prices.stage_s(sizes[m], count, held, only)
        )

    def _line(
        self, sizes: Sequence[int], devices: int, key: Key, stage_s: Callable[[int, int], Floats]
    ) -> Line:
        count, name = key.num_microbatches, key.schedule
        per_node = self.cluster.num_devices_per_node

        def send_s(m: int, after: int, end: int) -> Floats:
            return self.prices.crossing(sizes[m], sizes[after], end != INSIDE, count).trip_s

        def link_s(m: int, after: int, end: int) -> Floats:
            cut = sizes[m], sizes[after], end != INSIDE
            way = self.prices.crossing(*cut, count)
            shared = key.num_stages != 2 and takes_turns(*cut, per_node)
            return way.shared_s if shared else way.alone_s

        return Line(
            num_layers=self.prices.num_layers,
            num_devices=devices,
            places=tuple(Place(size, 0, devices, per_node) for size in sizes),
            num_microbatches=count,
            stage_s=stage_s,
            send_s=send_s,
            link_s=link_s,
            in_flight=lambda behind: self.prices.in_flight(name, behind, count),
        )

    def equal(
        self, key: Key, only: Mesh | None = None, below_s: float = math.inf
    ) -> Pipeline | None:
        """The best stages of a shape by current prices, on one view or any, if they are faster
        than `below_s`."""
        line = self.of((key.size,), key.num_stages * key.size, key, only)
        return plan_stages(line, num_stages=key.num_stages, below_s=below_s)

    def unequal(self, key: Key) -> Pipeline | None:
        """The best stages of any sizes with prices, as many as `key` has."""
        line = self.of(self.prices.open_sizes(), self.cluster.num_devices, key)
        return plan_stages(line, num_stages=key.num_stages)

    def held(self, key: Key, behind: int) -> int:
        """Microbatches that a stage with `behind` later stages holds."""
        return self.prices.in_flight(key.schedule, behind, key.num_microbatches)

    def asked(self, key: Key, pipeline: Pipeline) -> list[tuple[int, int, int, int, int]]:
        """The arguments of `StagePrices.settle` for each stage."""
        behind = len(pipeline.stages) - 1
        return [
            (size, key.num_microbatches, self.held(key, behind - stage), first, last)
            for stage, (first, last, size) in enumerate(pipeline.stages)
        ]

    def is_settled(self, key: Key, pipeline: Pipeline) -> bool:
        """Whether the stages of a pipeline depend only on prices in its own microbatches."""
        return all(self.prices.is_settled(*stage) for stage in self.asked(key, pipeline))

    def is_fastest(self, key: Key, pipeline: Pipeline) -> bool:
        """Whether more memory would make no stage faster."""
        return all(self.prices.is_fastest(*stage) for stage in self.asked(key, pipeline))


class Lines(KnownLines):
    """Finds the best stages by current prices, and prices what they depend on.

    Args:
        may_ask: whether less than a share of the search's budget is spent.
        hopes_of_doubtful: whether open views in doubt get optimistic prices, too.
    """

    prices: StagePrices

    def __init__(
        self,
        prices: StagePrices,
        cluster: Cluster,
        may_ask: Callable[[float], bool],
        hopes_of_doubtful: bool = True,
    ) -> None:
        super().__init__(prices, cluster)
        self.hopes = Hopes(prices, hopes_of_doubtful)
        self._may_ask = may_ask

    def of_hopes(self, sizes: Sequence[int], devices: int, key: Key) -> Line:
        """`of`, by the most optimistic prices of what is not priced yet."""
        count, hopes = key.num_microbatches, self.hopes
        return self._line(sizes, devices, key, lambda m, held: hopes.stage_s(sizes[m], count, held))

    def hoped(self, key: Key, below_s: float) -> Pipeline | None:
        """The best stages of a shape by `of_hopes`, if they are faster than `below_s`."""
        line = self.of_hopes((key.size,), key.num_stages * key.size, key)
        return plan_stages(line, num_stages=key.num_stages, below_s=below_s)

    def open_hoped(self, key: Key, hope: Pipeline) -> bool:
        """Prices what a hoped pipeline depends on; whether any of it was unknown."""
        new = False
        for stage in self.asked(key, hope):
            new |= self.hopes.open(*stage)
        return new

    def settle(self, key: Key, pipeline: Pipeline) -> bool:
        """Prices what the stages of a pipeline depend on; whether any price was new."""
        new = False
        for stage in self.asked(key, pipeline):
            new |= self._may_ask(1.0) and self.prices.settle(*stage)
        return new

"""What stages would cost if they moved activations to the memory of their hosts; nothing is run so.

A stage with many microbatches in flight has time between the forward pass of one and its backward
pass. What does not fit meanwhile waits on the host: it is moved there behind the forward pass and
back before the backward one, both ways at once and beside compute. A stage that moves for longer
than it computes waits for the difference. Copies are assumed not to slow the device down.
"""

import numpy as np

from shardc.planner.prices.known_prices import KnownPrices
from shardc.planner.prices.ranges import Ranges
from shardc.solver.problem.problem import Floats


class OffloadedPrices(KnownPrices):
    """Costs of stages that offload what does not fit, by prices that are known."""

    def __init__(self, prices: KnownPrices) -> None:
        super().__init__(prices.costs, prices.views, prices.cluster, prices.limit, prices.backward)
        self._share(prices)
        self._bytes_per_s = self.cluster.device.host_bandwidth_bytes_per_s
        assert self._bytes_per_s > 0.0, "the link to the host is known"

    def _otherwise_s(self, ranges: Ranges, held: int) -> Floats:
        moved = ranges.moved(held, self.limit)
        return np.maximum(ranges.seconds, moved / self._bytes_per_s)

    def moved_bytes(self, size: int, count: int, held: int, first: int, last: int) -> float:
        """What a stage moves of each microbatch on each device, each way."""
        view, point = self._choice(size, count, held, first, last)
        return float(self.at_point(view, count, point).moved(held, self.limit)[first, last])

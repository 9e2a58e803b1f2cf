"""How long calls take on a machine that may have other work to do."""

import math
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import msgspec

from shardc.errors import ClusterError

Clock = Callable[[], float]


class Sample(msgspec.Struct, frozen=True):
    """One measurement.

    Attributes:
        kind: "product", "memory", "launch", "call", the kind of a collective, "transfer" or
            "to_host".
        dtype: of the elements.
        sizes: of a product rows, columns and depth; of "launch" the kernels of the program; of a
            collective the devices of a group and the bytes of its result on one device; else the
            bytes that are read and written, or sent, on one device.
        seconds: that the fastest quarter of the repeats took at most.
        spread: share by which the median of the repeats is longer: how busy the machine was.
    """

    kind: str
    dtype: str
    sizes: tuple[int, ...]
    seconds: float
    spread: float


class Timer:
    """Times calls until a deadline.

    Args:
        limit_s: for all samples together.
        repeats: of each call; the call itself is repeated inside until it takes `least_s`.
    """

    def __init__(
        self,
        limit_s: float,
        repeats: int = 9,
        least_s: float = 2e-3,
        clock: Clock = time.perf_counter,
    ) -> None:
        self.repeats, self.least_s, self.clock = repeats, least_s, clock
        self.end_s = clock() + limit_s
        self.samples: list[Sample] = []

    @property
    def is_late(self) -> bool:
        """Whether the time is used up: what was not measured yet is left out."""
        return self.clock() >= self.end_s

    @property
    def busy(self) -> float:
        """Median of the samples' spreads; 0 without any."""
        return median(each.spread for each in self.samples) if self.samples else 0.0

    def add(
        self,
        kind: str,
        dtype: str,
        sizes: tuple[int, ...],
        call: Callable[[], Any],
        count: int | None = None,
    ) -> float:
        """Seconds of one call, which returns what JAX can wait for; also kept as a sample.

        Args:
            count: calls in a row; None: as many as take `least_s`. Processes of one job must make
                equally many.
        Raises:
            ClusterError: SHARDC-103, a device failed or went away.
        """
        import jax

        try:
            jax.block_until_ready(call())
            inner = count or max(1, min(200, math.ceil(self.least_s / self._taken(call, 1))))
            taken = sorted(self._taken(call, inner) for _ in range(self.repeats))
        except jax.errors.JaxRuntimeError as error:
            raise ClusterError(
                f"a device failed while '{kind}' of {dtype} {sizes} was measured: {error}",
                help="calibrate again with the devices that are left: --devices N",
                code="SHARDC-103",
            ) from error
        seconds = max(taken[len(taken) // 4], 1e-9)
        spread = max(median(taken) / seconds - 1, 0.0)
        self.samples.append(Sample(kind, dtype, sizes, seconds, spread))
        return seconds

    def _taken(self, call: Callable[[], Any], count: int) -> float:
        import jax

        start_s = self.clock()
        found = [call() for _ in range(count)]
        jax.block_until_ready(found)
        return max((self.clock() - start_s) / count, 1e-9)

"""Measures the time of calls on a machine that may be busy."""

import math
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import msgspec

from shardc.errors import ClusterError

NOISE = 0.02  # of a call, which repeats differ by on a quiet machine

Clock = Callable[[], float]
Key = tuple[str, str, tuple[int, ...], str]


class Sample(msgspec.Struct, frozen=True):
    """One measurement.

    Attributes:
        kind: "product", "memory", "launch", "call", the kind of a collective, "between" (what a
            program does besides its collectives), "transfer" or "to_host".
        dtype: of the elements.
        sizes: rows, columns and depth of a product; number of kernels of a "launch"; devices of
            a group and bytes of the result on one device of a collective, or of what is between
            several; otherwise the bytes read and written, or sent, on one device.
        seconds: upper bound of the fastest quarter of the repeats.
        spread: relative excess of the median repeat: how busy the machine was.
        level: of links, by name, that a collective or transfer used; "" for other kinds.
    """

    kind: str
    dtype: str
    sizes: tuple[int, ...]
    seconds: float
    spread: float
    level: str = ""

    @property
    def key(self) -> Key:
        """What was measured."""
        return self.kind, self.dtype, self.sizes, self.level


class Timer:
    """Times calls until a deadline.

    Args:
        limit_s: for all samples together.
        repeats: of each call; the call itself is repeated inside until it takes `least_s`.
        agree: whether any process is late, for measurements in which processes of a job meet.
    """

    def __init__(
        self,
        limit_s: float,
        repeats: int = 9,
        least_s: float = 2e-3,
        clock: Clock = time.perf_counter,
        agree: Callable[[bool], bool] = bool,
    ) -> None:
        self.repeats, self.least_s, self.clock, self.agree = repeats, least_s, clock, agree
        self.end_s = clock() + limit_s
        self.samples: list[Sample] = []

    @property
    def is_late(self) -> bool:
        """Whether the time limit is reached; remaining measurements are skipped."""
        return self.agree(self.clock() >= self.end_s)

    @property
    def busy(self) -> float:
        """Median of the samples' spreads; 0 if there are none."""
        return median(each.spread for each in self.samples) if self.samples else 0.0

    def add(
        self,
        kind: str,
        dtype: str,
        sizes: tuple[int, ...],
        call: Callable[[], Any],
        count: int | None = None,
        level: str = "",
        inside: int = 1,
        less_s: float = 0.0,
    ) -> float:
        """Times one call, in seconds, and keeps it as a sample. The call returns a JAX value.

        Args:
            count: calls in a row; None: as many as take `least_s`. All processes of a job must use
                the same count.
            level: of a sample.
            inside: how often one call does what is measured.
            less_s: seconds of what it does besides, each time. A difference below NOISE of the
                whole counts as NOISE.
        Raises:
            ClusterError: SHARDC-103, a device failed or disappeared.
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
        quarter, half = taken[len(taken) // 4] / inside, median(taken) / inside
        seconds = max(quarter - less_s, NOISE * quarter)
        spread = max(half / quarter - 1, 0.0)
        self.samples.append(Sample(kind, dtype, sizes, seconds, spread, level))
        return seconds

    def _taken(self, call: Callable[[], Any], count: int) -> float:
        import jax

        start_s = self.clock()
        found = [call() for _ in range(count)]
        jax.block_until_ready(found)
        return max((self.clock() - start_s) / count, 1e-9)

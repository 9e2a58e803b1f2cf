"""Fits a cluster's constants to measurements, using the cost model itself."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from shardc.calibrate.robust import Fitted, robust_fit
from shardc.calibrate.timer import Sample
from shardc.cluster import Device, Timing
from shardc.cost.collectives import all_gather_s, all_reduce_s, all_to_all_s, reduce_scatter_s
from shardc.cost.links import Link
from shardc.cost.roofline import op_time_s
from shardc.plan.priced_work import Work

COLLECTIVES: Mapping[str, Callable[[int, Link, float], float]] = {
    "all_reduce": all_reduce_s,
    "all_gather": all_gather_s,
    "reduce_scatter": reduce_scatter_s,
    "all_to_all": all_to_all_s,
}
LARGE_BYTES = 1 << 16  # smaller transfers measure the cost of a message, not of a byte


class Residual(NamedTuple):
    """A sample and the fitted model's prediction."""

    sample: Sample
    predicted_s: float

    @property
    def relative(self) -> float:
        return self.predicted_s / self.sample.seconds - 1


class Computes(NamedTuple):
    """A device's constants, the relative error of each, and the residuals."""

    device: Device
    errors: dict[str, float]
    residuals: list[Residual]


class Sends(NamedTuple):
    """The constants of links; `transfer_efficiency` and those of `groups`, by their number of
    devices, are shares of `bandwidth_bytes_per_s`."""

    bandwidth_bytes_per_s: float
    latency_s: float
    launch_s: float
    groups: dict[int, float]
    transfer_efficiency: float
    errors: dict[str, float]
    residuals: list[Residual]


def fit_device(samples: Sequence[Sample], name: str, memory_bytes: int) -> Computes:
    """Fits a device to samples of the kinds "product", "memory" and "launch".

    `flops_per_s` is the rate of a large product, so product_efficiency is 1. A dtype whose
    products were not measured gets half the rate of the slowest one.
    """
    used = [each for each in samples if each.kind in ("product", "memory", "launch")]
    dtypes = sorted({each.dtype for each in used if each.kind == "product"})
    peaks = {
        dtype: max(_flops(each) / each.seconds for each in used if _is_product(each, dtype))
        for dtype in dtypes
    }
    moved = [(each.sizes[0], each.seconds) for each in used if each.kind == "memory"]
    most, seconds = max(moved, default=(1e10, 1.0))  # the others may fit into a cache
    bandwidth = most / seconds
    names = [*dtypes, "bandwidth", "half_side", "half_depth", "launch_s"]
    start = [*peaks.values(), bandwidth, 16.0, 16.0, 1e-6]
    low = [*(0.5 * peak for peak in peaks.values()), 0.5 * bandwidth, 0.1, 0.1, 1e-9]
    high = [*(10 * peak for peak in peaks.values()), 10 * bandwidth, 2e3, 2e3, 1e-2]
    chains = _pairs([each for each in used if each.kind == "launch"])
    priced = [each for each in used if each.kind != "launch"]

    def device(values: Sequence[float]) -> Device:
        named = dict(zip(names, map(float, values), strict=True))
        rates = {dtype: named[dtype] for dtype in dtypes}
        return Device(
            name,
            memory_bytes,
            {"default": 0.5 * min(rates.values(), default=1e10), **rates},
            named["bandwidth"],
            Timing(
                half_side=named["half_side"],
                half_depth=named["half_depth"],
                launch_s=named["launch_s"],
            ),
        )

    def predicted(values: Sequence[float]) -> list[float]:
        found = device(values)
        one = [op_time_s(_work(each), found) for each in priced]
        return [*one, *(kernels * found.timing.launch_s for kernels, _ in chains)]

    taken = np.array([*(each.seconds for each in priced), *(seconds for _, seconds in chains)])
    fitted = _fit(predicted, taken, start, low, high)
    found = device(list(fitted.values))
    errors = dict(zip(names, map(float, fitted.errors), strict=True))
    residuals = [Residual(each, op_time_s(_work(each), found)) for each in priced]
    return Computes(found, errors, residuals)


def fit_links(samples: Sequence[Sample], level: str) -> Sends | None:
    """Fits the links of a level to its collectives and transfers; None if there are none."""
    samples = [each for each in samples if each.level == level]
    used = [each for each in samples if each.kind in COLLECTIVES]
    if not used:
        return None
    fastest = max(2 * each.sizes[1] / each.seconds for each in used)
    groups = sorted({each.sizes[0] for each in used})
    names = [f"{level} latency_s", f"{level} launch_s"]
    names += [f"{level} bandwidth of {n}" for n in groups]
    start = [1e-6, 1e-5, *(fastest for _ in groups)]
    low = [1e-9, 1e-9, *(fastest / 100 for _ in groups)]
    high = [1e-1, 1e-1, *(fastest * 100 for _ in groups)]

    def predicted(values: Sequence[float]) -> list[float]:
        latency_s, launch_s, *rates = map(float, values)
        rate = dict(zip(groups, rates, strict=True))
        return [_collective_s(each, rate[each.sizes[0]], latency_s, launch_s) for each in used]

    fitted = _fit(predicted, np.array([each.seconds for each in used]), start, low, high)
    latency_s, launch_s, *rates = map(float, fitted.values)
    sent = [each for each in samples if each.kind == "transfer" and each.sizes[0] >= LARGE_BYTES]
    moved = sorted(each.sizes[0] / each.seconds for each in sent)
    transfer = moved[len(moved) // 2] if moved else max(rates)
    whole = max(*rates, transfer)
    residuals = [
        Residual(each, seconds)
        for each, seconds in zip(used, predicted(list(fitted.values)), strict=True)
    ]
    return Sends(
        whole,
        latency_s,
        launch_s,
        {n: float(f"{rate / whole:.3g}") for n, rate in zip(groups, rates, strict=True)},
        transfer / whole,
        dict(zip(names, map(float, fitted.errors), strict=True)),
        residuals,
    )


def call_s(samples: Sequence[Sample]) -> float:
    """Host seconds for one call of a compiled program."""
    return min((each.seconds for each in samples if each.kind == "call"), default=0.0)


def _fit(
    predicted: Callable[[Sequence[float]], list[float]],
    taken: np.ndarray,
    start: Sequence[float],
    low: Sequence[float],
    high: Sequence[float],
) -> Fitted:
    def misses(values: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.log(np.array(predicted(list(values))) / taken)
        return found

    return robust_fit(misses, start, low, high)


def _pairs(chains: Sequence[Sample]) -> list[tuple[int, float]]:
    """(kernels, seconds) between each chain and the next longer one: the call overhead cancels."""
    found = sorted((each.sizes[0], each.seconds) for each in chains)
    between = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(found)]
    return [(kernels, seconds) for kernels, seconds in between if seconds > 0]


def _is_product(sample: Sample, dtype: str) -> bool:
    return sample.kind == "product" and sample.dtype == dtype


def _flops(sample: Sample) -> float:
    rows, columns, depth = sample.sizes
    return 2.0 * rows * columns * depth


def _work(sample: Sample) -> Work:
    if sample.kind == "memory":
        return Work(sample.dtype, 0.0, sample.sizes[0], 1.0)
    rows, columns, depth = sample.sizes
    itemsize = {"float64": 8, "float32": 4}.get(sample.dtype, 2)
    num_bytes = itemsize * (rows * depth + depth * columns + rows * columns)
    return Work(sample.dtype, _flops(sample), num_bytes, 1.0, (1, rows, columns, depth))


def _collective_s(sample: Sample, bandwidth: float, latency_s: float, launch_s: float) -> float:
    n, num_bytes = sample.sizes
    return COLLECTIVES[sample.kind](n, Link(bandwidth, latency_s, bandwidth, launch_s), num_bytes)


def rounded[Constants: msgspec.Struct](constants: Constants) -> Constants:
    """The constants rounded to three digits, the precision of the measurements."""
    changes = {
        name: float(f"{value:.3g}")
        for name in constants.__struct_fields__
        if isinstance(value := getattr(constants, name), float)
    }
    return msgspec.structs.replace(constants, **changes)

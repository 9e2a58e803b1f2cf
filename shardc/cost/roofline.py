"""Seconds of an op on one device."""

import re

from shardc.cluster import Device
from shardc.plan.work import Work

ALIGNED_BITS = 128  # what tensor cores load at once


def op_time_s(work: Work, device: Device) -> float:
    """Seconds that one device takes for an op.

    The larger of arithmetic and memory time, at the rates that the device reaches, behind the start
    of its kernel. A product reaches its share of the peak as its sides and its depth grow:
    size / (size + half) of it for each, and less where one of them is not a multiple of 16 bytes.
    Sources: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009; NVIDIA, "Matrix
    Multiplication Background User's Guide", section 3.1 (alignment).
    """
    timing = device.timing
    peak = device.peak_flops_per_s(work.dtype)
    if work.product:
        peak *= timing.product_efficiency * product_share(work.product, work.dtype, device)
    bandwidth = device.memory_bandwidth_bytes_per_s * timing.memory_efficiency
    busy_s = max(work.flops / peak, work.num_bytes / bandwidth)
    return busy_s + work.launches * timing.launch_s


def product_share(product: tuple[int, ...], dtype: str, device: Device) -> float:
    """Share of what a large product reaches that one of (batch, rows, columns, depth) does."""
    _, *sizes, depth = product
    timing = device.timing
    share = depth / (depth + timing.half_depth) if timing.half_depth else 1.0
    for side in sizes:
        share *= side / (side + timing.half_side) if timing.half_side else 1.0
    unit = max(ALIGNED_BITS // _bits(dtype), 1)
    if any(size % unit for size in (*sizes, depth)):
        share *= timing.unaligned
    return max(share, 1e-6)


def _bits(dtype: str) -> int:
    """Of an element whose type says it, as `bfloat16` does; those of float8_e4m3fn are 8."""
    digits = re.search(r"\d+", dtype)
    return int(digits[0]) if digits else 8

"""Seconds of an op on one device."""

from shardc.cluster import Device
from shardc.plan.work import Work


def op_time_s(work: Work, device: Device) -> float:
    """Seconds that one device takes for an op.

    The larger of arithmetic and memory time, at the rates that the device reaches, behind the start
    of its kernel; no less than the host needs to ask for it. A product reaches its share of the
    peak as its sides and its depth grow: size / (size + half) of it for each.
    Source: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009.
    """
    timing = device.timing
    peak = device.peak_flops_per_s(work.dtype)
    if work.product:
        peak *= timing.product_efficiency * product_share(work.product, device)
    bandwidth = device.memory_bandwidth_bytes_per_s * timing.memory_efficiency
    busy_s = max(work.flops / peak, work.num_bytes / bandwidth)
    return max(busy_s + work.launches * timing.launch_s, work.launches * timing.dispatch_s)


def product_share(product: tuple[int, ...], device: Device) -> float:
    """Share of what a large product reaches that one of (batch, rows, columns, depth) does."""
    _, rows, columns, depth = product
    side, deep = device.timing.half_side, device.timing.half_depth
    share = 1.0
    for size, half in ((rows, side), (columns, side), (depth, deep)):
        share *= size / (size + half) if half else 1.0
    return max(share, 1e-6)

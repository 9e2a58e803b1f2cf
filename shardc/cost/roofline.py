"""The time of an op on one device."""

from shardc.cluster import Device
from shardc.cluster.devices import bits_of
from shardc.plan.priced_work import Work

ALIGNED_BITS = 128  # width of a tensor core load


def op_time_s(work: Work, device: Device) -> float:
    """Seconds of an op on one device.

    The larger of arithmetic and memory time, at the rates that the device reaches, plus the launch
    of its kernel. A product reaches a share of the peak that grows with its sides and its depth:
    size / (size + half) for each, and less if one of them is not a multiple of 16 bytes.
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
    """The rate of a product (batch, rows, columns, depth), as a share of that of a large one."""
    _, *sizes, depth = product
    timing = device.timing
    share = depth / (depth + timing.half_depth) if timing.half_depth else 1.0
    for side in sizes:
        share *= side / (side + timing.half_side) if timing.half_side else 1.0
    unit = max(ALIGNED_BITS // bits_of(dtype), 1)
    if any(size % unit for size in (*sizes, depth)):
        share *= timing.unaligned
    return max(share, 1e-6)

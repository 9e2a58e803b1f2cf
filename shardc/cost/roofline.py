"""Seconds of an op on one device."""

from shardc.cluster import Device


def op_time_s(flops: float, num_bytes: float, dtype: str, device: Device) -> float:
    """Seconds that one device takes for an op: the larger of arithmetic and memory time.

    Peak numbers, so a lower bound; an op that XLA fuses with its neighbours moves fewer bytes.
    Source: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009.

    Args:
        flops: what this device computes (its share of a sharded op).
        num_bytes: what it reads and writes in its own memory.
        dtype: NumPy/ml_dtypes name of the operands, which selects the peak.
    """
    arithmetic_s = flops / device.peak_flops_per_s(dtype)
    return max(arithmetic_s, num_bytes / device.memory_bandwidth_bytes_per_s)

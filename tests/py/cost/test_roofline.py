"""The roofline: the larger of arithmetic and memory time, at the rates that are reached."""

import pytest

from shardc.cluster import Device, Timing
from shardc.cost.roofline import op_time_s
from shardc.plan.priced_work import Work

DEVICE = Device("d", 1, {"default": 10.0, "bfloat16": 100.0}, 5.0)


def behind(**timing: float) -> Device:
    return Device("d", 1, DEVICE.flops_per_s, 5.0, Timing(**timing))


def test_arithmetic_bound_op():
    assert op_time_s(Work("float32", 200, 5), DEVICE) == 20.0
    assert op_time_s(Work("bfloat16", 200, 5), DEVICE) == 2.0


def test_memory_bound_op():
    assert op_time_s(Work("float32", 10, 50), DEVICE) == 10.0
    assert op_time_s(Work("float32", 0, 0), DEVICE) == 0.0


def test_products_of_small_sides_reach_less():
    device = behind(product_efficiency=0.5, half_side=8.0)
    square = Work("bfloat16", 100, 0, 1.0, (1, 8, 8, 8))
    assert op_time_s(square, device) == pytest.approx(2.0 * 2 * 2)  # half of it for each side
    wide = Work("bfloat16", 100, 0, 1.0, (1, 8, 8_000_000, 8))
    assert op_time_s(wide, device) == pytest.approx(2.0 * 2, rel=1e-5)


def test_products_that_are_not_aligned_reach_less():
    device = behind(unaligned=0.25)
    for sizes, share in (((8, 8, 8), 1.0), ((8, 9, 8), 0.25), ((8, 8, 4), 0.25)):
        assert op_time_s(Work("bfloat16", 100, 0, 1.0, (1, *sizes)), device) == 1.0 / share
    assert op_time_s(Work("float32", 100, 0, 1.0, (1, 8, 8, 4)), device) == 10.0  # of 4 bytes each


def test_the_start_of_a_kernel_comes_before_it():
    device = behind(launch_s=1.0)
    assert op_time_s(Work("float32", 100, 0, 1.0), device) == 11.0
    assert op_time_s(Work("float32", 10, 0, 0.0), device) == 1.0  # another op of its kernel starts

"""The roofline: the larger of arithmetic and memory time."""

from shardc.cluster import Device
from shardc.cost.roofline import op_time_s

DEVICE = Device("d", 1, {"default": 10.0, "bfloat16": 100.0}, 5.0)


def test_arithmetic_bound_op():
    assert op_time_s(200, 5, "float32", DEVICE) == 20.0
    assert op_time_s(200, 5, "bfloat16", DEVICE) == 2.0


def test_memory_bound_op():
    assert op_time_s(10, 50, "float32", DEVICE) == 10.0
    assert op_time_s(0, 0, "float32", DEVICE) == 0.0

"""Collective costs against the closed forms and against each other."""

import pytest

from shardc.cost import collectives as c
from shardc.cost.links import Link

LINK = Link(100.0, 0.5, 50.0)
SLOW = Link(1.0, 0.5, 1.0)


def test_ring_all_gather_of_80_bytes_over_4():
    assert c.all_gather_s(4, LINK, 80) == pytest.approx(3 * (0.5 + 20 / 100))
    assert c.all_gather_bytes(4, 80) == 60


def test_all_reduce_is_reduce_scatter_and_all_gather():
    parts = c.reduce_scatter_s(4, LINK, 80) + c.all_gather_s(4, LINK, 80)
    assert c.all_reduce_s(4, LINK, 80) == pytest.approx(parts)
    assert c.all_reduce_bytes(4, 80) == c.reduce_scatter_bytes(4, 80) + c.all_gather_bytes(4, 80)


def test_all_to_all_uses_its_own_bandwidth():
    assert c.all_to_all_s(4, LINK, 80) == pytest.approx(3 * (0.5 + 20 / 50))
    assert c.all_to_all_bytes(4, 80) == 60


def test_one_device_sends_nothing():
    times = (c.all_gather_s, c.reduce_scatter_s, c.all_reduce_s, c.all_to_all_s)
    sizes = (c.all_gather_bytes, c.reduce_scatter_bytes, c.all_reduce_bytes, c.all_to_all_bytes)
    assert [f(1, LINK, 80) for f in times] == [0.0] * 4
    assert [f(1, 80) for f in sizes] == [0.0] * 4


def test_all_reduce_over_two_axes_reduces_over_the_fast_one_first():
    both = c.all_reduce_over_s([(2, SLOW), (4, LINK)], 80)
    assert both == pytest.approx(c.all_reduce_s(4, LINK, 80) + c.all_reduce_s(2, SLOW, 20))
    assert c.all_reduce_over_s([(4, LINK)], 80) == c.all_reduce_s(4, LINK, 80)
    assert c.all_reduce_over_bytes([2, 4], 80) == c.all_reduce_bytes(8, 80)


def test_all_reduce_over_two_axes_is_launched_once():
    slow, fast = (Link(1.0, 0.5, 1.0, launch_s=s) for s in (3.0, 7.0))
    both = c.all_reduce_over_s([(2, slow), (4, fast), (1, slow)], 80)
    apart = c.all_reduce_s(2, slow, 20) + c.all_reduce_s(4, fast, 80)
    assert both == pytest.approx(apart - 3.0)


def test_transfer():
    assert c.transfer_s(LINK, 50) == 1.0
    assert c.transfer_s(LINK, 0) == 0.0

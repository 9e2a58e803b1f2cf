"""What a call of a function takes: the device, or the host that runs ahead of it."""

import msgspec
import pytest

from shardc.cluster import Cluster, Device, Level, Software
from shardc.cost.model import CostModel
from shardc.plan.layout import Mesh
from shardc.plan.predicted import Asked, Collective
from shardc.plan.priced_work import Work

PAIR = Mesh((("x", 2),), (0, 1))
SMALL = (Work("float32", 0, 0, 1.0), 10.0)
LARGE = (Work("float32", 40, 0, 1.0), 1.0)  # 4 s
SUM = Collective("all_reduce", ("x",), "float32", 10, 2)


def model(**software: float) -> CostModel:
    device = Device("d", 1, {"default": 10.0}, 5.0, software=Software(**software))
    return CostModel(Cluster("c", device, (Level("node", 2, 10.0, 0.5),)))


def test_the_host_runs_ahead_of_a_device_that_has_more_to_do():
    asked = Asked((SMALL, LARGE))
    assert model(dispatch_s=0.25).call_s((asked,), PAIR) == 4.0  # 2.75 s of the host are hidden
    assert model(dispatch_s=1.0).call_s((asked,), PAIR) == 11.0


def test_some_of_a_host_that_takes_as_long_as_the_device_shows():
    asked = Asked((SMALL, LARGE))
    parts = [model(dispatch_s=4 / 11, host_exposed=e).call_s((asked,), PAIR) for e in (0, 0.5, 1)]
    assert parts == pytest.approx([4.0, 4.0 * 2**0.5, 8.0])
    assert model(host_exposed=0.5).call_s((asked,), PAIR) == 4.0


def test_a_loop_that_the_host_holds_up_is_not_hidden_behind_work_outside_it():
    outside, loop = Asked((LARGE,)), Asked(((Work("float32", 0, 0, 1.0), 1.0),), times=10.0)
    assert model(dispatch_s=0.25).call_s((outside, loop), PAIR) == 4.0 + 10 * 0.25


def test_hosts_wait_for_each_other_at_collectives():
    asked = Asked((SMALL,), (SUM,))
    device_s = model().call_s((asked,), PAIR)
    assert device_s == pytest.approx(2 * 2 * (0.5 + 5 / 2 / 10))
    assert model(dispatch_s=1.0, wait_s=3.0).call_s((asked,), PAIR) == 10.0 + 2 * 3.0
    group = Mesh((("x", 4),), (0, 1, 2, 3))
    wide = model(dispatch_s=1.0, wait_s=3.0)
    four = CostModel(msgspec.structs.replace(wide.cluster, levels=(Level("node", 4, 10.0, 0.5),)))
    assert four.call_s((asked,), group) == 10.0 + 2 * 2 * 3.0  # a second doubling

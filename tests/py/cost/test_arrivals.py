"""What bringing an argument takes: nothing where it lies, its missing part anywhere else."""

import pytest

from shardc.cluster import Cluster, Device, Level
from shardc.cost.arrivals import Arrival, arrival_s
from shardc.plan.layout import Mesh, TensorSharding

DEVICE = Device("test", 1 << 30, {"default": 1e9}, 1e12)
CLUSTER = Cluster("test", DEVICE, (Level("in", 4, 1e6, 1e-6), Level("out", 2, 1e5, 1e-3)))
MESH = Mesh((("x", 2), ("y", 2)), (0, 1, 2, 3))
SHAPE = (8, 16)
SPLIT = TensorSharding((("x",), ("y",)))
WHOLE = TensorSharding.replicated(2)


def seconds(mesh: Mesh, lies: TensorSharding, wanted_on: Mesh, wanted: TensorSharding) -> float:
    return arrival_s(Arrival(mesh, lies, SHAPE), wanted_on, wanted, 4, CLUSTER)


@pytest.mark.parametrize("wanted", [SPLIT, TensorSharding((("x", "y"), ())), WHOLE])
def test_a_whole_array_is_everywhere(wanted: TensorSharding) -> None:
    assert seconds(MESH, WHOLE, MESH, wanted) == 0.0


def test_an_array_that_lies_there_stays_whatever_its_axes_are_called() -> None:
    same = Mesh((("a", 2), ("b", 2), ("one", 1)), (0, 1, 2, 3))
    assert seconds(same, TensorSharding((("a",), ("b",))), MESH, SPLIT) == 0.0


def test_what_a_device_lacks_is_sent_over_the_slowest_link() -> None:
    # Three quarters of 512 bytes, from three devices of a node; all of it to another node.
    assert seconds(MESH, SPLIT, MESH, WHOLE) == pytest.approx(3e-6 + 384 / 1e6)
    other = Mesh((("x", 4),), (4, 5, 6, 7))
    assert seconds(MESH, WHOLE, other, WHOLE) == pytest.approx(1e-3 + 512 / 1e5)


def test_half_of_a_part_may_be_there() -> None:
    # Device 1 of the line holds rows 2 and 3; of columns on the grid it needs half a row of each.
    line = TensorSharding((("x", "y"), ()))
    # Needed: 8 x 4 elements; there: 2 x 4 of them.
    wanted = TensorSharding(((), ("x", "y")))
    assert seconds(MESH, line, MESH, wanted) == pytest.approx(3e-6 + (8 - 2) * 4 * 4 / 1e6)

"""A message between device groups gives what a copy gives, in the receiver's layout."""

import itertools

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from shardc.errors import ShardcError
from shardc.runtime.messages.between import Between, CellProgram, Move, _JointRoute
from shardc.runtime.transfers import Transfers
from shardc.runtime.transport import InProcess

DEVICES = np.array(jax.devices())
WHOLE, ROWS, BOTH = PartitionSpec(), PartitionSpec("x"), PartitionSpec("x", "y")
LAYOUTS = {
    "2x2 from 0, both": NamedSharding(Mesh(DEVICES[:4].reshape(2, 2), ("x", "y")), BOTH),
    "2x2 from 4, rows": NamedSharding(Mesh(DEVICES[4:].reshape(2, 2), ("x", "y")), ROWS),
    "one, whole": NamedSharding(Mesh(DEVICES[5:6], ("x",)), WHOLE),
    "8, rows": NamedSharding(Mesh(DEVICES, ("x",)), ROWS),
    "2 from 3, whole": NamedSharding(Mesh(DEVICES[3:5], ("x",)), WHOLE),
}


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(LAYOUTS, 2)))
def test_values_arrive_as_a_copy_would(source, target):
    values = [
        np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32),
        np.arange(32, dtype=np.int32).reshape(8, 4),
    ]
    given = [jax.device_put(value, LAYOUTS[source]) for value in values]
    moves = tuple(
        Move(LAYOUTS[source], LAYOUTS[target], value.shape, value.dtype.name) for value in values
    )
    route = _JointRoute(CellProgram(moves))
    route.send(given)
    for value, got in zip(values, route.receive(), strict=True):
        assert got.sharding == LAYOUTS[target]
        np.testing.assert_array_equal(got, value)
    with pytest.raises(ShardcError) as caught:
        route.receive()
    assert caught.value.code == "SHARDC-266"


@pytest.mark.parametrize("dtype", ["bfloat16", "bool", "uint8", "float64"])
def test_numbers_and_other_types_arrive(dtype):
    with jax.enable_x64(True):
        value = np.asarray(1, jax.numpy.dtype(dtype))
        move = Move(LAYOUTS["one, whole"], LAYOUTS["2 from 3, whole"], (), dtype)
        route = _JointRoute(CellProgram((move,)))
        route.send([jax.device_put(value, move.source)])
        (got,) = route.receive()
    assert got.dtype == value.dtype and np.asarray(got) == value


def test_what_stays_in_one_process_is_copied_without_a_collective():
    between = Between(InProcess(Transfers()))
    source, target = LAYOUTS["2x2 from 0, both"], LAYOUTS["8, rows"]
    assert not isinstance(between.route([Move(source, target, (8, 4), "float32")]), _JointRoute)
    value = jax.device_put(np.ones((8, 4), np.float32), source)
    np.testing.assert_array_equal(between.bring(value, target), 1)

"""Meshes and shardings in JAX's words."""

import jax
import pytest
from jax.sharding import PartitionSpec

from shardc.backend.meshes import abstract_mesh, concrete_mesh, local_shape, partition_spec
from shardc.plan.executable import ValueSpec
from shardc.plan.layout import OWN_AXIS, Mesh, TensorSharding

GRID = Mesh((("x", 2), ("y", 2)), (4, 5, 6, 7))


def test_devices_are_row_major_over_the_axes_and_the_mesh_is_marked_as_ours():
    mesh = concrete_mesh(GRID, jax.devices())
    assert mesh.axis_names == ("x", "y", OWN_AXIS)
    assert [[device.id for device in row] for row in mesh.devices[..., 0]] == [[4, 5], [6, 7]]
    assert mesh.abstract_mesh.axis_sizes == abstract_mesh(GRID).axis_sizes


def test_a_mesh_without_axes_is_one_device():
    mesh = concrete_mesh(Mesh((), (3,)), jax.devices())
    assert mesh.size == 1
    assert mesh.devices.ravel()[0] == jax.devices()[3]


def test_specs_name_axes_per_dim_and_leave_partial_sums_out():
    sharding = TensorSharding((("x",), (), ("y", "z")), unreduced=("w",))
    assert partition_spec(sharding) == PartitionSpec("x", None, ("y", "z"))
    assert partition_spec(TensorSharding(())) == PartitionSpec()


def test_local_shape_divides_each_dim_by_its_axes():
    sharding = TensorSharding((("x", "y"), ()))
    assert local_shape(ValueSpec("v0", (8, 3), "float32", sharding), GRID) == (2, 3)
    with pytest.raises(AssertionError, match="not divided evenly"):
        local_shape(ValueSpec("v0", (6, 3), "float32", sharding), GRID)

"""Conversion of shardc's meshes and shardings to JAX's."""

import math
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

from shardc.plan.executable import ValueSpec
from shardc.plan.layout import OWN_AXIS, Mesh, TensorSharding


def abstract_mesh(mesh: Mesh) -> AbstractMesh:
    """The axes of `mesh` without its devices, so that meshes of equal shape share a lowering.

    The last axis, `OWN_AXIS`, distinguishes shardc's meshes from the user's.
    """
    names = (*(name for name, _ in mesh.axes), OWN_AXIS)
    return AbstractMesh((*mesh.shape, 1), names, axis_types=(AxisType.Auto,) * len(names))


def mesh_devices(mesh: Mesh, devices: Sequence[jax.Device]) -> tuple[jax.Device, ...]:
    """The devices of `mesh`, row-major over its axes."""
    return tuple(devices[i] for i in mesh.device_ids)


def concrete_mesh(mesh: Mesh, devices: Sequence[jax.Device]) -> jax.sharding.Mesh:
    """`mesh` on real devices, with the axes that `abstract_mesh` gives."""
    abstract = abstract_mesh(mesh)
    own = np.empty(len(mesh.device_ids), dtype=object)
    own[:] = mesh_devices(mesh, devices)
    return jax.sharding.Mesh(
        own.reshape(abstract.axis_sizes), abstract.axis_names, axis_types=abstract.axis_types
    )


def partition_spec(sharding: TensorSharding) -> PartitionSpec:
    """The axes that split each dim.

    Unreduced axes do not appear: JAX treats the value as replicated along them, while the devices
    hold partial sums. Programs pass such values to each other unchanged; no other code may read
    them.
    """
    spec: Callable[..., PartitionSpec] = PartitionSpec
    return spec(*(dim[0] if len(dim) == 1 else (dim or None) for dim in sharding.dims))


def local_shape(spec: ValueSpec, mesh: Mesh) -> tuple[int, ...]:
    """Shape of one device's part on `mesh`."""
    counts = [math.prod(mesh.size(axis) for axis in dim) for dim in spec.sharding.dims]
    assert len(counts) == len(spec.shape) and all(
        size % count == 0 for size, count in zip(spec.shape, counts, strict=True)
    ), f"{spec.value}: shape {spec.shape} is not divided evenly by {spec.sharding.dims}"
    return tuple(size // count for size, count in zip(spec.shape, counts, strict=True))

"""The state of several stages on one mesh, for JAX functions that combine its leaves."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, Sharding

from shardc.plan.layout import STAGE_AXIS
from shardc.runtime.context_mesh import no_context_mesh
from shardc.runtime.messages.array_moves import Mover

SMALL_BYTES = 1024  # arrays up to this size are not worth splitting
Devices = tuple[jax.Device, ...]


def view(tree: Any) -> Any:
    """The same pytree with all arrays on the same devices, as ordinary JAX functions require.

    JAX refuses to compute with arrays of two stages at once; `jax.jit`, `optax.tree.norm` and
    `jnp` functions accept the result of this function. An array on all devices of the tree (a stack
    of scanned layers, the state of a plan without stages) is returned as it is. Others are split
    over all devices as evenly as their dims allow, and small ones are replicated; together the
    devices hold the moved bytes once more. Arrays move between devices, not through the host.

    The result shares the arrays that did not move, so a step that donates the state takes them
    away; `gather` copies all. In a job of several processes all of them call this with the same
    tree.

    Args:
        tree: any pytree; leaves other than `jax.Array`s, and uncommitted arrays, which JAX moves
            as needed, are returned unchanged.
    """
    leaves, structure = jax.tree.flatten(tree)
    arrays = [leaf for leaf in leaves if _is_placed(leaf)]
    places = {_devices(array.sharding) for array in arrays}
    if len(places) < 2:
        return tree
    mesh = _common_mesh(arrays, places)
    everywhere = tuple(mesh.devices.flat)
    mover = Mover()
    with no_context_mesh():
        viewed = [
            mover.bring(leaf, _spread(leaf, mesh))
            if _is_placed(leaf) and _devices(leaf.sharding) != everywhere
            else leaf
            for leaf in leaves
        ]
    return jax.tree.unflatten(structure, viewed)


def _is_placed(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer) and leaf.committed


def _devices(sharding: Sharding) -> Devices:
    """In XLA's order."""
    if isinstance(sharding, NamedSharding):
        return tuple(sharding.mesh.devices.flat)
    return tuple(sorted(sharding.device_set, key=lambda device: device.id))


def _common_mesh(arrays: Sequence[jax.Array], places: set[Devices]) -> Mesh:
    """The mesh over all devices with the most bytes; else the stages' meshes as rows of one."""
    every = set().union(*places)
    num_bytes: dict[Mesh, int] = {}
    for array in arrays:
        if isinstance(array.sharding, NamedSharding):
            mesh: Any = array.sharding.mesh
            num_bytes[mesh] = num_bytes.get(mesh, 0) + _num_bytes(array)
    whole = [mesh for mesh in num_bytes if set(mesh.devices.flat) == every]
    if whole:
        return max(whole, key=num_bytes.__getitem__)
    stages = {tuple(mesh.devices.flat): mesh for mesh in num_bytes if mesh.size > 1}
    meshes = [stages[devices] for devices in sorted(stages, key=lambda own: own[0].id)]
    alike = len({(mesh.axis_names, mesh.axis_sizes) for mesh in meshes}) == 1
    disjoint = sum(mesh.size for mesh in meshes) == len(every)
    if alike and disjoint and STAGE_AXIS not in meshes[0].axis_names:
        devices = np.stack([mesh.devices for mesh in meshes])
        axes = (STAGE_AXIS, *meshes[0].axis_names)
    else:
        devices = np.array(sorted(every, key=lambda device: device.id))
        axes = ("device",)
    return Mesh(devices, axes, axis_types=(AxisType.Auto,) * len(axes))


def _spread(array: jax.Array, mesh: Mesh) -> NamedSharding:
    """Split over all axes that divide it; axes that split it already keep their dims."""
    own = array.sharding
    dims: list[tuple[str, ...]] = [()] * array.ndim
    if isinstance(own, NamedSharding) and all(
        mesh.shape.get(axis) == size for axis, size in own.mesh.shape.items()
    ):
        for dim, entry in enumerate(own.spec):
            if entry is not None and entry is not PartitionSpec.UNCONSTRAINED:
                dims[dim] = entry if isinstance(entry, tuple) else (entry,)
    if _num_bytes(array) >= SMALL_BYTES:
        used = {axis for entry in dims for axis in entry}
        for axis in (axis for axis in mesh.axis_names if axis not in used):
            part = [
                size // math.prod(mesh.shape[split] for split in entry)
                for size, entry in zip(array.shape, dims, strict=True)
            ]
            fits = [dim for dim, size in enumerate(part) if size % mesh.shape[axis] == 0]
            if fits:
                best = max(fits, key=part.__getitem__)
                dims[best] = (*dims[best], axis)
    return NamedSharding(mesh, PartitionSpec(*(entry or None for entry in dims)))


def _num_bytes(array: jax.Array) -> int:
    if jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key):
        return 0  # there are few keys, and JAX does not move parts of them
    return array.nbytes

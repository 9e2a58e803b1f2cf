"""Arrays of which a process holds some pieces, or none."""

from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, Sharding, SingleDeviceSharding


def is_here(sharding: Sharding) -> bool:
    """Whether this process has a device of `sharding`."""
    return bool(sharding.addressable_devices)


def assembled(
    shape: tuple[int, ...], sharding: Sharding, pieces: dict[jax.Device, jax.Array], dtype: Any
) -> jax.Array:
    """The array with `pieces` on this process's devices; there may be none."""
    own = [pieces[device] for device in _own_devices(sharding)]
    array: jax.Array = jax.make_array_from_single_device_arrays(shape, sharding, own, dtype=dtype)
    return array


def nowhere_here(shape: tuple[int, ...], sharding: Sharding, dtype: Any) -> jax.Array:
    """An array on devices of other processes."""
    return assembled(shape, sharding, {}, dtype)


def put(value: np.ndarray[Any, Any], sharding: NamedSharding) -> jax.Array:
    """`value`, which every process has, in `sharding`, without communication.

    `jax.device_put` would compare the value over all processes, even those without a part.
    """
    devices = _own_devices(sharding)
    index = sharding.devices_indices_map(value.shape)
    pieces = jax.device_put([np.asarray(value[index[d]], order="C") for d in devices], devices)
    return assembled(value.shape, sharding, dict(zip(devices, pieces, strict=True)), value.dtype)


def in_memory(array: jax.Array, kind: str | None) -> jax.Array:
    """The array in another memory of its devices; each process copies its own pieces.

    In which memory the other processes have theirs does not matter.

    Args:
        kind: such as "device"; None: as it is.
    """
    if kind is None or array.sharding.memory_kind == kind:
        return array
    pieces = pieces_of(array)
    places = [SingleDeviceSharding(device, memory_kind=kind) for device in pieces]
    moved = jax.device_put(list(pieces.values()), places)
    there = array.sharding.with_memory_kind(kind)
    return assembled(array.shape, there, dict(zip(pieces, moved, strict=True)), array.dtype)


def pieces_of(array: jax.Array) -> dict[jax.Device, jax.Array]:
    """The pieces on this process's devices."""
    return {shard.device: shard.data for shard in array.addressable_shards}


def _own_devices(sharding: Sharding) -> list[jax.Device]:
    return [d for d in _devices(sharding) if d.process_index == jax.process_index()]


def _devices(sharding: Sharding) -> list[jax.Device]:
    if isinstance(sharding, NamedSharding):
        return list(sharding.mesh.devices.flat)
    return sorted(sharding.device_set, key=lambda device: device.id)

"""Moves arrays from one layout to another, sending each byte that a device lacks once."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from shardc.runtime.messages.between import CellProgram
from shardc.runtime.processes.arrays import is_here, nowhere_here, pieces_of, put
from shardc.runtime.transport import Move


class Mover:
    """Moves arrays to their target shardings, one after the other.

    Every process of the job moves the same arrays in the same order. An array on one device, a
    NumPy array or a number belongs to each process, and all have the same. Equal moves share a
    program, which keeps a piece of zeros per device that has nothing to send, so use one mover
    per state.
    """

    def __init__(self) -> None:
        self._programs: dict[Move, CellProgram] = {}

    def bring(self, value: Any, target: NamedSharding, *, donate: bool = False) -> jax.Array:
        """`value` in `target`; itself if it already has that sharding.

        Args:
            donate: free the buffers of an array that moved, unless it holds random keys.
        """
        if jax.numpy.issubdtype(jax.numpy.result_type(value), jax.dtypes.prng_key):
            # JAX has no program that moves keys: move their numbers, with the last dim unsplit.
            numbers = self.bring(jax.random.key_data(value), target)
            keys: jax.Array = jax.random.wrap_key_data(numbers, impl=jax.random.key_impl(value))
            return keys
        if not isinstance(value, jax.Array):
            return put(np.array(value), target)
        source: Any = value.sharding
        if source.is_equivalent_to(target, value.ndim) and set(source.device_set) == set(
            target.device_set
        ):
            return value
        if not isinstance(source, NamedSharding) and jax.process_count() > 1:
            return put(np.array(value), target)
        if not is_here(source) and not is_here(target):
            return nowhere_here(value.shape, target, value.dtype)
        move = Move(source, target, value.shape, value.dtype.name)
        if move not in self._programs:
            self._programs[move] = CellProgram((move,))
        (moved,) = self._programs[move].run([pieces_of(value)])
        if donate:
            value.delete()
        return moved


def in_each_process(values: Sequence[Any]) -> list[Any]:
    """The values, whole on a device of each process; every process calls it with the same."""
    if jax.process_count() == 1:
        return list(values)
    everywhere = one_device_each(jax.devices())
    mover = Mover()
    return [mover.bring(value, everywhere).addressable_data(0) for value in values]


def one_device_each(devices: Sequence[jax.Device]) -> NamedSharding:
    """Whole arrays on the first of `devices` in each process."""
    first = {device.process_index: device for device in reversed(devices)}
    mesh = Mesh(
        np.array([first[process] for process in sorted(first)]),
        ("process",),
        axis_types=(AxisType.Auto,),
    )
    return NamedSharding(mesh, PartitionSpec())

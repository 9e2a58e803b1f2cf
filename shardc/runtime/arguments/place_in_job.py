"""Places the user's arguments where the step reads them, in a job of several processes."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding

from shardc.plan.executable import ArgumentSpec
from shardc.runtime.arguments.place import ArgumentPlacer
from shardc.runtime.messages.between import Between
from shardc.runtime.processes.agreement import Agreement
from shardc.runtime.processes.arrays import (
    assembled,
    in_memory,
    is_here,
    nowhere_here,
    pieces_of,
    put,
)
from shardc.runtime.transfers import Transfers, reshaped_place


class JobPlacer(ArgumentPlacer):
    """Like `ArgumentPlacer`, over processes.

    NumPy arrays, Python numbers and arrays on one device belong to each process, and all must pass
    the same; an array over a mesh is one array of the job. At each step the processes compare
    numbers and layouts.
    """

    def __init__(
        self,
        arguments: Sequence[ArgumentSpec],
        shardings: Sequence[NamedSharding | None],
        shapes: Sequence[tuple[int, ...] | None],
        transfers: Transfers,
        between: Between,
        agreement: Agreement,
    ) -> None:
        super().__init__(arguments, shardings, shapes, transfers)
        self._between = between
        self._agreement = agreement

    def _agreed(self, values: list[Any]) -> list[Any]:
        """Like `ArgumentPlacer`; what one process refuses by itself is no step of it yet.

        Raises:
            InputError: SHARDC-282, another process passes other numbers, or other layouts.
        """
        own = [np.asarray(value) if _is_own(value) else value for value in values]
        self._agreement.check_step([argument.name for argument in self._arguments], own)
        return own

    def completed(self) -> None:
        self._agreement.steps.end()

    def abandoned(self) -> None:
        self._agreement.steps.leave()

    def _put(self, values: list[Any], targets: list[NamedSharding]) -> Sequence[jax.Array]:
        return [put(value, target) for value, target in zip(values, targets, strict=True)]

    def _bring(self, i: int, value: jax.Array, target: NamedSharding) -> jax.Array:
        shape = self._shapes[i]
        assert shape is not None, "an argument that a program reads has a shape"
        value = _without_explicit_axes(in_memory(value, target.memory_kind))
        if self._cut[i]:
            value = self._cut_into_microbatches(value, shape, target)
        if value.sharding.is_equivalent_to(target, value.ndim):
            return value
        return self._between.bring(value, target)

    def _cut_into_microbatches(
        self, value: jax.Array, shape: tuple[int, ...], target: NamedSharding
    ) -> jax.Array:
        source = value.sharding
        if is_here(source):
            return self._transfers.reshape(value, shape, target)
        assert isinstance(source, NamedSharding), "an array of the job is on a mesh"
        return nowhere_here(shape, reshaped_place(source, target), value.dtype)


def _is_own(value: Any) -> bool:
    """Whether a value, such as a number, belongs to each process instead of the whole job."""
    if not isinstance(value, jax.Array):
        return True
    return not isinstance(value.sharding, NamedSharding) and value.is_fully_addressable


def _without_explicit_axes(value: jax.Array) -> jax.Array:
    sharding = value.sharding
    assert isinstance(sharding, NamedSharding), "an array of the job is on a mesh"
    if AxisType.Explicit not in sharding.mesh.axis_types:
        return value
    axes = sharding.mesh.axis_names
    mesh = Mesh(sharding.mesh.devices, axes, axis_types=(AxisType.Auto,) * len(axes))
    same = NamedSharding(mesh, sharding.spec)
    return assembled(value.shape, same, pieces_of(value), value.dtype)

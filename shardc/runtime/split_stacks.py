"""Stacked arrays with rows on several stages: one jax.Array outside, one per stage inside."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from shardc.errors import InputError
from shardc.plan.executable import ArgumentSpec, ResultSpec
from shardc.plan.layout import STAGE_AXIS
from shardc.runtime.arguments.place import checked_array
from shardc.runtime.processes.arrays import assembled, is_here, pieces_of
from shardc.runtime.transfers import Transfers


@dataclass(frozen=True)
class Layout:
    """The sharding of a whole stack, and of its parts.

    Attributes:
        whole: of the stack; its row dim is split over the stages.
        parts: of each stage's rows; the same devices hold the same elements.
    """

    whole: NamedSharding
    parts: tuple[NamedSharding, ...]


class Stack:
    """One stacked argument or result.

    If every stage has the same number of rows on a mesh of the same shape, the stack is one array
    whose row dim is split over the stages: splitting and joining it moves nothing.
    Otherwise it is one array on the devices of the first part, and every step moves the other rows.

    Args:
        dim: the row dim.
        shapes: of the parts.
        places: where the programs take or leave each part.
    """

    def __init__(
        self,
        dim: int,
        dtype: str,
        shapes: Sequence[tuple[int, ...]],
        places: Sequence[NamedSharding],
        transfers: Transfers,
    ) -> None:
        self.dim, self.dtype = dim, dtype
        self.shapes, self.places = tuple(shapes), tuple(places)
        self.ends = np.cumsum([shape[dim] for shape in shapes]).tolist()
        self.shape = (*shapes[0][:dim], self.ends[-1], *shapes[0][dim + 1 :])
        self.layout = _layout(dim, self.shapes, self.places)
        self._transfers = transfers
        self._take = _row_takers(dim, self.shapes, self.ends)

    def take_apart(self, whole: Any) -> list[Any]:
        """The parts of a NumPy or JAX array; views of its memory if it has our layout."""
        if not isinstance(whole, jax.Array):
            return list(np.split(whole, self.ends[:-1], axis=self.dim))
        layout = self.layout
        if layout is None or not whole.sharding.is_equivalent_to(layout.whole, whole.ndim):
            if not whole.is_fully_addressable:
                raise InputError(
                    f"rows of a stack over several processes cannot be taken from {whole.sharding}",
                    help="pass it as the step returned it, or each process its own whole copy",
                    code="SHARDC-283",
                )
            whole = self._transfers.without_explicit_axes(whole)
            return [take(whole) for take in self._take]
        pieces = pieces_of(whole)
        return [
            assembled(shape, part, pieces, whole.dtype)
            for shape, part in zip(self.shapes, layout.parts, strict=True)
        ]

    def put_together(self, parts: Sequence[jax.Array]) -> jax.Array:
        """The whole array; it takes over the parts' buffers if the layout is ours."""
        layout = self.layout
        if layout is None:
            return self._join(parts)
        pieces = {}
        for part, target in zip(parts, layout.parts, strict=True):
            if not is_here(target):
                continue
            if not part.sharding.is_equivalent_to(target, part.ndim):
                part = self._transfers.find(part.sharding, target, part.shape, part.dtype.name)(
                    part
                )
            pieces.update(pieces_of(part))
        return assembled(self.shape, layout.whole, pieces, parts[0].dtype)

    @property
    def place(self) -> NamedSharding:
        """The sharding of the whole array when joined."""
        return self._near() if self.layout is None else self.layout.whole

    def _near(self) -> NamedSharding:
        here = self.places[0]
        spec = list(here.spec) + [None] * (len(self.shape) - len(here.spec))
        spec[self.dim] = None
        return NamedSharding(here.mesh, PartitionSpec(*spec))

    def _join(self, parts: Sequence[jax.Array]) -> jax.Array:
        target = self._near()
        near = [
            self._transfers.find(part.sharding, target, part.shape, part.dtype.name)(part)
            for part in parts
        ]
        joined = jnp.concatenate(near, axis=self.dim)
        placed: jax.Array = jax.device_put(joined, target)
        return placed


def _layout(
    dim: int, shapes: Sequence[tuple[int, ...]], places: Sequence[NamedSharding]
) -> Layout | None:
    """An even layout over all stages, sharded like the first part; None if there is none."""
    meshes = [place.mesh for place in places]
    devices = [device for mesh in meshes for device in mesh.devices.flat]
    even = len(set(shapes)) == 1 and len({mesh.axis_sizes for mesh in meshes}) == 1
    if not even or len(set(devices)) < len(devices):
        return None
    names = meshes[0].axis_names
    first = list(places[0].spec) + [None] * (len(shapes[0]) - len(places[0].spec))
    spec = list(first)
    own = spec[dim] if isinstance(spec[dim], tuple) else (spec[dim],) if spec[dim] else ()
    spec[dim] = (STAGE_AXIS, *own)
    kinds = (AxisType.Auto,) * (1 + len(names))
    mesh = Mesh(np.stack([mesh.devices for mesh in meshes]), (STAGE_AXIS, *names), axis_types=kinds)
    parts = []
    for each in meshes:
        renamed = Mesh(each.devices, names, axis_types=kinds[1:])
        parts.append(NamedSharding(renamed, PartitionSpec(*first)))
    return Layout(NamedSharding(mesh, PartitionSpec(*spec)), tuple(parts))


def _row_takers(
    dim: int, shapes: Sequence[tuple[int, ...]], ends: Sequence[int]
) -> list[Callable[[jax.Array], jax.Array]]:
    def taker(first: int, last: int) -> Callable[[jax.Array], jax.Array]:
        return jax.jit(lambda whole: jax.lax.slice_in_dim(whole, first, last, axis=dim))

    return [taker(end - shape[dim], end) for shape, end in zip(shapes, ends, strict=True)]


class Stacks:
    """Splits the stacked arguments of the user, and joins stacked results.

    Args:
        arguments, results: of the programs; those with a `piece` are not the user's.
        argument_places: placement of each argument; None if no program reads it.
        result_places: placement of each result.
    """

    def __init__(
        self,
        arguments: Sequence[ArgumentSpec],
        results: Sequence[ResultSpec],
        argument_places: Sequence[NamedSharding | None],
        result_places: Sequence[NamedSharding | None],
        transfers: Transfers,
    ) -> None:
        self._arguments, self._results = tuple(arguments), tuple(results)
        self._taken = _stacks(arguments, argument_places, transfers)
        self._put = _stacks(results, result_places, transfers)
        self._num_arguments = sum(argument.piece is None for argument in arguments)
        self._specs = {
            i: _whole_spec(arguments[i], stack.shape) for i, (_, stack) in self._taken.items()
        }

    def argument_places(self) -> dict[int, NamedSharding]:
        """The best sharding of each stacked argument, by its number."""
        return {i: stack.place for i, (_, stack) in self._taken.items()}

    def result_places(self) -> dict[int, NamedSharding]:
        """The sharding of each stacked result, by its number."""
        return {i: stack.place for i, (_, stack) in self._put.items()}

    def take_apart(self, values: Sequence[Any]) -> list[Any]:
        """The programs' arguments.

        An array that is passed twice has the same parts both times.

        Raises:
            InputError: SHARDC-262, 263, as in `ArgumentPlacer.place`, for whole stacks.
        """
        if not self._taken or len(values) != self._num_arguments:
            return list(values)
        found = [*values, *[None] * (len(self._arguments) - len(values))]
        known: dict[tuple[int, tuple[int, ...]], list[Any]] = {}
        for i, (positions, stack) in self._taken.items():
            whole = checked_array(self._specs[i], values[i])
            key = (id(values[i]), (stack.dim, *stack.ends))
            if key not in known:
                known[key] = stack.take_apart(whole)
            for position, part in zip(positions, known[key], strict=True):
                found[position] = part
        return found

    def put_together(self, values: Sequence[jax.Array]) -> list[jax.Array]:
        """The user's results, and the checks of the step behind them."""
        pairs = zip(values, self._results, strict=True)
        found = [value for value, result in pairs if result.piece is None]
        for i, (positions, stack) in self._put.items():
            found[i] = stack.put_together([values[position] for position in positions])
        return found

    def delete_donated(self, values: Sequence[Any]) -> None:
        """Deletes donated stacks, whose parts the step has consumed."""
        for i in self._taken:
            value = values[i]
            donated = self._arguments[i].donated
            if donated and isinstance(value, jax.Array) and not value.is_deleted():
                value.delete()


def _stacks(
    specs: Sequence[ArgumentSpec | ResultSpec],
    places: Sequence[NamedSharding | None],
    transfers: Transfers,
) -> dict[int, tuple[tuple[int, ...], Stack]]:
    """Position of a stack's first part -> the positions of all parts, and the stack they form."""
    parts: dict[int, list[int]] = {}
    dims: dict[int, int] = {}
    for position, spec in enumerate(specs):
        if spec.piece is not None:
            first, dims[first] = spec.piece
            parts.setdefault(first, [first]).append(position)
    found = {}
    for first, positions in parts.items():
        where = [places[position] for position in positions]
        known = [place for place in where if place is not None]
        assert len(known) == len(where), "a stage reads the rows that it was given"
        shapes = [specs[position].shape for position in positions]
        stack = Stack(dims[first], specs[first].dtype, shapes, known, transfers)
        found[first] = (tuple(positions), stack)
    return found


def _whole_spec(argument: ArgumentSpec, shape: tuple[int, ...]) -> ArgumentSpec:
    return ArgumentSpec(argument.name, shape, argument.dtype, argument.stage)

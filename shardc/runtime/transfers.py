"""Moves an array from one sharding to another, on the same or other devices, without waiting."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, Sharding

Step = Callable[[jax.Array], jax.Array]


@dataclass(frozen=True)
class Transfer:
    """At most three steps: reshard at the source, copy piece by piece, reshard at the target."""

    before: Step | None
    copy_to: NamedSharding | None
    after: Step | None

    @property
    def is_copy(self) -> bool:
        return self.before is None and self.after is None and self.copy_to is not None

    def __call__(self, value: jax.Array) -> jax.Array:
        if self.before is not None:
            value = self.before(value)
        if self.copy_to is not None:
            value = jax.device_put(value, self.copy_to)
        if self.after is not None:
            value = self.after(value)
        return value


class Transfers:
    """Makes transfers and caches the compiled reshards they need.

    `jax.device_put` between two multi-device shardings copies device to device only if each
    target piece is a source piece; otherwise it goes through the host and waits. So a transfer
    reshards on the finer side first (fewer bytes cross), with a program that XLA partitions.
    The result never shares a buffer with a multi-device source.
    """

    def __init__(self) -> None:
        self._reshards: dict[tuple[tuple[int, ...], str, Sharding, NamedSharding], Step] = {}
        self._reshapes: dict[tuple[tuple[int, ...], str, Sharding, NamedSharding], Step] = {}
        self._transfers: dict[tuple[tuple[int, ...], str, Sharding, NamedSharding], Transfer] = {}

    def find(
        self, source: Sharding, target: NamedSharding, shape: tuple[int, ...], dtype: str
    ) -> Transfer:
        """The transfer of arrays of this type; compiled on first request."""
        key = (shape, dtype, source, target)
        if key not in self._transfers:
            self._transfers[key] = self._plan(source, target, shape, dtype)
        return self._transfers[key]

    def without_explicit_axes(self, value: jax.Array) -> jax.Array:
        """The same buffers under a mesh whose axes JAX's sharding types do not track."""
        sharding = value.sharding
        if not isinstance(sharding, NamedSharding):
            return value
        axes = sharding.mesh.axis_names
        auto = Mesh(sharding.mesh.devices, axes, axis_types=(AxisType.Auto,) * len(axes))
        same: jax.Array = jax.device_put(value, NamedSharding(auto, sharding.spec))
        return same

    def reshape(self, value: jax.Array, shape: tuple[int, ...], target: NamedSharding) -> jax.Array:
        """A copy with this shape, as `target` says if that is on the same devices."""
        source = value.sharding
        if isinstance(source, NamedSharding):
            end = reshaped_place(source, target)
        elif (source.device_set, source.memory_kind) == (target.device_set, target.memory_kind):
            end = target
        else:
            return value.reshape(shape)
        key = (shape, value.dtype.name, source, end)
        if key not in self._reshapes:
            self._reshapes[key] = jax.jit(lambda array: array.reshape(shape), out_shardings=end)
        reshaped: jax.Array = self._reshapes[key](value)
        return reshaped

    def _plan(
        self, source: Sharding, target: NamedSharding, shape: tuple[int, ...], dtype: str
    ) -> Transfer:
        def reshard(start: Sharding, end: NamedSharding, fresh: bool = False) -> Step | None:
            if start.is_equivalent_to(end, len(shape)) and not fresh:
                return None
            return self._reshard(start, end, shape, dtype)

        if not isinstance(source, NamedSharding):
            return Transfer(None, target, None)
        own, other = source.mesh.devices.ravel().tolist(), target.mesh.devices.ravel().tolist()
        if own == other:
            return Transfer(reshard(source, target, fresh=True), None, None)
        # On a common device the copy may share the buffer, so its source must be a copy already.
        fresh = not set(own).isdisjoint(other)
        if len(own) % len(other) == 0 and (
            len(own) > len(other) or _num_pieces(source, shape) <= _num_pieces(target, shape)
        ):
            middle = NamedSharding(_mesh_like(_mesh(target), own), target.spec)
            return Transfer(reshard(source, middle, fresh), target, None)
        if len(other) % len(own) == 0:
            middle = NamedSharding(_mesh_like(_mesh(source), other), source.spec)
            before = reshard(source, source, fresh) if fresh else None
            return Transfer(before, middle, reshard(middle, target))
        whole_here, whole_there = _whole(source), _whole(target)
        return Transfer(
            reshard(source, whole_here, fresh), whole_there, reshard(whole_there, target)
        )

    def _reshard(
        self, source: Sharding, target: NamedSharding, shape: tuple[int, ...], dtype: str
    ) -> Step:
        key = (shape, dtype, source, target)
        if key not in self._reshards:
            struct: Callable[..., jax.ShapeDtypeStruct] = jax.ShapeDtypeStruct
            example = struct(shape, np.dtype(dtype), sharding=source)
            on_the_way = _on_the_way(source, target, len(shape))

            def reshard(value: jax.Array) -> jax.Array:
                for sharding in on_the_way:
                    value = jax.lax.with_sharding_constraint(value, sharding)
                return value

            program = jax.jit(reshard, out_shardings=target)
            self._reshards[key] = program.lower(example).compile()
        return self._reshards[key]


def _mesh(sharding: NamedSharding) -> Mesh:
    assert isinstance(sharding.mesh, Mesh), "an array is on devices"
    return sharding.mesh


def reshaped_place(source: NamedSharding, target: NamedSharding) -> NamedSharding:
    """The result sharding of `Transfers.reshape` from `source`; all processes must agree on it."""
    same = source.mesh.devices.ravel().tolist() == target.mesh.devices.ravel().tolist()
    return target if same else _whole(source)


def _whole(sharding: NamedSharding) -> NamedSharding:
    whole: Callable[..., PartitionSpec] = PartitionSpec
    return NamedSharding(sharding.mesh, whole())


def _on_the_way(source: Sharding, target: NamedSharding, rank: int) -> list[NamedSharding]:
    """The shardings through which a value is gathered before it is sliced into `target`.

    XLA's partitioner gathers, slices, and moves one axis from dim to dim. In all other cases it
    prints long warnings that it replicates the value; this does the same silently.
    """
    if not isinstance(source, NamedSharding):
        return []
    here, there = _axes_of_dims(source, rank), _axes_of_dims(target, rank)
    if source.mesh.shape_tuple != target.mesh.shape_tuple:
        return [_whole(source)] if any(here) and any(there) else []
    kept = []
    for both in zip(here, there, strict=True):
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*both, strict=False))
        kept.append(tuple(axis for axis, _ in same))
    lost = [dim[len(common) :] for dim, common in zip(here, kept, strict=True)]
    new = [dim[len(common) :] for dim, common in zip(there, kept, strict=True)]
    if not any(lost) or not any(new) or (sum(lost, ()) == sum(new, ()) and len(sum(new, ())) == 1):
        return []
    return [NamedSharding(source.mesh, PartitionSpec(*(axes or None for axes in kept)))]


def _axes_of_dims(sharding: NamedSharding, rank: int) -> list[tuple[str, ...]]:
    """For each dim, the axes of several devices that split it."""
    found = []
    for entry in [*sharding.spec, *[None] * (rank - len(sharding.spec))]:
        names = (entry,) if isinstance(entry, str) else tuple(entry or ())
        found.append(tuple(name for name in names if sharding.mesh.shape[name] > 1))
    return found


def _num_pieces(sharding: NamedSharding, shape: tuple[int, ...]) -> int:
    piece = sharding.shard_shape(shape)
    return int(np.prod([n // p for n, p in zip(shape, piece, strict=True) if p]))


def _mesh_like(mesh: Mesh, devices: list[jax.Device]) -> Mesh:
    """The axes of `mesh` over other devices; an additional last axis takes the remaining ones."""
    array = np.empty(len(devices), dtype=object)
    array[:] = devices
    names, types = tuple(mesh.axis_names), tuple(mesh.axis_types)
    rest = len(devices) // mesh.size
    if rest == 1:
        return Mesh(array.reshape(mesh.axis_sizes), names, axis_types=types)
    spare = "_".join(("rest", *names))
    return Mesh(
        array.reshape(*mesh.axis_sizes, rest), (*names, spare), axis_types=(*types, types[0])
    )

"""Reads large arrays from a TensorStore, one stored chunk at a time.

orbax reads every piece of every array at once into host buffers, which are then copied to the
devices: on CPUs the state temporarily exists twice. Here a piece is allocated on its device and
filled in place, so the overhead is two chunks.
"""

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, SingleDeviceSharding

from shardc.runtime.processes.arrays import assembled

Box = tuple[tuple[int, int], ...]
"""Begin and end of a part of an array, by dim."""


async def read_by_chunks(store: Any, place: NamedSharding, dtype: Any) -> jax.Array:
    """The array in `store`; this process reads the pieces of its devices, each byte once.

    Args:
        store: a `tensorstore.TensorStore`, open for reading.
        place: some of its devices belong to this process.
        dtype: of the result; values are converted on the host.
    """
    shape = tuple(store.shape)
    indices = place.addressable_devices_indices_map(shape)
    wanted = {device: _box(index or (), shape) for device, index in indices.items()}
    pieces = {
        device: _zeros(tuple(high - low for low, high in box), dtype, device)
        for device, box in wanted.items()
    }
    boxes = list(_needed(_chunks(store), list(wanted.values())))
    ahead = store[_slices(boxes[0])].read()
    for box, following in itertools.zip_longest(boxes, boxes[1:]):
        values = np.asarray(await ahead).astype(dtype, copy=False)
        if following is not None:
            ahead = store[_slices(following)].read()
        for device, own in wanted.items():
            part = _overlap(box, own)
            if part is not None:
                taken = np.ascontiguousarray(values[_slices(part, box)])
                at = [np.int32(low - start) for (low, _), (start, _) in zip(part, own, strict=True)]
                pieces[device] = _filled(pieces[device], jax.device_put(taken, device), at)
        jax.block_until_ready(list(pieces.values()))  # a chunk in transit takes memory, too
    return assembled(shape, place, pieces, dtype)


def _zeros(shape: tuple[int, ...], dtype: Any, device: jax.Device) -> jax.Array:
    """Allocated on the device: `jnp.zeros(device=)` allocates on another one and copies."""
    made: jax.Array = jax.jit(
        lambda: jnp.zeros(shape, dtype), out_shardings=SingleDeviceSharding(device)
    )()
    return made


@functools.partial(jax.jit, donate_argnums=0)
def _filled(piece: jax.Array, part: jax.Array, at: list[Any]) -> jax.Array:
    return jax.lax.dynamic_update_slice(piece, part, at)


def _chunks(store: Any) -> Iterator[Box]:
    """The stored chunks, clipped at the end of the array."""
    size = store.chunk_layout.read_chunk.shape
    starts = [range(0, length, step) for length, step in zip(store.shape, size, strict=True)]
    for start in itertools.product(*starts):
        yield tuple(
            (low, min(low + step, end))
            for low, step, end in zip(start, size, store.shape, strict=True)
        )


def _needed(chunks: Iterator[Box], wanted: Sequence[Box]) -> Iterator[Box]:
    """For each chunk, the smallest part that contains everything wanted of it."""
    for chunk in chunks:
        parts = [part for box in wanted if (part := _overlap(chunk, box)) is not None]
        if parts:
            yield tuple(
                (min(low for low, _ in dim), max(high for _, high in dim))
                for dim in zip(*parts, strict=True)
            )


def _box(index: Sequence[slice], shape: Sequence[int]) -> Box:
    found = [part.indices(size)[:2] for part, size in zip(index, shape, strict=True)]
    return tuple(found)


def _overlap(a: Box, b: Box) -> Box | None:
    found = tuple((max(x[0], y[0]), min(x[1], y[1])) for x, y in zip(a, b, strict=True))
    return found if all(low < high for low, high in found) else None


def _slices(box: Box, within: Box | None = None) -> tuple[slice, ...]:
    """Slices of the box; with `within`, relative to that box."""
    starts = [0] * len(box) if within is None else [low for low, _ in within]
    return tuple(slice(low - s, high - s) for (low, high), s in zip(box, starts, strict=True))

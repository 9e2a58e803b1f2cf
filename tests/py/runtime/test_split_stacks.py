"""Stacks come apart and together with the same numbers, and without a copy where rows are even."""

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from shardc.runtime.split_stacks import Stack
from shardc.runtime.transfers import Transfers

VALUES = np.arange(4 * 6 * 8, dtype=np.float32).reshape(4, 6, 8)


def place(first: int, count: int, *spec: str | None) -> NamedSharding:
    devices = np.array(jax.devices()[first : first + count]).reshape(count // 2, 2)
    return NamedSharding(Mesh(devices, ("x", "y")), PartitionSpec(*spec))


def stack(dim: int, rows: list[int], places: list[NamedSharding]) -> Stack:
    shapes = [(*VALUES.shape[:dim], n, *VALUES.shape[dim + 1 :]) for n in rows]
    return Stack(dim, "float32", shapes, places, Transfers())


def parts_of(made: Stack) -> list[jax.Array]:
    pieces = np.split(VALUES, made.ends[:-1], axis=made.dim)
    return [jax.device_put(p, place) for p, place in zip(pieces, made.places, strict=True)]


def addresses(arrays: list[jax.Array]) -> list[int]:
    return [s.data.unsafe_buffer_pointer() for a in arrays for s in a.addressable_shards]


@pytest.mark.parametrize(
    ("dim", "rows", "places"),
    [
        (0, [2, 2], [place(0, 4, None, "x", "y"), place(4, 4, None, "x", "y")]),
        (0, [2, 2], [place(0, 4, "x", None, "y"), place(4, 4, "x", None, "y")]),
        (1, [3, 3], [place(0, 4, "x", None, "y"), place(4, 4, "x", None, "y")]),
        (0, [2, 2], [place(0, 4, None, "x"), place(4, 4, None, None, "y")]),  # unlike shardings
        (0, [1, 3], [place(0, 4, None, "x"), place(4, 4, None, "x")]),  # unlike rows
        (0, [2, 2], [place(0, 2, None, "x"), place(2, 4, None, "x")]),  # unlike meshes
    ],
)
def test_what_is_put_together_comes_apart_as_it_was(
    dim: int, rows: list[int], places: list[NamedSharding]
) -> None:
    made = stack(dim, rows, places)
    assert made.shape == VALUES.shape
    whole = made.put_together(parts_of(made))
    np.testing.assert_array_equal(whole, VALUES)
    for given in (whole, VALUES, jax.numpy.asarray(VALUES)):
        for part, wanted in zip(made.take_apart(given), parts_of(made), strict=True):
            np.testing.assert_array_equal(part, wanted)


def test_even_stacks_share_the_buffers_of_their_parts() -> None:
    made = stack(0, [2, 2], [place(0, 4, None, "x", "y"), place(4, 4, None, "x", "y")])
    parts = parts_of(made)
    whole = made.put_together(parts)
    assert dict(whole.sharding.mesh.shape) == {"stage": 2, "x": 2, "y": 2}
    addresses = [s.data.unsafe_buffer_pointer() for p in parts for s in p.addressable_shards]
    assert [s.data.unsafe_buffer_pointer() for s in whole.addressable_shards] == addresses
    apart = made.take_apart(whole)
    assert [
        s.data.unsafe_buffer_pointer() for p in apart for s in p.addressable_shards
    ] == addresses


def test_stacks_of_uneven_rows_lie_with_their_first_part() -> None:
    made = stack(0, [1, 3], [place(0, 4, None, "x"), place(4, 4, None, "x")])
    assert made.layout is None
    assert made.put_together(parts_of(made)).sharding.device_set == set(jax.devices()[:4])

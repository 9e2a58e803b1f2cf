"""Runs a localised function on every device of its mesh, and joins the parts."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from jax.extend.mlir import ir

from shardc.check.forms.engines import Arrays, Run
from shardc.ir.attributes import SHARDING, arg_attrs, result_attrs
from shardc.ir.shardings import from_attr
from shardc.ir.tensor_types import dtype_of
from shardc.ir.walk import body
from shardc.plan.layout import Mesh, TensorSharding

Array = npt.NDArray[Any]


class ReplicasDiffer(AssertionError):
    """Two devices that should hold the same part of a value hold different ones."""


def run_local(function: ir.Operation, mesh: Mesh, args: Sequence[Array], run: Run) -> Arrays:
    """Whole results from whole arguments, by way of what each device computes.

    Raises:
        ReplicasDiffer: devices that hold the same part disagree.
    """
    takes = [_sharding(attrs, a) for attrs, a in zip(arg_attrs(function), args, strict=True)]
    dtypes = [np.dtype(dtype_of(value)) for value in body(function).arguments]
    per_arg = [
        split(np.asarray(array).astype(dtype), way, mesh)
        for array, dtype, way in zip(args, dtypes, takes, strict=True)
    ]
    per_device = [[parts[i] for parts in per_arg] for i in range(len(mesh.device_ids))]
    found = run(per_device)
    joined = []
    for i, attrs in enumerate(result_attrs(function)):
        parts = [results[i] for results in found]
        joined.append(join(parts, _sharding(attrs, parts[0]), mesh))
    return joined


def _sharding(attrs: dict[str, ir.Attribute], value: Array) -> TensorSharding:
    if SHARDING in attrs:
        return from_attr(attrs[SHARDING])
    return TensorSharding.replicated(np.ndim(value))


def split(array: Array, sharding: TensorSharding, mesh: Mesh) -> Arrays:
    """Each device's part; if the value is unreduced, random parts that sum to it."""
    found = []
    summands = _summands(array, mesh.num_shards(sharding.unreduced))
    for place in _places(mesh):
        whole = summands[_index(place, sharding.unreduced, mesh)]
        found.append(np.array(whole[_slices(array.shape, sharding, place, mesh)], order="C"))
    return found


def join(parts: Arrays, sharding: TensorSharding, mesh: Mesh) -> Array:
    """The whole value; devices that hold the same part must agree.

    Raises:
        ReplicasDiffer: they do not.
    """
    counts = [mesh.num_shards(axes) for axes in sharding.dims]
    shape = [size * count for size, count in zip(parts[0].shape, counts, strict=True)]
    summands = [np.zeros(shape, parts[0].dtype) for _ in range(mesh.num_shards(sharding.unreduced))]
    seen: dict[tuple[int, ...], Array] = {}
    for place, part in zip(_places(mesh), parts, strict=True):
        which = _index(place, sharding.unreduced, mesh)
        slices = _slices(tuple(shape), sharding, place, mesh)
        first = seen.setdefault((which, *(s.start for s in slices)), part)
        same = (first == part) | ((first != first) & (part != part))
        if not np.all(same):
            raise ReplicasDiffer(f"device {place} disagrees with a replica:\n{first}\n{part}")
        summands[which][slices] = part
    return sum(summands[1:], start=summands[0])


def _summands(array: Array, count: int) -> Arrays:
    random = np.random.default_rng(1)
    parts = [random.integers(-9, 9, array.shape).astype(array.dtype) for _ in range(count - 1)]
    return [*parts, (array - sum(parts, start=np.zeros_like(array))) if parts else array]


def _places(mesh: Mesh) -> list[dict[str, int]]:
    names = [name for name, _ in mesh.axes]
    return [
        dict(zip(names, place, strict=True)) for place in itertools.product(*map(range, mesh.shape))
    ]


def _index(place: dict[str, int], axes: Sequence[str], mesh: Mesh) -> int:
    index = 0
    for axis in axes:
        index = index * mesh.size(axis) + place[axis]
    return index


def _slices(
    shape: tuple[int, ...], sharding: TensorSharding, place: dict[str, int], mesh: Mesh
) -> tuple[slice, ...]:
    found = []
    for size, axes in zip(shape, sharding.dims, strict=True):
        part = size // mesh.num_shards(axes)
        start = _index(place, axes, mesh) * part
        found.append(slice(start, start + part))
    return tuple(found)

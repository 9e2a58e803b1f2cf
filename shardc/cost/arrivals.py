"""The cost of moving an argument from its current placement to the planned one."""

import functools
import math

import msgspec
import numpy as np

from shardc.cluster import Cluster
from shardc.plan.layout import Mesh, TensorSharding

Bounds = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


class Arrival(msgspec.Struct, frozen=True):
    """The placement of an argument when the step is called.

    Attributes:
        shape: of the whole value.
    """

    mesh: Mesh
    sharding: TensorSharding
    shape: tuple[int, ...]


def arrival_s(
    arrival: Arrival, mesh: Mesh, wanted: TensorSharding, itemsize: int, cluster: Cluster
) -> float:
    """Seconds until every device of `mesh` has its part of the value.

    All devices receive what they lack at the same time, over the slowest link among all devices of
    both meshes, with one message from each device that has a missing piece: gathering an array
    takes as long as an all-gather. 0.0 if no device lacks anything.

    Args:
        wanted: the planned sharding on `mesh`.
        itemsize: bytes of one element.
    """
    lacking, messages = _most_lacking(arrival, mesh, wanted)
    if lacking == 0:
        return 0.0
    devices = (*arrival.mesh.device_ids, *mesh.device_ids)
    home, first = cluster.home(devices)
    sizes = tuple(level.size for level in home.levels)
    slowest = _outermost_level(sizes, tuple(device - first for device in devices))
    crossed = home.levels[: slowest + 1]
    bandwidth = min((level.bandwidth_bytes_per_s for level in crossed), default=math.inf)
    latency_s = max((level.latency_s for level in crossed), default=0.0)
    return messages * latency_s + lacking * itemsize / bandwidth


@functools.lru_cache(maxsize=1 << 14)
def _most_lacking(arrival: Arrival, mesh: Mesh, wanted: TensorSharding) -> tuple[int, int]:
    """The most elements that a device lacks, and how many others have pieces of them."""
    held = _parts(arrival.mesh, arrival.sharding, arrival.shape)
    needed = _parts(mesh, wanted, arrival.shape)
    place = {device: n for n, device in enumerate(arrival.mesh.device_ids)}
    own = np.array([place.get(device, -1) for device in mesh.device_ids])
    has = np.where(own < 0, 0, _overlaps(needed, held[own]))
    lacking = (needed[..., 1] - needed[..., 0]).prod(axis=1) - has
    pieces = np.unique(held, axis=0)
    others = (_overlaps(needed[:, None], pieces[None]) > 0).sum(axis=1) - (has > 0)
    return int(lacking.max()), int(others[lacking > 0].max(initial=0))


def _overlaps(one: Bounds, other: Bounds) -> Bounds:
    """Elements that the parts have in common."""
    first = np.maximum(one[..., 0], other[..., 0])
    last = np.minimum(one[..., 1], other[..., 1])
    found: Bounds = np.maximum(last - first, 0).prod(axis=-1)
    return found


@functools.lru_cache(maxsize=1 << 10)
def _outermost_level(sizes: tuple[int, ...], devices: tuple[int, ...]) -> int:
    """The outermost level of links, with these sizes, that `devices` span; -1: none."""
    unit, found = 1, -1
    for i, size in enumerate(sizes):
        if len({device // unit for device in devices}) > 1:
            found = i
        unit *= size
    return found


def _parts(mesh: Mesh, sharding: TensorSharding, shape: tuple[int, ...]) -> Bounds:
    """[device of the mesh, dim, (first, last + 1)] of the elements that each device holds."""
    sizes = [size for _, size in mesh.axes]
    names = [name for name, _ in mesh.axes]
    at = np.indices(sizes).reshape(len(sizes), -1)  # [axis, device]
    bounds = np.empty((len(mesh.device_ids), len(shape), 2), np.int64)
    for dim, (size, axes) in enumerate(zip(shape, sharding.dims, strict=True)):
        part = np.zeros(len(mesh.device_ids), np.int64)
        for axis in axes:
            part = part * mesh.size(axis) + at[names.index(axis)]
        rows = size // math.prod(mesh.size(axis) for axis in axes)
        bounds[:, dim, 0], bounds[:, dim, 1] = part * rows, (part + 1) * rows
    return bounds

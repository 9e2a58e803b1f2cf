"""The collectives that can follow in a reshard, each with its time and bytes."""

import functools
import math
from collections.abc import Iterator
from itertools import combinations
from typing import Literal

import msgspec

from shardc.cost import collectives
from shardc.cost.links import Link
from shardc.plan.layout import TensorSharding

Kind = Literal["all_reduce", "reduce_scatter", "all_gather", "all_slice", "all_to_all"]


class ReshardStep(msgspec.Struct, frozen=True):
    """One collective, as the `sdy` op of the same name.

    Attributes:
        axes: the mesh axes of the step, major to minor.
            all_reduce: no longer unreduced. reduce_scatter: no longer unreduced, and appended to
            `dim`. all_slice: appended to `dim`. all_gather: removed from the minor end of `dim`.
            all_to_all: one axis, moved from the minor end of `src_dim` to that of `dst_dim`.
        dim: tensor dim of reduce_scatter, all_gather and all_slice, else None.
        result: the sharding after the step.
    """

    kind: Kind
    axes: tuple[str, ...]
    result: TensorSharding
    dim: int | None = None
    src_dim: int | None = None
    dst_dim: int | None = None


class Move(msgspec.Struct, frozen=True):
    """One step, its seconds and the bytes that one device sends."""

    step: ReshardStep
    seconds: float
    num_bytes: float


class Moves:
    """Every sharding reachable by one collective over one axis (all-reduce: some axes).

    Args:
        sizes: devices along each axis of the mesh.
        divisors: per dim, a number that the axes splitting it must divide: its size, or the
            greatest common divisor of its size and the number of devices.
        num_bytes: of the whole value.
        sum_bytes: of the whole value while it is a partial sum.
        links: of each axis.
    """

    def __init__(
        self,
        sizes: dict[str, int],
        divisors: tuple[int, ...],
        num_bytes: int,
        sum_bytes: int,
        links: dict[str, Link],
    ) -> None:
        self.sizes, self.links = sizes, links
        self.axes, self.divisors = tuple(sizes.items()), tuple(divisors)
        self.num_bytes, self.sum_bytes = num_bytes, sum_bytes

    def of(self, state: TensorSharding) -> Iterator[Move]:
        """The moves from `state`, in a fixed order."""
        num_bytes = self.sum_bytes if state.unreduced else self.num_bytes
        local_bytes = num_bytes / math.prod(self.sizes[axis] for axis in state.axes)
        for step in _steps(state, self.axes, self.divisors):
            yield Move(step, *self._price(step, local_bytes))

    def _price(self, step: ReshardStep, local_bytes: float) -> tuple[float, float]:
        """Seconds of a step on a value of `local_bytes` per device before it, and the bytes
        that one device sends."""
        size, link = self.sizes[step.axes[0]], self.links[step.axes[0]]
        match step.kind:
            case "all_slice":
                return 0.0, 0.0
            case "all_gather":
                gathered_bytes = local_bytes * size
                return (
                    collectives.all_gather_s(size, link, gathered_bytes),
                    collectives.all_gather_bytes(size, gathered_bytes),
                )
            case "all_to_all":
                return (
                    collectives.all_to_all_s(size, link, local_bytes),
                    collectives.all_to_all_bytes(size, local_bytes),
                )
            case "reduce_scatter":
                return (
                    collectives.reduce_scatter_s(size, link, local_bytes),
                    collectives.reduce_scatter_bytes(size, local_bytes),
                )
        pairs = [(self.sizes[axis], self.links[axis]) for axis in step.axes]
        return (
            collectives.all_reduce_over_s(pairs, local_bytes),
            collectives.all_reduce_over_bytes([size for size, _ in pairs], local_bytes),
        )


@functools.lru_cache(maxsize=1 << 16)
def _steps(
    state: TensorSharding, axes: tuple[tuple[str, int], ...], divisors: tuple[int, ...]
) -> tuple[ReshardStep, ...]:
    """The steps from `state`, independent of cost, so the same for values of all sizes."""
    sizes = dict(axes)

    def dims_that_fit(axis: str) -> list[int]:
        """Dims that stay evenly divided with `axis` appended to them."""
        return [
            dim
            for dim, split in enumerate(state.dims)
            if divisors[dim] % (math.prod(sizes[a] for a in split) * sizes[axis]) == 0
        ]

    found: list[ReshardStep] = []
    used = {*state.axes, *state.unreduced}
    for axis in sizes:
        if axis not in used:
            found += (
                ReshardStep("all_slice", (axis,), _append(state, dim, axis), dim)
                for dim in dims_that_fit(axis)
            )
    for dim, split in enumerate(state.dims):
        if not split:
            continue
        axis = split[-1]
        whole = _drop(state, dim)
        found.append(ReshardStep("all_gather", (axis,), whole, dim))
        for other in dims_that_fit(axis):
            if other != dim:
                moved = _append(whole, other, axis)
                found.append(ReshardStep("all_to_all", (axis,), moved, None, dim, other))
    for axis in state.unreduced:
        reduced = _reduce(state, (axis,))
        found += (
            ReshardStep("reduce_scatter", (axis,), _append(reduced, dim, axis), dim)
            for dim in dims_that_fit(axis)
        )
    for count in range(1, len(state.unreduced) + 1):
        for some in combinations(state.unreduced, count):
            found.append(ReshardStep("all_reduce", some, _reduce(state, some)))
    return tuple(found)


def _append(state: TensorSharding, dim: int, axis: str) -> TensorSharding:
    dims = state.dims
    return TensorSharding(
        (*dims[:dim], (*dims[dim], axis), *dims[dim + 1 :]),
        state.unreduced,
    )


def _drop(state: TensorSharding, dim: int) -> TensorSharding:
    dims = state.dims
    return TensorSharding((*dims[:dim], dims[dim][:-1], *dims[dim + 1 :]), state.unreduced)


def _reduce(state: TensorSharding, axes: tuple[str, ...]) -> TensorSharding:
    return TensorSharding(state.dims, tuple(a for a in state.unreduced if a not in axes))

"""The collectives that a sharded value can go through next, each with its time and bytes."""

import math
from collections.abc import Iterator
from itertools import combinations
from typing import Literal

import msgspec

from shardc.cost import collectives
from shardc.cost.links import Link
from shardc.plan import TensorSharding

Kind = Literal["all_reduce", "reduce_scatter", "all_gather", "all_slice", "all_to_all"]


class ReshardStep(msgspec.Struct, frozen=True):
    """One collective, as the `sdy` op of the same name.

    Attributes:
        axes: mesh axes, major to minor, that the step is over.
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
    """One step, the seconds it takes and the bytes that one device sends."""

    step: ReshardStep
    seconds: float
    num_bytes: float


class Moves:
    """Every sharding that one collective over one axis (all-reduce: some axes) leads to.

    Args:
        sizes: devices along each axis of the mesh.
        divisors: what the axes that split a dim must divide, per dim: its size, or the greatest
            common divisor of its size and the number of devices.
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
        self.sizes, self.divisors, self.links = sizes, divisors, links
        self.num_bytes, self.sum_bytes = num_bytes, sum_bytes

    def of(self, state: TensorSharding) -> Iterator[Move]:
        """The moves from `state`, in a fixed order."""
        sizes, links = self.sizes, self.links
        num_bytes = self.sum_bytes if state.unreduced else self.num_bytes
        local_bytes = num_bytes / math.prod(sizes[axis] for axis in state.axes)
        used = {*state.axes, *state.unreduced}

        for axis in sizes:
            if axis not in used:
                for dim in self._dims_that_fit(state, axis):
                    result = _append(state, dim, axis)
                    yield Move(ReshardStep("all_slice", (axis,), result, dim), 0.0, 0.0)

        for dim, axes in enumerate(state.dims):
            if not axes:
                continue
            axis = axes[-1]
            size, link = sizes[axis], links[axis]
            whole = _drop(state, dim)
            gathered_bytes = local_bytes * size
            yield Move(
                ReshardStep("all_gather", (axis,), whole, dim),
                collectives.all_gather_s(size, link, gathered_bytes),
                collectives.all_gather_bytes(size, gathered_bytes),
            )
            seconds = collectives.all_to_all_s(size, link, local_bytes)
            sent = collectives.all_to_all_bytes(size, local_bytes)
            for other in self._dims_that_fit(state, axis):
                if other != dim:
                    moved = _append(whole, other, axis)
                    step = ReshardStep("all_to_all", (axis,), moved, None, dim, other)
                    yield Move(step, seconds, sent)

        for axis in state.unreduced:
            reduced = _reduce(state, (axis,))
            for dim in self._dims_that_fit(state, axis):
                result = _append(reduced, dim, axis)
                yield Move(
                    ReshardStep("reduce_scatter", (axis,), result, dim),
                    collectives.reduce_scatter_s(sizes[axis], links[axis], local_bytes),
                    collectives.reduce_scatter_bytes(sizes[axis], local_bytes),
                )

        for count in range(1, len(state.unreduced) + 1):
            for some in combinations(state.unreduced, count):
                pairs = [(sizes[axis], links[axis]) for axis in some]
                yield Move(
                    ReshardStep("all_reduce", some, _reduce(state, some)),
                    collectives.all_reduce_over_s(pairs, local_bytes),
                    collectives.all_reduce_over_bytes([size for size, _ in pairs], local_bytes),
                )

    def _dims_that_fit(self, state: TensorSharding, axis: str) -> list[int]:
        """Dims that stay evenly divided when `axis` is appended to them."""
        return [
            dim
            for dim, axes in enumerate(state.dims)
            if self.divisors[dim] % (math.prod(self.sizes[a] for a in axes) * self.sizes[axis]) == 0
        ]


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

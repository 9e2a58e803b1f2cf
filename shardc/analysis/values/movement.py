"""Constant evaluation of ops that only move elements, on compressed arrays.

Axis 0 of each array counts iterations of a loop, the others are the dims of the value; an axis of
size 1 stands for an axis of any size along which all elements are equal.
"""

import math
from collections.abc import Sequence

import numpy as np
from jax.extend.mlir import ir

from shardc.ir.tensor_types import shape_of

LARGEST = 1 << 22  # elements of an array; a value that needs more is unknown


def broadcast(op: ir.Operation, numbers: np.ndarray) -> np.ndarray:
    """`stablehlo.broadcast_in_dim`."""
    axes = [1] * (1 + len(shape_of(op.results[0])))
    axes[0] = numbers.shape[0]
    order = list(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))
    for dim, target in enumerate(order):
        axes[1 + target] = numbers.shape[1 + dim]
    by_target = [0, *(1 + dim for dim in np.argsort(order, kind="stable").tolist())]
    return numbers.transpose(by_target).reshape(axes)


def transpose(op: ir.Operation, numbers: np.ndarray) -> np.ndarray:
    """`stablehlo.transpose`."""
    order = list(ir.DenseI64ArrayAttr(op.attributes["permutation"]))
    return numbers.transpose([0, *(1 + dim for dim in order)])


def reshape(op: ir.Operation, numbers: np.ndarray) -> np.ndarray | None:
    """`stablehlo.reshape`: expands split or merged dims along which elements vary."""
    before, after = shape_of(op.operands[0]), shape_of(op.results[0])
    if math.prod(after) == 0:
        return None
    wide, axes = [numbers.shape[0]], [numbers.shape[0]]
    for old, new in _groups(before, after):
        varies = any(numbers.shape[1 + dim] > 1 for dim in old)
        wide += [before[dim] if varies else 1 for dim in old]
        axes += [after[dim] if varies else 1 for dim in new]
    if math.prod(axes) > LARGEST:
        return None
    return np.broadcast_to(numbers, wide).reshape(axes)


def _groups(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The finest partition of the dims before and after into groups of equal size."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(before) or j < len(after):
        old, new = [], []
        have = want = 1
        if i < len(before):
            old, have, i = [i], before[i], i + 1
        if j < len(after) and (have != 1 or not old):
            new, want, j = [j], after[j], j + 1
        while have != want:
            if have < want:
                old, have, i = [*old, i], have * before[i], i + 1
            else:
                new, want, j = [*new, j], want * after[j], j + 1
        groups.append((old, new))
    return groups


def reverse(op: ir.Operation, numbers: np.ndarray) -> np.ndarray:
    """`stablehlo.reverse`."""
    dims = ir.DenseI64ArrayAttr(op.attributes["dimensions"])
    return np.flip(numbers, tuple(1 + dim for dim in dims))


def slice_(op: ir.Operation, numbers: np.ndarray) -> np.ndarray:
    """`stablehlo.slice`."""
    names = ("start_indices", "limit_indices", "strides")
    places = zip(*(ir.DenseI64ArrayAttr(op.attributes[name]) for name in names), strict=True)
    own = [
        slice(*place) if size > 1 else slice(None)
        for place, size in zip(places, numbers.shape[1:], strict=True)
    ]
    return numbers[(slice(None), *own)]


def concatenate(op: ir.Operation, operands: Sequence[np.ndarray]) -> np.ndarray | None:
    """`stablehlo.concatenate`."""
    dim = int(ir.IntegerAttr(op.attributes["dimension"]).value)
    others = [(*each.shape[: 1 + dim], 1, *each.shape[2 + dim :]) for each in operands]
    common = np.broadcast_shapes(*others)
    if math.prod(common) * shape_of(op.results[0])[dim] > LARGEST:
        return None
    pieces = [
        np.broadcast_to(each, (*common[: 1 + dim], shape_of(value)[dim], *common[2 + dim :]))
        for each, value in zip(operands, op.operands, strict=True)
    ]
    return np.concatenate(pieces, axis=1 + dim)


def dynamic_slice(op: ir.Operation, operands: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """`stablehlo.dynamic_slice`, which clamps each start so that the slice is in bounds."""
    numbers, *starts = operands
    if numbers is None:
        return None
    sizes = shape_of(op.results[0])
    for dim, (start, whole) in enumerate(zip(starts, shape_of(op.operands[0]), strict=True)):
        if numbers.shape[1 + dim] == 1 or sizes[dim] == whole:
            continue
        if start is None:
            return None
        first = start.astype(f"int{8 * start.dtype.itemsize}").astype(np.int64)
        if np.any(first != start):
            return None  # unsigned numbers that some implementations treat as negative
        rows = np.clip(first, 0, whole - sizes[dim])[:, None] + np.arange(sizes[dim])
        axes = [1] * numbers.ndim
        axes[0], axes[1 + dim] = rows.shape
        count = max(len(rows), numbers.shape[0])
        if count * sizes[dim] * numbers[:1].size // numbers.shape[1 + dim] > LARGEST:
            return None
        numbers = np.take_along_axis(numbers, rows.reshape(axes), axis=1 + dim)
    return numbers

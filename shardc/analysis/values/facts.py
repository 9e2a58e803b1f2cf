"""Facts about values: their elements, per iteration if they vary inside a loop.

Analyses of indices, rows, counts and positions rest on these facts; docs/proofs.md names the places
that compute themselves. A fact is exact or absent:
elements are computed in the arithmetic of their element type, with wraparound of integers; a float
that would need rounding is unknown.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from jax.extend.mlir import ir

from shardc.analysis.values import movement
from shardc.analysis.values.arithmetic import ELEMENTWISE, computed, converted
from shardc.analysis.values.element_types import as_float, kept_as
from shardc.ir.constants import MADE_OF_NOTHING
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import defining_op

_IDENTITIES = ("stablehlo.optimization_barrier", "sdy.sharding_constraint", "sdy.reshard")
_MOVING = {
    "stablehlo.broadcast_in_dim": movement.broadcast,
    "stablehlo.transpose": movement.transpose,
    "stablehlo.reshape": movement.reshape,
    "stablehlo.reverse": movement.reverse,
    "stablehlo.slice": movement.slice_,
}
# The results of these may be known even if some operands are not.
_PARTLY = ("stablehlo.select", "stablehlo.dynamic_slice")
_KNOWN = {*_IDENTITIES, *_MOVING, *MADE_OF_NOTHING, *_PARTLY, *ELEMENTWISE, "stablehlo.concatenate"}


class Values:
    """The elements of values. Erasing an op invalidates it.

    Args:
        given: scalar arguments of a loop body -> their value in each iteration.
    """

    def __init__(self, given: Mapping[ir.Value, np.ndarray] | None = None) -> None:
        self._known: dict[ir.Value, np.ndarray | None] = dict(given or {})

    def of(self, value: ir.Value) -> np.ndarray | None:
        """The elements of `value`; None if the program does not determine them exactly.

        Returns:
            An array: axis 0 counts iterations, the other axes are the dims; an axis along which
            nothing varies has size 1. Floats are integers, represented as float64.
        """
        waiting = [value]
        while waiting:
            value = waiting[-1]
            if value in self._known or self._settle(value, waiting):
                waiting.pop()
        return self._known[value]

    def _settle(self, value: ir.Value, waiting: list[ir.Value]) -> bool:
        """Evaluates a value; False if an operand must be evaluated first, and is now `waiting`."""
        op = defining_op(value)
        self._known.pop(value, None)
        found = None
        if op is not None and op.name in _KNOWN and _element_is_known(value):
            operands = list(op.operands)
            if op.name in _IDENTITIES:
                operands = [operands[ir.OpResult(value).result_number]]
            for operand in operands:
                if operand not in self._known:
                    waiting.append(operand)
                    return False
                if self._known[operand] is None and op.name not in _PARTLY:
                    break
            else:
                found = _result(op, [self._known[operand] for operand in operands])
        self._known[value] = found
        return True

    def number(self, value: ir.Value) -> int | None:
        """The integer that every element of an integer value equals, in all iterations."""
        found = self.of(value)
        if found is None or found.size != 1 or found.dtype.kind not in "iu":
            return None
        return int(found.item())

    def are(self, value: ir.Value, wanted: np.ndarray) -> bool:
        """Whether an integer scalar, or tensor of one element, is `wanted[k]` in iteration k."""
        found = self.of(value)
        if found is None or math.prod(shape_of(value)) != 1 or found.dtype.kind not in "iu":
            return False
        return np.array_equal(np.broadcast_to(found.ravel(), wanted.shape), wanted)

    def counts_along(self, value: ir.Value) -> int | None:
        """The dim, of size above 1, along which an integer value is an iota: in all iterations each
        element equals its index in that dim. None if there is none."""
        found = self.of(value)
        if found is None or found.dtype.kind not in "iu":
            return None
        for dim, size in enumerate(shape_of(value)):
            if size > 1 and found.shape[1 + dim] == size:
                axes = [1] * found.ndim
                axes[1 + dim] = size
                if np.array_equal(
                    found, np.broadcast_to(np.arange(size).reshape(axes), found.shape)
                ):
                    return dim
        return None


def counts_along(value: ir.Value) -> int | None:
    """`Values.counts_along` without the counters of a loop."""
    return Values().counts_along(value)


def number_of(value: ir.Value) -> int | None:
    """The integer that every element of a value equals; None if unknown."""
    return Values().number(value)


def _element_is_known(value: ir.Value) -> bool:
    if not isinstance(value.type, ir.RankedTensorType):
        return False
    return kept_as(value.type.element_type) is not None


def _result(op: ir.Operation, operands: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """The result of a supported op; unless the op is in `_PARTLY`, all operands are known."""
    if op.name == "stablehlo.select":
        return _select(*operands)
    if op.name == "stablehlo.dynamic_slice":
        return movement.dynamic_slice(op, operands)
    if op.name in MADE_OF_NOTHING:
        return _iota(op) if op.name == "stablehlo.iota" else _constant(op)
    given = [each for each in operands if each is not None]
    if op.name == "stablehlo.concatenate":
        return movement.concatenate(op, given)
    if op.name in _MOVING:
        return _MOVING[op.name](op, given[0])
    if op.name in _IDENTITIES:
        return given[0]
    return computed(op, given) if (given := _together(given)) else None


def _together(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Arrays of equal rank that broadcast to each other; [] if the result would be too large."""
    rank = max(each.ndim for each in arrays)
    same = [each.reshape([*each.shape, *[1] * (rank - each.ndim)]) for each in arrays]
    size = math.prod(np.broadcast_shapes(*(each.shape for each in same)))
    return same if size <= movement.LARGEST else []


def _select(
    chosen: np.ndarray | None, yes: np.ndarray | None, no: np.ndarray | None
) -> np.ndarray | None:
    """Elements of a select; if the predicate is constant, the other side may be unknown."""
    if chosen is None:
        return None
    for always, side in ((np.all(chosen), yes), (not np.any(chosen), no)):
        if always and chosen.size:
            return side
    if yes is None or no is None:
        return None
    arrays = _together([chosen, yes, no])
    return np.where(*arrays) if arrays else None


def _iota(op: ir.Operation) -> np.ndarray | None:
    dim = int(ir.IntegerAttr(op.attributes["iota_dimension"]).value)
    shape = shape_of(op.results[0])
    if shape[dim] > movement.LARGEST:
        return None
    axes = [1] * (1 + len(shape))
    axes[1 + dim] = shape[dim]
    counted = np.arange(shape[dim]).reshape(axes)
    return converted(counted, ir.RankedTensorType(op.results[0].type).element_type)


def _constant(op: ir.Operation) -> np.ndarray | None:
    """The elements of a `stablehlo.constant`; None if the bindings cannot read them."""
    attribute, shape = op.attributes["value"], shape_of(op.results[0])
    element = ir.RankedTensorType(op.results[0].type).element_type
    if not isinstance(attribute, ir.DenseElementsAttr):
        return None
    if attribute.is_splat:
        one = attribute.get_splat_value()
        if isinstance(one, ir.FloatAttr | ir.IntegerAttr | ir.BoolAttr):
            numbers = np.array(one.value).reshape([1] * (1 + len(shape)))
        else:
            return None
    elif math.prod(shape) > movement.LARGEST or str(element) == "bf16":
        return None
    else:
        numbers = np.array(attribute).reshape([1, *shape])
    kept = kept_as(element)
    if kept is None or kept.kind != "f":
        return numbers.astype(kept)
    return as_float(numbers, element)

"""Rows of values: how many a slice has, and the ops that slice, concatenate and add them."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.analysis.slices.held_parts import Role, Roles
from shardc.ir.tensor_types import shape_of
from shardc.rewrite.microbatches.ops import with_shape


@dataclass(frozen=True)
class Span:
    """The tokens of a slice, `first` to `end`; earlier slices begin at 0."""

    first: int
    end: int

    def bounds(self, role: Role | None, size: int) -> tuple[int, int]:
        """The first and last row, of `size`, that a value with a role has."""
        if role is None:
            return 0, size
        return (self.first if role is Role.OWN else 0), self.end

    def shape(self, value: ir.Value, roles: Roles) -> list[int]:
        """The shape of these rows of a value."""
        return [
            end - first
            for first, end in (
                self.bounds(role, size) for role, size in zip(roles, shape_of(value), strict=True)
            )
        ]


def spans(edges: Sequence[int]) -> list[Span]:
    """The slices of a sequence that begin at `edges`; the last of these is its length."""
    return [Span(first, end) for first, end in itertools.pairwise(edges)]


def cut_out(value: ir.Value, first: Sequence[int], end: Sequence[int]) -> ir.Value:
    """The rows `first` to `end` of each dim, at the current insertion point."""
    if list(first) == [0] * len(first) and list(end) == list(shape_of(value)):
        return value
    array = ir.DenseI64ArrayAttr.get
    return stablehlo.SliceOp(
        value, array(list(first)), array(list(end)), array([1] * len(first))
    ).result


def rows_along(value: ir.Value, dim: int, first: int, end: int) -> ir.Value:
    """The rows `first` to `end` along one dim."""
    shape = list(shape_of(value))
    low, high = [0] * len(shape), list(shape)
    low[dim], high[dim] = first, end
    return cut_out(value, low, high)


def joined(parts: Sequence[ir.Value], dim: int) -> ir.Value:
    """Parts of a value, concatenated along a dim."""
    if len(parts) == 1:
        return parts[0]
    shape = list(shape_of(parts[0]))
    shape[dim] = sum(shape_of(part)[dim] for part in parts)
    return stablehlo.ConcatenateOp(list(parts), dim, results=[with_shape(parts[0], shape)]).result


def added_at(total: ir.Value, part: ir.Value, first: Sequence[int]) -> ir.Value:
    """`total` with `part` added to the rows from `first` on."""
    if list(shape_of(part)) == list(shape_of(total)):
        return stablehlo.AddOp(total, part).result
    end = [low + size for low, size in zip(first, shape_of(part), strict=True)]
    new = stablehlo.AddOp(cut_out(total, first, end), part).result
    return stablehlo.DynamicUpdateSliceOp(total, new, [index(low) for low in first]).result


def index(number: int) -> ir.Value:
    """A constant index."""
    i32 = ir.IntegerType.get_signless(32)
    type_ = ir.RankedTensorType.get([], i32)
    attribute = ir.DenseElementsAttr.get_splat(type_, ir.IntegerAttr.get(i32, number))
    return stablehlo.ConstantOp(attribute).result

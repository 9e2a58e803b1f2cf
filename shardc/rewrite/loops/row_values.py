"""Stacked values in pieces: the rows of each piece, and the whole where an op needs it."""

import itertools
from collections.abc import Sequence

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.ir.attributes import int_attr
from shardc.ir.clone import inputs, replace_inputs
from shardc.ir.constants import splat, splat_text
from shardc.ir.tensor_types import num_elements, shape_of
from shardc.ir.walk import defining_op
from shardc.rewrite.local.local_ops import make_local
from shardc.rewrite.microbatches.ops import create, with_shape


class RowValues:
    """What stands for values while the ops that made them are replaced by ops on some rows.

    New ops go to the current insertion point, each only once.
    """

    def __init__(self) -> None:
        self._parts: dict[tuple[ir.Value, int], list[ir.Value]] = {}
        self._made: dict[ir.Value, int] = {}  # the dim along which a value is made in pieces
        self._whole: dict[ir.Value, ir.Value] = {}

    def give(self, value: ir.Value, dim: int, parts: Sequence[ir.Value]) -> None:
        """From now on `value` is these parts, joined along `dim`."""
        self._parts[value, dim] = list(parts)
        self._made[value] = dim

    def give_argument(self, value: ir.Value, dim: int, parts: Sequence[ir.Value]) -> None:
        """An argument has these parts; nobody asks for the whole of it."""
        self._parts[value, dim] = list(parts)

    def give_whole(self, value: ir.Value, new: ir.Value) -> None:
        """From now on `new` stands for `value`."""
        self._whole[value] = new

    def whole(self, value: ir.Value) -> ir.Value:
        """What stands for a value in an op that is not cut."""
        if value in self._made and value not in self._whole:
            dim = self._made[value]
            joined = create(
                "stablehlo.concatenate",
                [value.type],
                self._parts[value, dim],
                {"dimension": int_attr(dim)},
            )
            self._whole[value] = joined.results[0]
        return self._whole.get(value, value)

    def rows(self, value: ir.Value, dim: int, ends: Sequence[int]) -> list[ir.Value]:
        """The rows `ends[q]:ends[q + 1]` of a stack for each q."""
        if (value, dim) not in self._parts:
            whole, filled = self.whole(value), _filled(value)
            self._parts[value, dim] = [
                make_local(
                    filled, list(filled.operands), [part_type(value, dim, last - first)]
                ).results[0]
                if filled is not None
                else _slice(whole, dim, first, last)
                for first, last in itertools.pairwise(ends)
            ]
        return self._parts[value, dim]

    def use_whole(self, op: ir.Operation) -> None:
        """Lets an op that is not cut use what stands for its inputs."""
        stands = {value: self.whole(value) for value in inputs(op)}
        changed = {value: new for value, new in stands.items() if new != value}
        if changed:
            replace_inputs(op, changed)


def part_type(value: ir.Value, dim: int, size: int) -> ir.Type:
    """The type of `size` rows of a stack."""
    shape = list(shape_of(value))
    shape[dim] = size
    return with_shape(value, shape)


def joined(name: str, parts: Sequence[ir.Value]) -> ir.Value:
    """The parts put together by a binary op."""
    total = parts[0]
    for part in parts[1:]:
        total = create(name, [part.type], [total, part]).results[0]
    return total


def _filled(value: ir.Value) -> ir.Operation | None:
    """The op that fills `value` with one number, and can fill fewer rows in the same way."""
    op = defining_op(value)
    if op is None:
        return None
    constant = op.name == "stablehlo.constant" and splat_text(op) is not None
    spread = op.name == "stablehlo.broadcast_in_dim" and num_elements(op.operands[0]) == 1
    return op if constant or (spread and splat(value) is not None) else None


def _slice(value: ir.Value, dim: int, first: int, last: int) -> ir.Value:
    shape = shape_of(value)
    starts, limits = [0] * len(shape), list(shape)
    starts[dim], limits[dim] = first, last
    return stablehlo.SliceOp(value, starts, limits, [1] * len(shape)).result

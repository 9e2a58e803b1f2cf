"""A copy of a loop or branch that works on one microbatch's part of its operands."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from jax.extend.mlir import ir

from shardc.analysis.batch.batch_state import Cut
from shardc.ir.clone import hollow_copy
from shardc.ir.walk import CONTROL_FLOW, ops_of
from shardc.rewrite.local.local_ops import make_local


class Parts(Protocol):
    """The part of each value inside a loop or branch that one copy holds."""

    def type_of(self, value: ir.Value) -> ir.Type:
        """The type of an original value in the copy."""

    def cut_of(self, op: ir.Operation, position: int) -> Cut | None:
        """Where a whole operand of an op inside (or of a region's return) must be cut."""

    def cut(self, value: ir.Value, cut: Cut, point: ir.InsertionPoint) -> ir.Value:
        """The part of a whole value, made at a point."""

    def strip_mined(
        self, op: ir.Operation, operands: Sequence[ir.Value], values: Mapping[ir.Value, ir.Value]
    ) -> ir.Operation | None:
        """A copy with the microbatch's iterations of a strip-mined loop; None for other ops."""


def make_local_control_flow(
    op: ir.Operation,
    operands: Sequence[ir.Value],
    captured: Mapping[ir.Value, ir.Value],
    parts: Parts,
) -> ir.Operation:
    """A copy of an op of control flow at the current insertion point, at the shapes of a part.

    Args:
        operands: of the copy; those of a loop already have the form of its carried values.
        captured: replacements of captured values.
    """
    if (mined := parts.strip_mined(op, operands, captured)) is not None:
        return mined
    local = hollow_copy(op, operands, [parts.type_of(result) for result in op.results])
    for old_region, new_region in zip(op.regions, local.regions, strict=True):
        old = old_region.blocks[0]
        types = [parts.type_of(argument) for argument in old.arguments]
        new = new_region.blocks.append(*types, arg_locs=[a.location for a in old.arguments])
        values: dict[ir.Value, ir.Value] = dict(captured)
        values.update(zip(old.arguments, new.arguments, strict=True))
        fill_with_parts(ir.InsertionPoint(new), ops_of(old), values, parts)
        _drop_unused(new)
    return local


def fill_with_parts(
    point: ir.InsertionPoint,
    ops: Sequence[ir.Operation],
    values: dict[ir.Value, ir.Value],
    parts: Parts,
) -> None:
    """Writes copies of `ops` at the shapes of a part.

    Args:
        values: what stands for the values that the ops use; their results are added.
    """
    for op in ops:
        used = []
        for position, operand in enumerate(op.operands):
            cut = parts.cut_of(op, position)
            value = values.get(operand, operand)
            used.append(parts.cut(value, cut, point) if cut else value)
        with point, op.location:
            if op.name in CONTROL_FLOW:
                made = make_local_control_flow(op, used, values, parts)
            else:
                made = make_local(op, used, [parts.type_of(r) for r in op.results])
                _rewire(made, values)
        values.update(zip(op.results, made.results, strict=True))


def _rewire(op: ir.Operation, values: Mapping[ir.Value, ir.Value]) -> None:
    """Replaces what the regions of a copied op (a reducer) use from outside."""
    for region in op.regions:
        for block in region.blocks:
            for each in block.operations:
                inner = each.operation
                for position, value in enumerate(inner.operands):
                    if value in values:
                        inner.operands[position] = values[value]
                _rewire(inner, values)


def _drop_unused(block: ir.Block) -> None:
    """Erases whole values of which only parts turned out to be used."""
    for each in reversed(list(block.operations)[:-1]):
        if all(next(iter(result.uses), None) is None for result in each.operation.results):
            each.operation.erase()

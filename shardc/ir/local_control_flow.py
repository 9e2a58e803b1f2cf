"""A loop or branch that works on one microbatch's part of what goes through it."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from jax.extend.mlir import ir

from shardc.ir.clone import hollow_copy
from shardc.ir.local_ops import make_local
from shardc.ir.walk import CONTROL_FLOW

if TYPE_CHECKING:
    from shardc.analysis.batch_state import Cut


def make_local_control_flow(
    op: ir.Operation,
    operands: Sequence[ir.Value],
    captured: Mapping[ir.Value, ir.Value],
    part_type: Callable[[ir.Value], ir.Type],
    operand_cut: Callable[[ir.Operation, int], "Cut | None"],
    cut_value: Callable[[ir.Value, "Cut", ir.InsertionPoint], ir.Value],
) -> ir.Operation:
    """A copy of an op of control flow at the current insertion point, at the shapes of a part.

    Args:
        operands: those of the copy, a loop's already in the form of what it carries.
        captured: new values for the values from outside that the regions use.
        part_type: the type that a value of the original has in the copy.
        operand_cut: where a whole operand of an op inside (or of a region's return) must be cut.
        cut_value: makes the part of a whole value.
    """
    local = hollow_copy(op, operands, [part_type(result) for result in op.results])
    for old_region, new_region in zip(op.regions, local.regions, strict=True):
        old = old_region.blocks[0]
        types = [part_type(argument) for argument in old.arguments]
        new = new_region.blocks.append(*types, arg_locs=[a.location for a in old.arguments])
        values: dict[ir.Value, ir.Value] = dict(captured)
        values.update(zip(old.arguments, new.arguments, strict=True))
        for each in old.operations:
            inner = each.operation
            used = []
            for position, operand in enumerate(inner.operands):
                cut = operand_cut(inner, position)
                value = values.get(operand, operand)
                used.append(cut_value(value, cut, ir.InsertionPoint(new)) if cut else value)
            with ir.InsertionPoint(new), inner.location:
                if inner.name in CONTROL_FLOW:
                    made = make_local_control_flow(
                        inner, used, values, part_type, operand_cut, cut_value
                    )
                else:
                    made = make_local(inner, used, [part_type(r) for r in inner.results])
                    _rewire(made, values)
            values.update(zip(inner.results, made.results, strict=True))
        _drop_unused(new)
    return local


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

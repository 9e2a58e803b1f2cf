"""Copying ops with their operands replaced, values captured inside regions included."""

from collections.abc import Mapping, Sequence

from jax.extend.mlir import ir

from shardc.ir.walk import walk


def captures(op: ir.Operation) -> list[ir.Value]:
    """The values that the regions of `op` capture, without duplicates."""
    inside: set[ir.Value] = set()
    used: dict[ir.Value, None] = {}

    def enter(outer: ir.Operation) -> None:
        for region in outer.regions:
            for block in region.blocks:
                inside.update(block.arguments)
                for each in block.operations:
                    inner = each.operation
                    inside.update(inner.results)
                    used.update(dict.fromkeys(inner.operands))
                    enter(inner)

    enter(op)
    return [v for v in used if v not in inside]


def inputs(op: ir.Operation) -> list[ir.Value]:
    """The operands of `op`, then the captures of its regions that are not operands."""
    found = list(op.operands)
    if len(op.regions) == 0:
        return found
    known = set(found)
    return found + [v for v in captures(op) if v not in known]


def replace_inputs(op: ir.Operation, mapping: Mapping[ir.Value, ir.Value]) -> None:
    """Replaces operands of `op` and of the ops in its regions; values not in `mapping` stay."""
    for each in [op, *walk(op)] if len(op.regions) > 0 else [op]:
        for position, value in enumerate(each.operands):
            if value in mapping:
                each.operands[position] = mapping[value]


def clone_op(op: ir.Operation, mapping: Mapping[ir.Value, ir.Value]) -> ir.Operation:
    """A copy of `op` at the current insertion point with its inputs replaced by `mapping`."""
    copy = op.operation.clone(ip=ir.InsertionPoint.current).operation
    replace_inputs(copy, mapping)
    return copy


def hollow_copy(
    op: ir.Operation, operands: Sequence[ir.Value], result_types: Sequence[ir.Type]
) -> ir.Operation:
    """An op like `op` at the current insertion point, with empty regions."""
    return ir.Operation.create(
        op.name,
        results=list(result_types),
        operands=list(operands),
        attributes={name: op.attributes[name] for name in op.attributes},
        regions=len(op.regions),
    )

"""Unrolls a counted loop."""

from jax.extend.mlir import ir

from shardc.ir.clone import clone_op
from shardc.ir.walk import block_terminator, ops_of


def unroll(loop: ir.Operation, trips: int) -> None:
    """Replaces a loop by `trips` copies of its body; by its initial values if that is 0."""
    values = list(loop.operands)
    block = loop.regions[1].blocks[0]
    with ir.InsertionPoint(loop), loop.location:
        for _ in range(trips):
            mapping = dict(zip(block.arguments, values, strict=True))
            for op in ops_of(block)[:-1]:
                copy = clone_op(op, mapping)
                mapping.update(zip(op.results, copy.results, strict=True))
            values = [mapping.get(v, v) for v in block_terminator(block).operands]
    for result, value in zip(loop.results, values, strict=True):
        result.replace_all_uses_with(value)
    loop.erase()

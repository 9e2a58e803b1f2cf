"""Take out of loops what they carry around unchanged."""

from collections.abc import Sequence
from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.ir.attributes import SHARDING
from shardc.ir.clone import hollow_copy
from shardc.ir.pass_manager import Pass
from shardc.ir.walk import all_functions, last_op, walk


@dataclass(frozen=True)
class SimplifyLoops(Pass):
    """Removes what every round of a `stablehlo.while` hands on as it got it.

    The loop then uses the value from outside, of which later passes can tell more than of one that
    a loop carries: that it is a constant, an iota, or the same for all microbatches. Loops with
    shardings of their own stay as they are. A second run changes nothing.
    """

    name = "shardc-simplify-loops"
    never_refuses = "a loop that changes all that it carries is left alone"

    def apply(self, module: ir.Operation) -> None:
        for function in all_functions(module):
            for op in reversed(list(walk(function))):  # inner loops first
                if op.name == "stablehlo.while":
                    _simplify(op)


def _simplify(op: ir.Operation) -> None:
    inside = op.regions[1].blocks[0]
    returned = list(last_op(inside).operands)
    kept = [
        p
        for p, (argument, value) in enumerate(zip(inside.arguments, returned, strict=True))
        if value not in (argument, op.operands[p])
    ]
    if len(kept) == len(returned) or SHARDING in op.attributes:  # which counts all values
        return
    gone = [p for p in range(len(returned)) if p not in kept]
    with ir.InsertionPoint(op), op.location:
        new = hollow_copy(op, [op.operands[p] for p in kept], [op.results[p].type for p in kept])
    for p in gone:
        op.results[p].replace_all_uses_with(op.operands[p])
    for position, p in enumerate(kept):
        op.results[p].replace_all_uses_with(new.results[position])
    for old_region, new_region in zip(op.regions, new.regions, strict=True):
        block = old_region.blocks[0]
        for p in gone:
            block.arguments[p].replace_all_uses_with(op.operands[p])
        block.append_to(new_region)
        for p in reversed(gone):
            block.erase_argument(p)
    _return(new.regions[1].blocks[0], kept)
    op.erase()


def _return(block: ir.Block, kept: Sequence[int]) -> None:
    """Lets a block hand on those of its values only."""
    end = last_op(block)
    with ir.InsertionPoint(end), end.location:
        stablehlo.ReturnOp([end.operands[p] for p in kept])
    end.erase()

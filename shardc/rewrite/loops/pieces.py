"""Cutting a loop into consecutive pieces, each over a range of its iterations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.analysis.program.counted_loop import CountedLoop
from shardc.ir.clone import replace_inputs
from shardc.ir.constants import integer
from shardc.ir.walk import block_terminator, defining_op, ops_of


@dataclass(frozen=True)
class Piece:
    """One piece of a counted loop, and the replacements of the whole loop's operands.

    Attributes:
        counted: how the whole loop counts.
        first, last: its iterations are first..last - 1 of the whole loop's.
        first_row: what is subtracted from the number of a row.
        operands: what goes in.
        reads: position of a `dynamic_slice` in the body -> (the dim of its rows, the rows of the
            piece, which it reads in place of its operand).
        writes: position of a carried stack -> the dim of its rows; its operand has the rows of
            the piece only.
        captured: other values from outside -> what stands for them.
    """

    counted: CountedLoop
    first: int
    last: int
    first_row: int
    operands: Sequence[ir.Value]
    reads: Mapping[int, tuple[int, ir.Value]]
    writes: Mapping[int, int]
    captured: Mapping[ir.Value, ir.Value]


def make_piece(loop: ir.Operation, piece: Piece) -> ir.Operation:
    """A copy of a `stablehlo.while` at the current insertion point that runs `piece` only."""
    counted = piece.counted
    starts = {
        p: integer(loop.operands[p].type, counted.count_at(p, piece.first))
        for p in counted.counters
    }
    bound = integer(
        loop.operands[counted.counter].type, counted.count_at(counted.counter, piece.last)
    )
    copy = loop.operation.clone(ip=ir.InsertionPoint.current).operation
    for p, operand in enumerate(piece.operands):
        copy.operands[p] = starts.get(p, operand)
        copy.results[p].set_type(operand.type)
        for region in copy.regions:
            region.blocks[0].arguments[p].set_type(operand.type)
    condition, body = (region.blocks[0] for region in copy.regions)
    count_to(condition, counted.counter, counted.step, bound)
    inner = ops_of(body)
    for position, (dim, rows) in piece.reads.items():
        inner[position].operands[0] = rows
        _shift(inner[position], 1 + dim, piece.first_row)
    for p, dim in piece.writes.items():
        update = defining_op(block_terminator(body).operands[p])
        assert update is not None, "a carried stack is updated by an op"
        _shift(update, 2 + dim, piece.first_row)
        update.results[0].set_type(piece.operands[p].type)
    replace_inputs(copy, piece.captured)
    return copy


def count_to(condition: ir.Block, counter: int, step: int, bound: ir.Value) -> None:
    """Rewrites the condition: a loop ends when its carried value at `counter` reaches `bound`."""
    end = block_terminator(condition)
    old = defining_op(end.operands[0])
    assert old is not None, "a loop counts by a comparison"
    direction = stablehlo.ComparisonDirectionAttr.get("LT" if step > 0 else "GT")
    with ir.InsertionPoint(end), end.location:
        more = stablehlo.CompareOp(condition.arguments[counter], bound, direction)
    end.operands[0] = more.result
    old.erase()


def _shift(op: ir.Operation, position: int, first_row: int) -> None:
    """Subtracts `first_row` from an index, even if it is 0: the first piece looks like the
    others."""
    index = op.operands[position]
    with ir.InsertionPoint(op), op.location:
        shift = integer(index.type, first_row)
        op.operands[position] = stablehlo.SubtractOp(index, shift).result

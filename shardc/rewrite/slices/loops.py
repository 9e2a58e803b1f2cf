"""The iterations of a loop over tokens that belong to a slice."""

from collections.abc import Mapping, Sequence

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.analysis.loops.row_loop import row_read
from shardc.analysis.loops.token_loop import TokenLoop
from shardc.ir.clone import clone_op
from shardc.ir.walk import block_terminator, defining_op
from shardc.rewrite.slices.rows import Span


def iterations_of(
    loop: TokenLoop, span: Span, given: Sequence[ir.Value], captured: Mapping[ir.Value, ir.Value]
) -> ir.Operation:
    """The part of a loop that works on the rows of a slice, at the current insertion point.

    Its counters have the values they have in the whole loop. The cut values among `given` and
    `captured` have only the rows of the slice, so they are indexed from its first row on.
    """
    rows, counted = loop.rows, loop.rows.counted
    first, last = rows.row_range(span.first, span.end)  # of rows: of iterations, the same way
    given = [
        _number(value, counted.count_at(p, first)) if p in counted.counters else value
        for p, value in enumerate(given)
    ]
    cut_reads = [row for row in rows.reads if row_read(row).operands[0] in loop.cut]
    places = {row: _place(row_read(row)) for row in cut_reads}
    new = clone_op(rows.loop, captured)
    for p, value in enumerate(given):
        for block in (new.regions[0].blocks[0], new.regions[1].blocks[0]):
            block.arguments[p].set_type(value.type)
        new.operands[p] = value
        new.results[p].set_type(value.type)
    body = new.regions[1].blocks[0]
    every = list(body.operations)
    for row, place in places.items():
        _begin_at(every[place].operation, 1 + rows.reads[row], span.first)
    for p, dim in rows.writes.items():
        write = defining_op(block_terminator(body).operands[p])
        assert write is not None, "rows are written by an op"
        _begin_at(write, 2 + dim, span.first)
        write.results[0].set_type(given[p].type)
    _end_at(new, counted.count_at(counted.counter, last), counted.step)
    return new


def _place(op: ir.Operation) -> int:
    return next(i for i, each in enumerate(op.block.operations) if each.operation == op)


def _begin_at(op: ir.Operation, position: int, first: int) -> None:
    """Makes an index count from the first row of the slice."""
    with ir.InsertionPoint(op), op.location:
        start = op.operands[position]
        op.operands[position] = stablehlo.SubtractOp(start, _number(start, first)).result


def _end_at(loop: ir.Operation, end: int, step: int) -> None:
    condition = loop.regions[0].blocks[0]
    compare = defining_op(block_terminator(condition).operands[0])
    assert compare is not None, "a counted loop compares its counter"
    with ir.InsertionPoint(compare), compare.location:
        compare.operands[1] = _number(compare.operands[1], end)
    direction = "LT" if step > 0 else "GT"
    compare.attributes["comparison_direction"] = stablehlo.ComparisonDirectionAttr.get(direction)


def _number(like: ir.Value, number: int) -> ir.Value:
    """A constant of the type of another integer."""
    type_ = ir.RankedTensorType(like.type)
    attribute = ir.IntegerAttr.get(type_.element_type, number)
    return stablehlo.ConstantOp(ir.DenseElementsAttr.get_splat(type_, attribute)).result

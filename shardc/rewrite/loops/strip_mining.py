"""Strip mining: one microbatch's iterations of a loop over blocks of the batch."""

from collections.abc import Mapping, Sequence

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.analysis.batch.strip_mining import StripMining
from shardc.ir.clone import replace_inputs
from shardc.ir.constants import integer
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import block_terminator, defining_op, ops_of
from shardc.rewrite.loops.pieces import count_to


def make_strip(
    loop: ir.Operation,
    mined: StripMining,
    operands: Sequence[ir.Value],
    captured: Mapping[ir.Value, ir.Value],
    index: ir.Value,
    count: int,
) -> ir.Operation:
    """A copy of `loop` at the current insertion point with the iterations of one microbatch.

    The copy counts from the same start; its body sees the counts of the whole loop, and accesses
    blocks relative to the microbatch's part.

    Args:
        operands: initial values; arrays that are accessed in blocks as the microbatch's part.
        captured: replacements of captured values.
        index: number of the microbatch, tensor<i32>.
        count: number of microbatches; divides the iterations.
    """
    copy = loop.operation.clone(ip=ir.InsertionPoint.current).operation
    for p, operand in enumerate(operands):
        copy.operands[p] = operand
        copy.results[p].set_type(operand.type)
        for region in copy.regions:
            region.blocks[0].arguments[p].set_type(operand.type)
    replace_inputs(copy, captured)
    condition, body = (region.blocks[0] for region in copy.regions)
    counted = mined.counted
    trips = counted.trips // count
    with ir.InsertionPoint.at_block_begin(condition), copy.location:
        bound = integer(operands[counted.counter].type, counted.count_at(counted.counter, trips))
    count_to(condition, counted.counter, counted.step, bound)
    inner = ops_of(body)
    for position, dim in mined.reads.items():
        block = shape_of(inner[position].results[0])[dim]
        _shift(inner[position], 1 + dim, index, trips * block)
    for p, dim in mined.writes.items():
        update = defining_op(block_terminator(body).operands[p])
        assert update is not None, "blocks are written by an op"
        _shift(update, 2 + dim, index, trips * shape_of(update.operands[1])[dim])
        update.results[0].set_type(operands[p].type)
    for p, (_, step) in counted.counters.items():
        _count_on(body, p, step, index, (0, trips) if mined.forwards else (count - 1, -trips))
    return copy


def _shift(op: ir.Operation, position: int, index: ir.Value, rows: int) -> None:
    """Subtracts the `rows` of each microbatch before this one from an index of `op`."""
    with ir.InsertionPoint(op), op.location:
        old = op.operands[position]
        before = stablehlo.multiply(_as(index, old.type), integer(old.type, rows))
        op.operands[position] = stablehlo.subtract(old, before)


def _count_on(
    body: ir.Block, position: int, step: int, index: ir.Value, first: tuple[int, int]
) -> None:
    """Replaces a counter inside the body by its count in the whole loop.

    Args:
        first: (m, t) of the microbatch's first iteration, |index - m| * |t|.
    """
    argument, end = body.arguments[position], block_terminator(body)
    last, trips = first
    with ir.InsertionPoint.at_block_begin(body), end.location:
        begun = _as(index, argument.type)
        if last > 0:
            begun = stablehlo.subtract(begun, integer(argument.type, last))
        seen = stablehlo.multiply(begun, integer(argument.type, trips * step))
        true = stablehlo.add(argument, seen)
    argument.replace_all_uses_except(true, defining_op(true))
    with ir.InsertionPoint(end), end.location:
        end.operands[position] = stablehlo.add(argument, integer(argument.type, step))


def _as(index: ir.Value, type_: ir.Type) -> ir.Value:
    return index if index.type == type_ else stablehlo.convert(type_, index)


def unroll_single(loop: ir.Operation) -> list[ir.Operation]:
    """Replaces a loop with one iteration by its body; returns the inlined ops.

    Slices and updates of a whole value are folded.
    """
    body = loop.regions[1].blocks[0]
    end = block_terminator(body)
    for argument, operand in zip(body.arguments, loop.operands, strict=True):
        argument.replace_all_uses_with(operand)
    found = []
    for op in ops_of(body)[:-1]:
        part = {"stablehlo.dynamic_slice": 0, "stablehlo.dynamic_update_slice": 1}.get(op.name)
        if part is not None and op.operands[part].type == op.results[0].type:
            op.results[0].replace_all_uses_with(op.operands[part])
        else:
            op.move_before(loop)
            found.append(op)
    for result, value in zip(loop.results, end.operands, strict=True):
        result.replace_all_uses_with(value)
    loop.erase()
    return found

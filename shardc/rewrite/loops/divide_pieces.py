"""Dividing pieces: a loop over pieces of the batch becomes one over more and smaller pieces."""

from fractions import Fraction
from math import gcd

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.analysis.batch.control_flow import inner_cut
from shardc.analysis.program.op_classes import IDENTITIES
from shardc.analysis.values.element_types import integer_range
from shardc.ir.constants import integer
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import block_terminator, defining_op, ops_of, walk
from shardc.rewrite.local.local_ops import make_local
from shardc.rewrite.loops.join_pieces import Resized, copy_barrier, is_even
from shardc.rewrite.loops.joined_pieces import JoinedPieces
from shardc.rewrite.loops.pieces import count_to
from shardc.rewrite.microbatches.control_flow import fill_with_parts


def most_parts(found: JoinedPieces) -> int:
    """The number of parts of a piece must divide this; 1 if pieces cannot be divided.

    A part must read, write and add up its share of a piece, so pieces that are rows of a stack
    [pieces, rows, ..] cannot be divided, nor may an iteration add a term of its own.
    """
    counted, body = found.mining.counted, found.body
    if found.repeated or counted.counters[counted.counter] != (0, 1):
        return 1
    if not all(found.state(value).is_partial for value in found.sums.values()):
        return 1
    blocks = [shape_of(value)[found.mining.writes[p]] for p, value in found.writes.items()]
    for p, value in found.writes.items():
        cut = found.state(value).cut
        if cut is None or cut.dim != found.mining.writes[p]:
            return 1
    for op in ops_of(body):
        rows = found.reads.get(op.results[0]) if len(op.results) > 0 else None
        if rows is not None:
            size = shape_of(op.results[0])[rows.dim]
            if shape_of(op.operands[0])[rows.dim] == size:
                return 1
            blocks.append(size)
    for op in walk(found.loop):
        for position, value in enumerate(op.operands):
            cut = inner_cut(found.flow, op, position)
            if cut is not None and not is_even(value, cut.dim):
                return 1
    most = gcd(*blocks, *found.flow.limits)
    limits = integer_range(ir.RankedTensorType(body.arguments[counted.counter].type).element_type)
    return most if limits is not None and found.pieces * most <= limits[1] else 1


def divide_pieces(found: JoinedPieces, parts: int) -> None:
    """Replaces the loop by one in which an iteration works on one of `parts` parts of a piece."""
    loop, counted = found.loop, found.mining.counted
    copy = loop.operation.clone(ip=ir.InsertionPoint(loop)).operation
    condition, body = (region.blocks[0] for region in copy.regions)
    pieces = found.pieces * parts
    with ir.InsertionPoint.at_block_begin(condition), loop.location:
        bound = integer(loop.operands[counted.counter].type, pieces)
    count_to(condition, counted.counter, 1, bound)
    for op in reversed(ops_of(body)):
        op.erase()
    point, resized = ir.InsertionPoint(body), Resized(found, Fraction(1, parts))
    values: dict[ir.Value, ir.Value] = {}
    values.update(zip(found.body.arguments, body.arguments, strict=True))
    with point, loop.location:
        number: ir.Value = body.arguments[counted.counter]
        if not found.mining.forwards:
            number = stablehlo.subtract(integer(number.type, pieces - 1), number)

    def starts(op: ir.Operation, first: int, dim: int, size: int) -> list[ir.Value]:
        """The start indices of what an op reads or writes: its operands from `first` on."""
        new = [values.get(v, v) for v in list(op.operands)[first:]]
        type_ = new[dim].type
        row = number if number.type == type_ else stablehlo.convert(type_, number)
        new[dim] = stablehlo.multiply(row, integer(type_, size))
        return new

    handed = block_terminator(found.body).operands
    ends = {defining_op(handed[p]): p for p in (*found.sums, *found.writes)}
    following: list[ir.Value] = list(body.arguments)
    for op in ops_of(found.body)[:-1]:
        position = ends.get(op)
        rows = found.reads.get(op.results[0]) if len(op.results) > 0 else None
        if rows is not None:
            type_ = resized.type_of(op.results[0])
            with point, op.location:
                size = ir.RankedTensorType(type_).shape[rows.dim]
                operands = [values.get(op.operands[0], op.operands[0])]
                operands += starts(op, 1, rows.dim, size)
                values[op.results[0]] = make_local(op, operands, [type_]).results[0]
        elif position is not None:
            added = found.sums.get(position)
            with point, op.location:
                if added is not None:
                    so_far = body.arguments[position]
                    following[position] = stablehlo.add(so_far, values.get(added, added))
                    continue
                part, dim = values[found.writes[position]], found.mining.writes[position]
                operands = [body.arguments[position], part]
                operands += starts(op, 2, dim, shape_of(part)[dim])
                following[position] = make_local(op, operands, [op.results[0].type]).results[0]
        elif op.name in IDENTITIES:
            copy_barrier(op, values, found, point)
        elif found.counted.isdisjoint(op.results):
            fill_with_parts(point, [op], values, resized)
    with point, loop.location:
        for p, (_, step) in counted.counters.items():
            argument = body.arguments[p]
            following[p] = stablehlo.add(argument, integer(argument.type, step))
        stablehlo.ReturnOp(following)
    for old, new in zip(loop.results, copy.results, strict=True):
        old.replace_all_uses_with(new)
    loop.erase()

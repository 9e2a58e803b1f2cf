"""Joining pieces: a loop over pieces of the batch becomes its body, on the rows of all pieces."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import prod

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.analysis.batch.batch_state import Cut
from shardc.analysis.batch.control_flow import inner_cut
from shardc.analysis.program.op_classes import FUSED, IDENTITIES
from shardc.ir.constants import is_complex, is_zero, splat
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import block_terminator, defining_op, ops_of
from shardc.rewrite.local.local_ops import EDGES, make_local
from shardc.rewrite.loops.joined_pieces import JoinedPieces
from shardc.rewrite.microbatches.control_flow import fill_with_parts
from shardc.rewrite.microbatches.ops import create, with_shape

Values = dict[ir.Value, ir.Value]


def join_pieces(found: JoinedPieces) -> None:
    """Replaces the loop by one run of its body on the rows of all pieces."""
    loop, body = found.loop, found.body
    point, parts = ir.InsertionPoint(loop), Resized(found, Fraction(found.pieces))
    values: Values = dict(zip(body.arguments, loop.operands, strict=True))
    handed = block_terminator(body).operands
    ends = {defining_op(handed[p]) for p in (*found.sums, *found.writes)}
    for op in ops_of(body)[:-1]:
        if op in ends:
            continue
        if len(op.results) > 0 and (rows := found.reads.get(op.results[0])) is not None:
            whole = values.get(op.operands[0], op.operands[0])
            with point, op.location:
                in_blocks = shape_of(whole)[rows.dim] > shape_of(op.results[0])[rows.dim]
                values[op.results[0]] = whole if in_blocks else _merged(whole, rows.dim - 1)
        elif op.name in IDENTITIES:
            copy_barrier(op, values, found, point)
        elif found.counted.isdisjoint(op.results):
            _copy(op, values, found, parts, point)
    with point, loop.location:
        for p, value in found.sums.items():
            added, start = values.get(value, value), loop.operands[p]
            if not found.state(value).is_partial:
                added = _times(added, found.pieces)
            total = added if is_zero(start) else stablehlo.add(start, added)
            loop.results[p].replace_all_uses_with(total)
        for p, value in found.writes.items():
            _hand_on(loop.results[p], values.get(value, value))
    for result, operand in zip(loop.results, loop.operands, strict=True):
        result.replace_all_uses_with(operand)
    loop.erase()


def _copy(
    op: ir.Operation,
    values: Values,
    found: JoinedPieces,
    parts: "Resized",
    point: ir.InsertionPoint,
) -> None:
    """A copy of an op of the body on all rows; adds its results to `values`."""
    usual = {}
    for position, operand in enumerate(op.operands):
        if (op.results[0], position) in found.repeated:
            usual[operand] = values.get(operand, operand)
            with point, op.location:
                values[operand] = _times(usual[operand], found.pieces)
    fill_with_parts(point, [op], values, parts)
    values.update(usual)


def copy_barrier(
    op: ir.Operation, values: Values, found: JoinedPieces, point: ir.InsertionPoint
) -> None:
    """A copy of a barrier of the body without what depends on the number of the iteration."""
    kept = [p for p, operand in enumerate(op.operands) if operand not in found.counted]
    new = [values.get(op.operands[p], op.operands[p]) for p in kept]
    if not new:
        return
    with point, op.location:
        made = create(op.name, [v.type for v in new], new)
    values.update((op.results[p], v) for p, v in zip(kept, made.results, strict=True))


def _hand_on(result: ir.Value, written: ir.Value) -> None:
    """Replaces a stack by what was written: all of its rows, or their sum as its only row."""
    if prod(shape_of(written)) == prod(shape_of(result)):
        for use in list(result.uses):
            op = use.owner.operation
            if op.name == "stablehlo.reshape":  # past the pieces
                op.results[0].replace_all_uses_with(_reshaped(written, shape_of(op.results[0])))
        result.replace_all_uses_with(_reshaped(written, shape_of(result)))
        return
    for use in list(result.uses):  # sums along the dim of the pieces
        use.owner.operation.operands[use.operand_number] = written


def _times(value: ir.Value, number: int) -> ir.Value:
    """An integer multiple of a value."""
    element = str(ir.RankedTensorType(value.type).element_type)
    if element == "i1":  # a sum of booleans is a disjunction
        return value
    text = str(number)
    if is_complex(value):
        text = f"({number}.0, 0.0)"
    elif "i" not in element:
        text = f"{number}.0"
    many = stablehlo.ConstantOp(ir.Attribute.parse(f"dense<{text}> : {value.type}")).result
    return stablehlo.multiply(value, many)


def _reshaped(value: ir.Value, shape: Sequence[int]) -> ir.Value:
    if list(shape_of(value)) == list(shape):
        return value
    return create("stablehlo.reshape", [with_shape(value, shape)], [value]).results[0]


def _merged(value: ir.Value, dim: int) -> ir.Value:
    """`value` [.., pieces, rows, ..] as [.., 1, pieces * rows, ..], `dim` being that of the pieces.

    The light ops behind it are rebuilt at that shape, so that a batch [pieces * rows] that was
    reshaped to pieces is not cut into pieces at all.
    """
    shape, op = list(shape_of(value)), defining_op(value)
    shape[dim : dim + 2] = 1, shape[dim] * shape[dim + 1]
    if op is None:
        return _reshaped(value, shape)
    if op.name == "stablehlo.reshape":
        at = _dim_in(op.operands[0], value, dim)
        source = op.operands[0] if at is None else _merged(op.operands[0], at)
        return _reshaped(source, shape)
    if not _is_light(op, dim):
        return _reshaped(value, shape)
    operands = [
        _merged(operand, dim)
        if shape_of(operand)[dim : dim + 2] == shape_of(value)[dim : dim + 2]
        and op.name != "stablehlo.broadcast_in_dim"
        else operand
        for operand in op.operands
    ]
    return make_local(op, operands, [with_shape(value, shape)]).results[0]


def _dim_in(source: ir.Value, value: ir.Value, dim: int) -> int | None:
    """The dim of `source` that its reshape `value` has as dim `dim`, if the dims after both
    agree."""
    old, new = shape_of(source), shape_of(value)
    for at in range(len(old) - 1):
        if old[at : at + 2] == new[dim : dim + 2] and prod(old[:at]) == prod(new[:dim]):
            return at
    return None


def _is_light(op: ir.Operation, dim: int) -> bool:
    """Whether `_merged` may make `op` again: it works along other dims, or element by element."""
    inside, shape = {dim, dim + 1}, shape_of(op.results[0])
    whole = all(
        shape_of(operand)[dim : dim + 2] == shape[dim : dim + 2]
        for operand in op.operands
        if len(shape_of(operand)) == len(shape)
    )
    if op.name == "stablehlo.concatenate":
        return int(ir.IntegerAttr(op.attributes["dimension"]).value) not in inside
    if op.name == "stablehlo.broadcast_in_dim":
        return inside.isdisjoint(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))
    if op.name == "stablehlo.constant":
        return splat(op.results[0]) is not None
    if op.name == "stablehlo.pad":
        edges = [list(ir.DenseI64ArrayAttr(op.attributes[name])) for name in EDGES[op.name]]
        return whole and not any(each[d] for each in edges for d in inside)
    return whole and (op.name in FUSED or op.name == "stablehlo.slice")


class Resized:
    """The values of the body with other numbers of rows: see `Parts`.

    Args:
        times: rows per row of a piece.
    """

    def __init__(self, found: JoinedPieces, times: Fraction) -> None:
        self.found, self.times = found, times

    def type_of(self, value: ir.Value) -> ir.Type:
        cut = self.found.state(value).cut
        if cut is None:
            return value.type
        shape = list(shape_of(value))
        shape[cut.dim] = int(shape[cut.dim] * self.times)
        return with_shape(value, shape)

    def cut_of(self, op: ir.Operation, position: int) -> Cut | None:
        return inner_cut(self.found.flow, op, position)

    def cut(self, value: ir.Value, cut: Cut, point: ir.InsertionPoint) -> ir.Value:
        """The same rows for every piece, however many there are of an even value."""
        shape = list(shape_of(value))
        size, pieces = shape[cut.dim], int(self.times)
        grown = [*shape[: cut.dim], int(size * self.times), *shape[cut.dim + 1 :]]
        with point, value.location:
            if is_even(value, cut.dim):
                return _widened(value, cut.dim, grown[cut.dim])
            assert pieces > 0, "only even values have fewer rows"
            rows = [*shape[: cut.dim], cut.outer, size // cut.outer, *shape[cut.dim + 1 :]]
            seen = _reshaped(value, rows)
            wide = [*rows[: cut.dim + 1], pieces, *rows[cut.dim + 1 :]]
            dims = [d for d in range(len(wide)) if d != cut.dim + 1]
            named = {"broadcast_dimensions": ir.DenseI64ArrayAttr.get(dims)}
            types = [with_shape(value, wide)]
            many = create("stablehlo.broadcast_in_dim", types, [seen], named).results[0]
            return _reshaped(many, grown)

    def strip_mined(
        self, op: ir.Operation, operands: Sequence[ir.Value], values: Mapping[ir.Value, ir.Value]
    ) -> ir.Operation | None:
        return None


def is_even(value: ir.Value, dim: int) -> bool:
    """Whether a value is known to be the same everywhere along `dim`."""
    op = defining_op(value)
    if op is None:
        return False
    if op.name == "stablehlo.broadcast_in_dim":
        kept = list(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))
        return dim not in kept or shape_of(op.operands[0])[kept.index(dim)] == 1
    if op.name in FUSED:
        return all(not shape_of(v) or is_even(v, dim) for v in op.operands)
    return op.name == "stablehlo.constant" and splat(op.results[0]) is not None


def _widened(value: ir.Value, dim: int, size: int) -> ir.Value:
    """An even value with another size of `dim`."""
    op = defining_op(value)
    assert op is not None, "an argument is not even"
    operands = list(op.operands)
    if op.name in FUSED:
        operands = [
            _widened(v, dim, size) if shape_of(v) == shape_of(value) else v for v in operands
        ]
    shape = list(shape_of(value))
    shape[dim] = size
    return make_local(op, operands, [with_shape(value, shape)]).results[0]

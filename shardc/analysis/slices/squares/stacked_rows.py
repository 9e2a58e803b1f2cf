"""Which value a row of a stack holds: the one that an iteration of an unrolled loop has written."""

from collections.abc import Mapping

from jax.extend.mlir import ir

from shardc.analysis.values.facts import Values
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import defining_op

_Box = list[tuple[int, int]]


def row_written(
    read: ir.Operation, sources: Mapping[ir.Value, ir.Value], values: Values
) -> ir.Value | None:
    """The update that a `dynamic_slice` reads back; None where it does not read just that.

    Updates of other rows are passed over.

    Args:
        sources: argument of a function -> the value that it is in the function that makes it.
    """
    wanted = _box(read, 1, shape_of(read.results[0]), values)
    stack = read.operands[0]
    while wanted is not None:
        op = defining_op(stack)
        if op is None and stack in sources:
            stack = sources[stack]
            continue
        if op is None or op.name != "stablehlo.dynamic_update_slice":
            return None
        written = _box(op, 2, shape_of(op.operands[1]), values)
        if written is None:
            return None
        if written == wanted:
            return op.operands[1]
        pairs = zip(wanted, written, strict=True)
        if not any(end <= low or high <= first for (first, end), (low, high) in pairs):
            return None
        stack = op.operands[0]
    return None


def _box(op: ir.Operation, first: int, shape: tuple[int, ...], values: Values) -> _Box | None:
    """The range of rows along each dim; operands from `first` on give the starts. None if a start
    is unknown or clamped."""
    starts = [values.number(value) for value in list(op.operands)[first:]]
    found = []
    for start, rows, size in zip(starts, shape, shape_of(op.operands[0]), strict=True):
        if start is None or not 0 <= start <= size - rows:
            return None
        found.append((start, start + rows))
    return found

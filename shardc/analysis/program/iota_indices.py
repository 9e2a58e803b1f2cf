"""Which values count: each element is its own position along a dim."""

from collections.abc import Sequence

from jax.extend.mlir import ir

from shardc.ir.constants import is_zero
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import made_by


def counts_along(value: ir.Value) -> int | None:
    """The dim d in which each element of `value` is its own position; None if there is none.

    Sees through broadcasts, reshapes that only add or drop dims of size 1, conversions between
    integers, and the wrapping of an index that may be negative.
    """
    op = made_by(value)
    if op is None:
        return None
    if op.name == "stablehlo.iota":
        return int(ir.IntegerAttr(op.attributes["iota_dimension"]).value)
    if op.name == "stablehlo.convert":
        integers = isinstance(ir.RankedTensorType(value.type).element_type, ir.IntegerType)
        return counts_along(op.operands[0]) if integers else None
    if op.name == "stablehlo.select":  # of an index that may be negative
        return counts_along(op.operands[2]) if _is_wrapped(op) else None
    if op.name not in ("stablehlo.broadcast_in_dim", "stablehlo.reshape"):
        return None
    dim = counts_along(op.operands[0])
    if dim is None:
        return None
    before, after = shape_of(op.operands[0]), shape_of(value)
    if op.name == "stablehlo.broadcast_in_dim":
        target = list(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))[dim]
        return target if before[dim] == after[target] else None
    return _same_dim(before, after, dim)


def _same_dim(before: Sequence[int], after: Sequence[int], dim: int) -> int | None:
    """Where a reshape that only adds or drops dims of size 1 puts a dim."""
    old = [d for d, size in enumerate(before) if size != 1]
    new = [d for d, size in enumerate(after) if size != 1]
    if [before[d] for d in old] != [after[d] for d in new] or dim not in old:
        return None
    return new[old.index(dim)]


def _is_wrapped(op: ir.Operation) -> bool:
    """Whether a select gives what is not negative as it is: `i < 0 ? anything : i`."""
    compare = made_by(op.operands[0])
    if compare is None or compare.name != "stablehlo.compare":
        return False
    below = "LT" in str(compare.attributes["comparison_direction"])
    return below and compare.operands[0] == op.operands[2] and is_zero(compare.operands[1])

"""Products with one-hot matrices that look up rows of a parameter, and their gradients."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.analysis.program.arguments import state_arguments
from shardc.analysis.values.facts import counts_along
from shardc.ir.tensor_types import num_elements, shape_of
from shardc.ir.walk import body, defining_op, walk
from shardc.rules.partial_sums import element_type

_FLOATS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
# Ops whose result still counts as the parameter.
_CASTS = {
    "stablehlo.convert",
    "stablehlo.optimization_barrier",
    "stablehlo.reduce_precision",
    "stablehlo.reshape",
    "stablehlo.slice",
    "stablehlo.transpose",
    "sdy.sharding_constraint",
}


@dataclass(frozen=True)
class OneHot:
    """A one-hot matrix: one where the id of the row equals the index along a dim, zero elsewhere.

    Attributes:
        ids: integer tensor with one id per row, possibly with extra dims of size 1.
        spread: the op that broadcasts the ids to the shape of the comparison.
        along: the one-hot dim of the comparison.
        shape: of the matrix, which may be a reshape of the comparison.
        dim: the one-hot dim of the matrix.
    """

    ids: ir.Value
    spread: ir.Operation
    along: int
    shape: tuple[int, ...]
    dim: int

    @property
    def rows(self) -> int:
        """Number of distinct ids: rows of the table."""
        return self.shape[self.dim]

    @property
    def key(self) -> tuple[ir.Value, int]:
        """Equal for one-hot matrices of the same ids and table size."""
        return self.ids, self.rows


@dataclass(frozen=True)
class Lookup:
    """A product that only gathers rows of a table, or sums rows by id.

    Attributes:
        op: the `stablehlo.dot_general`.
        one_hot: the matrix that is its operand `side`.
        contracted: contracting dims of the other operand; of a gradient, in the order of the ids'
            dims.
        is_gradient: whether it sums rows by id.
    """

    op: ir.Operation
    one_hot: OneHot
    side: int
    contracted: tuple[int, ...]
    is_gradient: bool

    @property
    def other(self) -> ir.Value:
        """The table, or the rows to sum."""
        return self.op.operands[1 - self.side]


def lookups(main: ir.Operation, rows: int) -> list[Lookup]:
    """The lookups among the products of a function, those in its regions included.

    A table is a state argument, possibly cast: products with activations, such as those that
    dispatch tokens to experts, are not lookups. A gradient counts only if a lookup uses the same
    ids.

    Args:
        rows: minimum number of rows of a table.
    """
    arguments = body(main).arguments
    state = {arguments[a] for a in state_arguments(main)}
    found = [each for op in walk(main) for each in _candidates(op) if each.one_hot.rows >= rows]
    forward = [each for each in found if not each.is_gradient and _is_parameter(each.other, state)]
    keys = {each.one_hot.key for each in forward}
    taken = {each.op for each in forward}
    gradients = [
        each
        for each in found
        if each.is_gradient and each.one_hot.key in keys and each.op not in taken
    ]
    return forward + list({each.op: each for each in gradients}.values())


def _is_parameter(value: ir.Value, state: set[ir.Value]) -> bool:
    op = defining_op(value)
    while op is not None and op.name in _CASTS:
        value = op.operands[ir.OpResult(value).result_number]
        op = defining_op(value)
    return value in state


def _candidates(op: ir.Operation) -> Iterator[Lookup]:
    """The lookups that a product may be, judged by one-hot operands and shapes."""
    if op.name != "stablehlo.dot_general" or "algorithm" in op.attributes:
        return
    if 0 in shape_of(op.operands[0]) or 0 in shape_of(op.operands[1]):
        return
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    if len(numbers.lhs_batching_dimensions):
        return
    contracted = (
        list(numbers.lhs_contracting_dimensions),
        list(numbers.rhs_contracting_dimensions),
    )
    result = _FLOATS.get(element_type(op.results[0]), 0)
    for side in (0, 1):
        other = _FLOATS.get(element_type(op.operands[1 - side]), 0)
        found = one_hot(op.operands[side]) if other and result else None
        if found is None:
            continue
        own, others = contracted[side], contracted[1 - side]
        pairs = sorted(zip(own, others, strict=True))
        ids = [d for d in range(len(found.shape)) if d != found.dim]
        if own == [found.dim] and other <= result:
            yield Lookup(op, found, side, tuple(others), False)
        elif ids and [d for d, _ in pairs] == ids:
            yield Lookup(op, found, side, tuple(d for _, d in pairs), True)


def one_hot(value: ir.Value) -> OneHot | None:
    """`value` as a one-hot matrix of any type, possibly reshaped; None if it is not one."""
    op = defining_op(value)
    if op is None:
        return None
    if op.name == "stablehlo.compare":
        left, right = op.operands
        return _compared(op, left, right) or _compared(op, right, left)
    if op.name not in ("stablehlo.convert", "stablehlo.reshape"):
        return None
    found = one_hot(op.operands[0])
    if found is None or op.name == "stablehlo.convert":
        return found
    shape = shape_of(value)
    before = math.prod(found.shape[: found.dim])
    for dim, size in enumerate(shape):
        if size == found.rows and math.prod(shape[:dim]) == before:
            return OneHot(found.ids, found.spread, found.along, shape, dim)
    return None


def _compared(op: ir.Operation, counting: ir.Value, ids: ir.Value) -> OneHot | None:
    """The comparison of ids, broadcast along a dim, with an iota along it."""
    dim, spread = counts_along(counting), defining_op(ids)
    if dim is None or spread is None or spread.name != "stablehlo.broadcast_in_dim":
        return None
    element = ir.RankedTensorType(ids.type).element_type
    if "EQ" not in str(op.attributes["comparison_direction"]):
        return None
    shape = shape_of(ids)
    if not isinstance(element, ir.IntegerType):
        return None
    kept = list(ir.DenseI64ArrayAttr(spread.attributes["broadcast_dimensions"]))
    varies = dim in kept and shape_of(spread.operands[0])[kept.index(dim)] != 1
    if varies or kept != sorted(kept):
        return None
    return OneHot(_without_ones(spread.operands[0]), spread, dim, shape, dim)


def _without_ones(value: ir.Value) -> ir.Value:
    """The value that `value` reshapes by adding or dropping dims of size 1 only."""
    op = defining_op(value)
    while op is not None and op.name in ("stablehlo.broadcast_in_dim", "stablehlo.reshape"):
        source = op.operands[0]
        if num_elements(source) != num_elements(value):
            break
        if op.name == "stablehlo.broadcast_in_dim":
            kept = list(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))
            if kept != sorted(kept):
                break
        value, op = source, defining_op(source)
    return value

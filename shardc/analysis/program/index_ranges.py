"""Which arguments are indices, with their limits, and which must not be negative."""

from collections.abc import Iterator

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.analysis.program.op_classes import ADDITIONS
from shardc.analysis.values.facts import counts_along
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import body

# The elements of the result are elements of the operand.
_KEEPS_NUMBERS = frozenset(
    "stablehlo." + name
    for name in (
        "reshape", "broadcast_in_dim", "transpose", "slice", "concatenate", "convert", "pad",
        "reverse", "select", "clamp", "maximum", "minimum", "optimization_barrier", "sort",
    )
)  # fmt: skip
_ROOTS = ("stablehlo.sqrt", "stablehlo.rsqrt", "stablehlo.log", "stablehlo.power")
# These keep a constant constant.
_SPREADS = ("stablehlo.broadcast_in_dim", "stablehlo.convert", "stablehlo.reshape")


def index_limits(main: ir.Operation) -> dict[int, int]:
    """Argument -> exclusive upper limit of its values, for integer arguments used as indices.

    Follows an argument through ops that keep its elements (and through additions of a constant,
    which wrap negative indices) to the gathers, scatters and dynamic slices that it indexes, and to
    comparisons with an iota (one-hot). The smallest limit of all uses counts. None of these uses
    allows negative indices.
    """
    found = {}
    for position, argument in enumerate(body(main).arguments):
        element = ir.RankedTensorType(argument.type).element_type
        if isinstance(element, ir.IntegerType) and element.width > 1:
            limits = _limits(argument)
            if limits:
                found[position] = max(1, min(limits))
    return found


def rooted_arguments(main: ir.Operation) -> set[int]:
    """Float arguments under a root or logarithm, such as a variance: must not be negative."""
    return {
        position
        for position, argument in enumerate(body(main).arguments)
        if any(op.name in _ROOTS and operand == 0 for op, operand in _last_uses(argument))
    }


def _limits(argument: ir.Value) -> list[int]:
    found = [_limit_of(op, position) for op, position in _last_uses(argument)]
    return [limit for limit in found if limit is not None]


def _last_uses(argument: ir.Value) -> Iterator[tuple[ir.Operation, int]]:
    """The ops, with operand positions, that use the elements of an argument and change them."""
    seen: set[ir.Value] = {argument}
    waiting = [argument]

    def follow(value: ir.Value) -> None:
        if value not in seen:
            seen.add(value)
            waiting.append(value)

    while waiting:
        value = waiting.pop()
        for use in value.uses:
            op, position = use.owner.operation, use.operand_number
            if op.name in _KEEPS_NUMBERS and not (op.name == "stablehlo.select" and position == 0):
                for result in op.results:
                    follow(result)
            elif op.name in ADDITIONS:
                if _is_constant(op.operands[1 - position]):
                    follow(op.results[0])
            elif op.name == "stablehlo.while":
                follow(op.results[position])
                for region in op.regions:
                    follow(region.blocks[0].arguments[position])
            else:
                yield op, position


def _limit_of(op: ir.Operation, position: int) -> int | None:
    """Exclusive limit of operand `position` of `op` as an index; None if it is not an index."""
    if op.name == "stablehlo.gather" and position == 1:
        numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
        sizes = [int(size) for size in ir.DenseI64ArrayAttr(op.attributes["slice_sizes"])]
        shape = shape_of(op.operands[0])
        return min((shape[d] - sizes[d] + 1 for d in numbers.start_index_map), default=None)
    if op.name == "stablehlo.scatter" and position == (len(op.operands) - 1) // 2:
        shape = shape_of(op.operands[0])
        numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
        return min((shape[d] for d in numbers.scattered_dims_to_operand_dims), default=None)
    if op.name == "stablehlo.dynamic_slice" and position > 0:
        sizes = [int(size) for size in ir.DenseI64ArrayAttr(op.attributes["slice_sizes"])]
        return shape_of(op.operands[0])[position - 1] - sizes[position - 1] + 1
    if op.name == "stablehlo.dynamic_update_slice" and position > 1:
        whole, part = shape_of(op.operands[0]), shape_of(op.operands[1])
        return whole[position - 2] - part[position - 2] + 1
    if op.name == "stablehlo.compare":
        other = op.operands[1 - position]
        dim = counts_along(other)
        return None if dim is None else shape_of(other)[dim]
    return None


def _producer(value: ir.Value) -> ir.Operation | None:
    return value.owner.operation if isinstance(value.owner, ir.OpView | ir.Operation) else None


def _is_constant(value: ir.Value) -> bool:
    op = _producer(value)
    while op is not None and op.name in _SPREADS:
        op = _producer(op.operands[0])
    return op is not None and op.name == "stablehlo.constant"

"""Which ops may run on a part of their operands.

An axis of devices (or of microbatches: an axis in time) may split a factor of an op only where
`ALLOWED` says so. Each entry is proved by a test that runs the op in parts; whatever has no entry
gets whole operands, which is always right.
"""

import math
from collections.abc import Callable, Sequence

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.ir.calls import CALL
from shardc.ir.constants import is_zero
from shardc.ir.user_shardings import CONSTRAINT
from shardc.rules import convolutions, libraries
from shardc.rules.op_rule import OpRule
from shardc.rules.reducers import splits_into_partial_results, start_may_repeat, sums_numbers

BARRIER = "stablehlo.optimization_barrier"  # forwards each operand

# Partial sums may be added to whole values: one device has the whole value, the others zeros.
COUNTED_ONCE = ("stablehlo.add", "stablehlo.subtract")

Guard = Callable[[ir.Operation, OpRule, int], bool]

ELEMENTWISE = """
    abs add and atan2 cbrt ceil clamp compare complex convert cosine count_leading_zeros divide
    exponential exponential_minus_one floor imag is_finite log log_plus_one logistic maximum
    minimum multiply negate not optimization_barrier or popcnt power real reduce_precision
    remainder round_nearest_afz round_nearest_even rsqrt select shift_left
    shift_right_arithmetic shift_right_logical sign sine sqrt subtract tan tanh xor
""".split()


def _always(op: ir.Operation, rule: OpRule, factor: int) -> bool:
    return True


def _positions(mapping: Sequence[Sequence[int]], factor: int) -> list[int]:
    return [dim for dim, factors in enumerate(mapping) if factor in factors]


def _same_block(op: ir.Operation, rule: OpRule, factor: int) -> bool:
    """The factor is the major one of a dim in operand and result, with equal sizes before it.

    Then part i of one dim holds the same elements as part i of the other.
    """
    before = []
    for value, mapping in ((op.operands[0], rule.operands[0]), (op.results[0], rule.results[0])):
        outermost = [dim for dim, factors in enumerate(mapping) if factors[:1] == (factor,)]
        if not outermost or outermost != _positions(mapping, factor):
            return False
        before.append(math.prod(_shape(value)[: outermost[0]]))
    return before[0] == before[1]


def _trivial(name: str, neutral: int) -> Guard:
    """The integer attribute `name` is `neutral` for every dim of the factor."""

    def holds(op: ir.Operation, rule: OpRule, factor: int) -> bool:
        if name not in op.attributes:
            return True
        attribute = op.attributes[name]
        if isinstance(attribute, ir.DenseElementsAttr):  # tensor<rank x 2>: low and high
            numbers = ir.DenseIntElementsAttr(attribute)
            pairs = [int(numbers[i]) for i in range(len(numbers))]
            return all(pairs[2 * d : 2 * d + 2] == [neutral, neutral] for d in dims(rule, factor))
        values = list(ir.DenseI64ArrayAttr(attribute))
        return all(values[d] == neutral for d in dims(rule, factor))

    def dims(rule: OpRule, factor: int) -> list[int]:
        return _positions(rule.operands[0], factor) + _positions(rule.results[0], factor)

    return holds


def _all_of(*guards: Guard) -> Guard:
    return lambda op, rule, factor: all(guard(op, rule, factor) for guard in guards)


def _whole_window(op: ir.Operation, rule: OpRule, factor: int) -> bool:
    """All dims of the factor, in operand and result (or update), have the same size."""
    sizes = {
        ir.RankedTensorType(value.type).shape[dim]
        for value, mapping in [
            *zip(op.operands, rule.operands, strict=True),
            *zip(op.results, rule.results, strict=True),
        ]
        for dim in _positions(mapping, factor)
    }
    return sizes == {rule.sizes[factor]}


def _gathered(op: ir.Operation, rule: OpRule, factor: int) -> bool:
    """Indexed dims stay whole; index dims, full slices and batch dims may be split."""
    in_result = bool(_positions(rule.results[0], factor))
    return in_result and _whole_window(op, rule, factor)


def _scattered(op: ir.Operation, rule: OpRule, factor: int) -> bool:
    """Indexed dims stay whole, even if a window fills them."""
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    chosen = set(numbers.scattered_dims_to_operand_dims)
    if chosen.intersection(_positions(rule.results[0], factor)):
        return False
    return bool(_positions(rule.operands[-1], factor)) and _whole_window(op, rule, factor)


def _rows_looked_up(op: ir.Operation, rule: OpRule, factor: int) -> bool:
    """An indexed dim of the operand, of which a gather takes one entry per index.

    A device with one part of it gathers its own entries, and zeros for the others: the result is a
    partial sum.
    """
    dims = _positions(rule.operands[0], factor)
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    sizes = list(ir.DenseI64ArrayAttr(op.attributes["slice_sizes"]))
    return (
        len(dims) == 1
        and dims[0] in list(numbers.start_index_map)
        and sizes[dims[0]] == 1
        and not _positions(rule.operands[1], factor)
        and not _positions(rule.results[0], factor)
        and str(op.results[0].type.element_type) != "i1"
    )


def _rows_scattered_to(op: ir.Operation, rule: OpRule, factor: int) -> bool:
    """An indexed dim of the operand, in which a scatter writes one entry per index.

    A device with one part of it ignores the entries of other parts.
    """
    dims = _positions(rule.results[0], factor)
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    others = rule.operands[len(op.results) :]  # the indices, and the updates of each operand
    return (
        len(dims) == 1
        and dims[0] in list(numbers.scattered_dims_to_operand_dims)
        and dims[0] in list(numbers.inserted_window_dims)
        and not any(_positions(mapping, factor) for mapping in others)
    )


def _scattered_sum(op: ir.Operation, rule: OpRule, factor: int) -> bool:
    """The parts sum to the whole only if every device starts from zero."""
    return len(op.results) == 1 and sums_numbers(op) and is_zero(op.operands[0])


def _one_operand(op: ir.Operation, rule: OpRule, factor: int) -> bool:
    return splits_into_partial_results(op)


_reduce_window_guard = _all_of(
    _whole_window,
    _trivial("window_dimensions", 1),
    _trivial("window_strides", 1),
    _trivial("base_dilations", 1),
    _trivial("padding", 0),
)

# (op, kind of the factor) -> whether axes may split a factor of this kind.
ALLOWED: dict[tuple[str, str], Guard] = {
    (CALL, "pass_through"): _always,  # its rule has only the factors that its function allows
    (CONSTRAINT, "pass_through"): _always,
    **{(f"stablehlo.{name}", "pass_through"): _always for name in ELEMENTWISE},
    ("stablehlo.bitcast_convert", "pass_through"): _always,
    ("stablehlo.broadcast_in_dim", "pass_through"): _always,
    ("stablehlo.cholesky", "pass_through"): _always,
    ("stablehlo.concatenate", "pass_through"): _always,
    ("stablehlo.convolution", "pass_through"): convolutions.is_divisible,
    ("stablehlo.convolution", "reduction"): convolutions.is_divisible,
    ("stablehlo.custom_call", "pass_through"): libraries.is_divisible,
    ("stablehlo.dot_general", "pass_through"): _always,
    ("stablehlo.dot_general", "reduction"): _always,
    ("stablehlo.dynamic_slice", "pass_through"): _whole_window,
    ("stablehlo.dynamic_update_slice", "pass_through"): _whole_window,
    (
        "stablehlo.fft",
        "pass_through",
    ): _always,  # in Shardy's rule the transformed dims need replication
    ("stablehlo.gather", "pass_through"): _gathered,
    ("stablehlo.pad", "pass_through"): _all_of(
        _trivial("edge_padding_low", 0),
        _trivial("edge_padding_high", 0),
        _trivial("interior_padding", 0),
    ),
    ("stablehlo.reduce", "pass_through"): _always,
    ("stablehlo.reduce", "reduction"): _one_operand,
    ("stablehlo.reduce_window", "pass_through"): _reduce_window_guard,
    ("stablehlo.reshape", "pass_through"): _same_block,
    ("stablehlo.reverse", "pass_through"): _always,
    ("stablehlo.scatter", "pass_through"): _scattered,
    ("stablehlo.scatter", "reduction"): _scattered_sum,
    ("stablehlo.select_and_scatter", "pass_through"): _reduce_window_guard,
    ("stablehlo.slice", "pass_through"): _all_of(_whole_window, _trivial("strides", 1)),
    ("stablehlo.sort", "pass_through"): _always,
    ("stablehlo.transpose", "pass_through"): _always,
    ("stablehlo.triangular_solve", "pass_through"): _always,
}

# The same for device axes only: each device compares all indices with the bounds of its own part
# (`shardc.rewrite.local.indexing`).
ALLOWED_BY_INDEX: dict[tuple[str, str], Guard] = {
    ("stablehlo.gather", "reduction"): _rows_looked_up,
    ("stablehlo.scatter", "pass_through"): _rows_scattered_to,
}


INDEXED = frozenset(name for name, _ in ALLOWED_BY_INDEX)


def indexed_factors(op: ir.Operation, rule: OpRule) -> tuple[bool, ...]:
    """For each factor of `op`: is it an indexed dim that device axes may split?"""
    if op.name not in INDEXED:
        return (False,) * len(rule.sizes)
    return _holding(ALLOWED_BY_INDEX, op, rule)


def unshared_factors(op: ir.Operation, rule: OpRule) -> tuple[bool, ...]:
    """For each factor of `op`: does a split leave each device with all of the work?

    Where rows are looked up, each device gathers one row per index, its own or zeros. A scatter
    skips the updates of other devices: on average each has its share.
    """
    if op.name != "stablehlo.gather":
        return (False,) * len(rule.sizes)
    return indexed_factors(op, rule)


def splittable_factors(op: ir.Operation, rule: OpRule) -> tuple[bool, ...]:
    """`allowed_factors` or `indexed_factors`: what device axes may split.

    Nothing of a reduction that must count its initial value once: no all-to-all precedes it then.
    """
    if op.name == "stablehlo.reduce" and not start_may_repeat(op):
        return (False,) * len(rule.sizes)
    allowed, indexed = allowed_factors(op, rule), indexed_factors(op, rule)
    if True not in indexed:
        return allowed
    return tuple(one or other for one, other in zip(allowed, indexed, strict=True))


def allowed_factors(op: ir.Operation, rule: OpRule) -> tuple[bool, ...]:
    """For each factor of `op`: may axes split it (if their size divides the factor's)?

    A split reduction factor makes the result a partial sum, or, for the other reducers of
    `stablehlo.reduce`, requires `shardc.reduce_axes` on the op. Splitting into as many parts as
    the axes have must still divide the factor evenly; that is the caller's to check.
    """
    return _holding(ALLOWED, op, rule)


def _holding(
    table: dict[tuple[str, str], Guard], op: ir.Operation, rule: OpRule
) -> tuple[bool, ...]:
    name = op.name
    found = []
    for factor, (kind, size) in enumerate(zip(rule.kinds, rule.sizes, strict=True)):
        guard = table.get((name, kind.value)) if size > 1 else None
        found.append(guard is not None and guard(op, rule, factor))
    return tuple(found)


def _shape(value: ir.Value) -> list[int]:
    return list(ir.RankedTensorType(value.type).shape)

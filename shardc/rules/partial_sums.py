"""Which ops are linear, so that a partial sum stays partial: f(a) + f(b) = f(a + b).

This must also hold for infinities and nan, where 0 * inf, 0 / 0 and inf - inf are nan: see
docs/proofs.md, "Partial sums".
"""

from jax.extend.mlir import ir

from shardc.ir.constants import is_complex
from shardc.rules.bounds import bounds, is_integer
from shardc.rules.reducers import reducer

# Ops that move or negate elements of their first operand; the others (invariant) say where.
_MOVING = {
    "stablehlo.negate",
    "stablehlo.reshape",
    "stablehlo.transpose",
    "stablehlo.broadcast_in_dim",
    "stablehlo.slice",
    "stablehlo.dynamic_slice",
    "stablehlo.reverse",
    "stablehlo.real",
    "stablehlo.imag",
    "stablehlo.gather",
    "sdy.sharding_constraint",
}
# Ops that are linear in all their operands together.
_LINEAR_IN_ALL = {
    "stablehlo.add",
    "stablehlo.subtract",
    "stablehlo.concatenate",
    "stablehlo.complex",
    "stablehlo.pad",
    "stablehlo.optimization_barrier",
}
# Ops that are linear in each of their two operands separately.
_BILINEAR = {"stablehlo.multiply", "stablehlo.dot_general", "stablehlo.convolution"}
# (narrow, wide) element types with the same range: both overflow at the same magnitudes.
_SAME_RANGE = {("bf16", "f32")}


def element_type(value: ir.Value) -> str:
    """Element type of a tensor, as MLIR prints it: `f32`, `i1`."""
    return str(ir.ShapedType(value.type).element_type)


def keeps_partial(op: ir.Operation, partial: set[int], zero: set[int]) -> bool:
    """Whether `op` on partial sums computes partial sums of `op` on the complete sums.

    Args:
        partial: positions of the operands that are partial sums (at least one).
        zero: positions of the operands that are known to be all zeros.
    All other operands must be whole, and the same in every microbatch.

    Decides for sums over microbatches (`analysis.batch`: `BatchFlow`, `control_flow.transfer`) and,
    beside `LINEAR`, for sums over devices (`analysis.shardings.strategies`).
    """
    name = op.name
    every = set(range(len(op.operands)))
    if any(element_type(op.operands[p]) == "i1" for p in partial):
        return False  # a sum of booleans is a disjunction
    if name in _MOVING:
        return partial == {0}
    if name == "stablehlo.divide":
        return partial == {0} and is_safe_divisor(op.operands[1])
    if name in _LINEAR_IN_ALL:
        return name == "stablehlo.optimization_barrier" or every <= partial | zero
    if name in _BILINEAR and "algorithm" not in op.attributes:  # which rounds the operands
        factors = len(partial) == 1 and is_safe_factor(op.operands[1 - min(partial)])
        return factors and _has_range(op, min(partial))
    if name == "stablehlo.convert":
        return _has_range(op, 0)
    if name == "stablehlo.select":
        return 0 not in partial and {1, 2} <= partial | zero
    if name == "stablehlo.dynamic_update_slice":
        return partial <= {0, 1} and {0, 1} <= partial | zero
    if name == "stablehlo.scatter":
        return partial <= {0, 2} <= partial | zero and len(op.operands) == 3 and sums(op)
    if name in ("stablehlo.reduce", "stablehlo.reduce_window"):
        alone = len(op.operands) == 2 and partial == {0} and 1 in zero
        return alone and sums(op) and _has_range(op, 0)
    return False


def _has_range(op: ir.Operation, position: int) -> bool:
    """Whether the result wraps around or overflows exactly where the operand at `position` does:
    products, like converts, may have a wider type than their operands."""
    source, target = element_type(op.operands[position]), element_type(op.results[0])
    return source == target or (source, target) in _SAME_RANGE


def is_safe_factor(value: ir.Value) -> bool:
    """Whether x * value is infinite only where x is: every |value| <= 1, or nan.

    An infinite factor makes nan of a zero part, and a factor above 1 may overflow parts that nearly
    cancel. Integer sums wrap around in any order of additions.
    """
    if is_integer(value):
        return True
    low, high = bounds(value)
    return low >= -1 and high <= 1


def is_safe_divisor(value: ir.Value) -> bool:
    """`is_safe_factor` for x / value: |value| >= 1, infinite or nan.

    Never for integers, whose quotients are rounded, or for complex numbers, whose quotients have
    special rules for infinities.
    """
    if is_integer(value) or is_complex(value):
        return False
    low, high = bounds(value)
    return low >= 1 or high <= -1


def sums(op: ir.Operation) -> bool:
    """Whether the region of a reduce, reduce_window or scatter is one plain addition of numbers."""
    return reducer(op) == "add" and element_type(op.results[0]) != "i1"

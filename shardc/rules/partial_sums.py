"""Which ops keep a partial sum a partial sum: f(a) + f(b) = f(a + b)."""

from jax.extend.mlir import ir

from shardc.rules.reducers import reducer

# Ops that are linear in their first operand, whatever the (invariant) others say.
_LINEAR_IN_FIRST = {
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
    "stablehlo.divide",
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
# Ops that are linear in each of their two operands while the other stays as it is.
_BILINEAR = {"stablehlo.multiply", "stablehlo.dot_general", "stablehlo.convolution"}
_FLOATS = {"f8E4M3FN": 8, "f8E5M2": 8, "f16": 16, "bf16": 16, "f32": 32, "f64": 64}


def element_type(value: ir.Value) -> str:
    """Element type of a tensor, as MLIR prints it: `f32`, `i1`."""
    return str(ir.ShapedType(value.type).element_type)


def keeps_partial(op: ir.Operation, partial: set[int], zero: set[int]) -> bool:
    """Whether `op` of partial sums is the partial sum of what `op` of the whole sums would be.

    Args:
        partial: positions of the operands that are partial sums (at least one).
        zero: positions of the operands that are known to be all zeros.
    All other operands must be the same in every microbatch.
    """
    name = op.name
    every = set(range(len(op.operands)))
    if any(element_type(op.operands[p]) == "i1" for p in partial):
        return False  # a sum of booleans is a disjunction
    if name == "stablehlo.divide" and "i" in element_type(op.operands[0])[:2]:
        return False  # integers are rounded
    if name in _LINEAR_IN_FIRST:
        return partial == {0}
    if name in _LINEAR_IN_ALL:
        return name == "stablehlo.optimization_barrier" or every <= partial | zero
    if name in _BILINEAR:
        return len(partial) == 1
    if name == "stablehlo.convert":
        return is_upcast(op)
    if name == "stablehlo.select":
        return 0 not in partial and {1, 2} <= partial | zero
    if name == "stablehlo.dynamic_update_slice":
        return partial <= {0, 1} and {0, 1} <= partial | zero
    if name == "stablehlo.scatter":
        return partial <= {0, 2} <= partial | zero and len(op.operands) == 3 and sums(op)
    if name in ("stablehlo.reduce", "stablehlo.reduce_window"):
        return len(op.operands) == 2 and partial == {0} and 1 in zero and sums(op)
    return False


def is_upcast(op: ir.Operation) -> bool:
    """Whether a convert goes from one float type to another that holds every value of it."""
    source, target = element_type(op.operands[0]), element_type(op.results[0])
    if source == target:
        return True
    if {source, target} == {"f16", "bf16"} or {source, target} == {"f8E4M3FN", "f8E5M2"}:
        return False
    return source in _FLOATS and target in _FLOATS and _FLOATS[source] <= _FLOATS[target]


def sums(op: ir.Operation) -> bool:
    """Whether the region of a reduce, reduce_window or scatter is one plain addition of numbers."""
    return reducer(op) == "add" and element_type(op.results[0]) != "i1"

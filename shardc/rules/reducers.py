"""The reducers of reducing ops."""

from jax.extend.mlir import ir

from shardc.ir.constants import is_zero, splat

# Reducers for which every device may start from the initial value.
IDEMPOTENT = {"maximum", "minimum", "and", "or"}

# A reducer made only of these returns one of its inputs, whatever it compares.
_CHOOSING = {
    f"stablehlo.{name}"
    for name in "and compare constant maximum minimum not or return select".split()
}


def reducer(op: ir.Operation) -> str | None:
    """`add` if the op's last region is just `return add(%lhs, %rhs)`; None for any other region."""
    regions = list(op.regions)
    block = regions[-1].blocks[0]
    inner = [each.operation for each in block.operations]
    if len(inner) != 2 or len(block.arguments) != 2 or not inner[0].name.startswith("stablehlo."):
        return None
    if set(inner[0].operands) != set(block.arguments) or len(inner[0].operands) != 2:
        return None
    if list(inner[1].operands) != list(inner[0].results):
        return None
    return inner[0].name.removeprefix("stablehlo.")


def sums_numbers(op: ir.Operation) -> bool:
    """Whether the reducer is a plain addition of numbers; of booleans it is a disjunction."""
    return reducer(op) == "add" and str(op.results[0].type.element_type) != "i1"


def is_bitwise(op: ir.Operation) -> bool:
    """Whether the reducer is `and` or `or` of integers, bit by bit, not of booleans."""
    return reducer(op) in ("and", "or") and str(op.results[0].type.element_type) != "i1"


def splits_into_partial_results(op: ir.Operation) -> bool:
    """Whether devices may reduce parts: a simple reducer with a neutral initial value.

    XLA has no bitwise all-reduce, so `and` and `or` count for booleans only.
    """
    if len(op.results) != 1:
        return False
    name = reducer(op)
    if name in IDEMPOTENT:
        return not is_bitwise(op)
    return (sums_numbers(op) and is_zero(op.operands[1])) or (
        name == "multiply" and splat(op.operands[1]) == 1
    )


def start_may_repeat(op: ir.Operation) -> bool:
    """Whether the initial value may count more than once: it is neutral, or the reducer chooses.

    XLA reduces a concatenation piece by piece, each from the initial value. A program that
    concatenates gets that from `jax.jit`, too; a plan must not add concatenations, such as an
    all-to-all on CPUs.
    """
    name, start = reducer(op), op.operands[len(op.operands) // 2]
    if name in ("add", "xor"):
        return is_zero(start)
    if name == "multiply":
        return splat(start) == 1
    return picks(op)


def picks(op: ir.Operation) -> bool:
    """Whether the reducer returns inputs of its own, whatever it compares: argmax, for one."""
    return all(each.name in _CHOOSING for each in op.regions[-1].blocks[0].operations)

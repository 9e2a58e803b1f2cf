"""What the region of a reducing op computes."""

from jax.extend.mlir import ir

# Reducers for which an initial value may be counted once per device.
IDEMPOTENT = {"maximum", "minimum", "and", "or"}


def reducer(op: ir.Operation) -> str | None:
    """`add` where the op's last region is just `return add(%lhs, %rhs)`, None if it is more."""
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
    """Whether the reducer is a plain addition, and not one of booleans, which is a disjunction."""
    return reducer(op) == "add" and str(op.results[0].type.element_type) != "i1"


def splits_into_partial_results(op: ir.Operation) -> bool:
    """Whether devices may reduce parts: a simple reducer, and an initial value that is neutral."""
    if len(op.results) != 1:
        return False
    name = reducer(op)
    if name in IDEMPOTENT:
        return True
    return (sums_numbers(op) and is_zero(op.operands[1])) or (
        name == "multiply" and splat(op.operands[1]) == 1
    )


def is_zero(value: ir.Value) -> bool:
    """Whether `value` is known to be all zeros: a constant, or one that was only reshaped."""
    return splat(value) == 0


def splat(value: ir.Value) -> complex | None:
    """The number that fills a constant tensor, seen through broadcasts, converts and reshapes."""
    op = value.owner
    while isinstance(op, ir.Operation | ir.OpView) and op.operation.name in (
        "stablehlo.broadcast_in_dim",
        "stablehlo.convert",
        "stablehlo.reshape",
        "stablehlo.transpose",
        "sdy.all_gather",
        "sdy.all_slice",
        "sdy.all_to_all",
        "sdy.reshard",
    ):
        op = op.operation.operands[0].owner
    if isinstance(op, ir.Block) or op.operation.name != "stablehlo.constant":
        return None
    attribute = ir.DenseElementsAttr(op.operation.attributes["value"])
    if not attribute.is_splat:
        return None
    return _number(str(attribute.get_splat_value()))


def _number(text: str) -> complex | None:
    """The number in `0.000000e+00 : f32`, `1 : i32` or `true`."""
    word = text.split(":")[0].strip()
    if word in ("true", "false"):
        return float(word == "true")
    try:
        return float(int(word, 16)) if word.startswith("0x") and int(word, 16) == 0 else float(word)
    except ValueError:
        return None

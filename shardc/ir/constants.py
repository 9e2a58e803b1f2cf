"""Reading and creating constants."""

import re

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

# Ops whose result is a splat of the same element if their operand is a splat.
# Ops without operands: every device, and every reader, can make any part of their results.
MADE_OF_NOTHING = frozenset(("stablehlo.constant", "stablehlo.iota"))
_KEEP = """stablehlo.broadcast_in_dim stablehlo.convert stablehlo.reshape stablehlo.transpose
    sdy.all_gather sdy.all_slice sdy.all_to_all sdy.reshard""".split()
_SUM = ("sdy.all_reduce", "sdy.reduce_scatter")  # these preserve only splats of zero


def is_zero(value: ir.Value) -> bool:
    """Whether `value` is known to be all zeros: a constant zero, possibly reshaped or cast."""
    return splat(value) == 0


def splat(value: ir.Value) -> complex | None:
    """The element of a splat constant, looking through broadcasts and reshapes; through converts
    only for 0 and 1, which every type holds."""
    op, summed, converted = value.owner, False, False
    while isinstance(op, ir.Operation | ir.OpView) and op.operation.name in (*_KEEP, *_SUM):
        summed = summed or op.operation.name in _SUM
        converted = converted or op.operation.name == "stablehlo.convert"
        op = op.operation.operands[0].owner
    if isinstance(op, ir.Block) or op.operation.name != "stablehlo.constant":
        return None
    text = splat_text(op.operation)
    number = None if text is None else _number(text)
    if converted and number not in (0, 1):
        return None
    return None if summed and number != 0 else number


def splat_text(op: ir.Operation) -> str | None:
    """The element of a splat `stablehlo.constant`, as MLIR prints it: `1.0 : f32`; else None.

    The bindings cannot read complex elements; these are parsed from the printed op: `(1.0,0.0)`.
    """
    if is_complex(op.results[0]):
        # Alone: inside its module, the values of all ops would be numbered first. Bare: a sharding
        # is printed with the help of the module's meshes.
        alone = op.clone(ip=False)
        for name in set(alone.attributes) - {"value"}:
            del alone.attributes[name]
        text = str(alone.get_asm(large_elements_limit=1))
        found = re.search(r"dense<(\([^()]*\))>", text)
        return found.group(1) if found else None
    attribute = op.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat:
        return str(attribute.get_splat_value())
    return None  # many elements, or a resource


def integer(type_: ir.Type, value: int) -> ir.Value:
    """A splat of an integer tensor type. `value` wraps around as the type's arithmetic does, since
    differences and products may be out of range."""
    element = ir.IntegerType(ir.RankedTensorType(type_).element_type)
    value %= 1 << element.width
    if not element.is_unsigned and value >> (element.width - 1):
        value -= 1 << element.width
    return stablehlo.constant(
        ir.DenseElementsAttr.get_splat(type_, ir.IntegerAttr.get(element, value))
    )


def zeros(type_: ir.Type) -> ir.Value:
    """A zero constant of a tensor type: floats, integers, booleans or complex numbers."""
    return filled(type_, 0)


def filled(type_: ir.Type, value: int) -> ir.Value:
    """A splat of a small integer in any tensor type."""
    element = ir.RankedTensorType(type_).element_type
    if isinstance(element, ir.ComplexType):
        return _complex_splat(type_, value)
    text = f"{value}.0"
    if isinstance(element, ir.IntegerType):
        text = str(bool(value)).lower() if element.width == 1 else str(value)
    return stablehlo.ConstantOp(ir.Attribute.parse(f"dense<{text}> : {type_}")).result


def _complex_splat(type_: ir.Type, value: int) -> ir.Value:
    """The bindings cannot hold an attribute of complex elements, but an op that has one."""
    attribute = f"dense<({value}.0, 0.0)> : {type_}"
    op = ir.Operation.parse(
        f'"stablehlo.constant"() {{value = {attribute}}} : () -> {type_} {ir.Location.current}'
    )
    ir.InsertionPoint.current.insert(op)
    return op.results[0]


def is_complex(value: ir.Value) -> bool:
    """Whether the elements of a tensor are complex numbers."""
    return isinstance(ir.RankedTensorType(value.type).element_type, ir.ComplexType)


def _number(text: str) -> complex | None:
    """The number in `0.000000e+00 : f32`, `1 : i32`, `true` or `(1.0,0.0)`."""
    if text.startswith("("):
        real, imaginary = map(_number, text.strip("()").split(","))
        return None if real is None or imaginary is None else real + 1j * imaginary
    word = text.split(":")[0].strip()
    if word in ("true", "false"):
        return float(word == "true")
    if word.startswith("0x"):  # the bits of a NaN, or of zero
        return 0.0 if int(word, 16) == 0 else None
    try:
        return float(word) if set(word) & set(".en") else int(word)
    except ValueError:
        return None

"""Maxima and minima over devices that propagate nan, as on one device.

Collectives on floats drop nan: XLA's on CPU return the larger number that is not nan, or the first
operand. So we reduce integers of the same width that have the order of the floats, with nan as the
greatest or the least.
"""

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.ir.constants import integer, is_complex
from shardc.ir.tensor_types import shape_of
from shardc.rewrite.local.collectives import DeviceProgram

EXTREMES = ("maximum", "minimum")
_WIDTHS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}


def all_reduce_by(
    reducer: str, device: DeviceProgram, value: ir.Value, axes: tuple[str, ...]
) -> ir.Value:
    """The values of the devices along `axes`, combined by the StableHLO op `reducer`."""
    if reducer not in EXTREMES or not is_ordered(value):
        return device.all_reduce(value, axes, reducer)
    keys = as_integers(value, reducer)
    return as_floats(device.all_reduce(keys, axes, reducer), value.type)


def is_ordered(value: ir.Value) -> bool:
    """Whether the elements are floats, ordered except for nan."""
    element = ir.RankedTensorType(value.type).element_type
    return not isinstance(element, ir.IntegerType) and not is_complex(value)


def as_integers(value: ir.Value, reducer: str) -> ir.Value:
    """Integers in the order of the floats, with nan as the winner; floats of 8 bits or fewer are
    first converted to bfloat16, which holds all of them."""
    if _element(value.type) not in _WIDTHS:
        wide = ir.RankedTensorType.get(shape_of(value), ir.BF16Type.get())
        value = stablehlo.ConvertOp(wide, value).result
    width = _WIDTHS[_element(value.type)]
    keys = ir.RankedTensorType.get(shape_of(value), ir.IntegerType.get_signless(width))
    greatest = (1 << (width - 1)) - 1
    wins = greatest if reducer == "maximum" else -greatest - 1
    is_nan = _compare(value, value, "NE")
    key = _fold(stablehlo.BitcastConvertOp(keys, value).result)
    return stablehlo.SelectOp(is_nan, integer(keys, wins), key).result


def as_floats(keys: ir.Value, type_: ir.Type) -> ir.Value:
    """The floats, of type `type_`, of the keys that `as_integers` computes."""
    element = ir.RankedTensorType(type_).element_type
    held = element if _element(type_) in _WIDTHS else ir.BF16Type.get()
    found = stablehlo.BitcastConvertOp(
        ir.RankedTensorType.get(shape_of(keys), held), _fold(keys)
    ).result
    return found if held == element else stablehlo.ConvertOp(type_, found).result


def _fold(bits: ir.Value) -> ir.Value:
    """Reverses the order of negative numbers: maps the bits of floats to integers in their order,
    and back. The greatest and the least integer are bits of nan."""
    width = ir.IntegerType(ir.RankedTensorType(bits.type).element_type).width
    turned = stablehlo.XorOp(bits, integer(bits.type, (1 << (width - 1)) - 1)).result
    negative = _compare(bits, integer(bits.type, 0), "LT")
    return stablehlo.SelectOp(negative, turned, bits).result


def _element(type_: ir.Type) -> str:
    return str(ir.RankedTensorType(type_).element_type)


def _compare(left: ir.Value, right: ir.Value, direction: str) -> ir.Value:
    return stablehlo.CompareOp(left, right, stablehlo.ComparisonDirectionAttr.get(direction)).result

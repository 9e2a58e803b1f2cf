"""Maxima and minima over devices, in which nan wins as it does on one device.

Collectives of floats drop it: XLA's on CPU give the larger of the numbers that are not nan, or
what comes first.
"""

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.ir.constants import integer
from shardc.ir.tensor_types import shape_of
from shardc.rewrite.local.collectives import DeviceProgram

_WIDTHS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}


def all_reduce_by(
    reducer: str, device: DeviceProgram, value: ir.Value, axes: tuple[str, ...]
) -> ir.Value:
    """What the StableHLO op `reducer` makes of what the devices along `axes` have.

    Of floats, maxima and minima are found among integers of as many bits that have their order,
    with nan as the greatest or the least: one collective of as many bytes.
    """
    width = _WIDTHS.get(str(ir.RankedTensorType(value.type).element_type))
    if width is None or reducer not in ("maximum", "minimum"):
        return device.all_reduce(value, axes, reducer)
    keys = ir.RankedTensorType.get(shape_of(value), ir.IntegerType.get_signless(width))
    greatest = (1 << (width - 1)) - 1
    wins = greatest if reducer == "maximum" else -greatest - 1
    is_nan = _compare(value, value, "NE")
    key = _fold(stablehlo.BitcastConvertOp(keys, value).result, greatest)
    key = stablehlo.SelectOp(is_nan, integer(keys, wins), key).result
    found = _fold(device.all_reduce(key, axes, reducer), greatest)
    return stablehlo.BitcastConvertOp(value.type, found).result


def _fold(bits: ir.Value, greatest: int) -> ir.Value:
    """Turns the order of negative numbers round: bits of floats to integers that have their order,
    and these to bits again. The greatest and the least integer are bits of nan."""
    turned = stablehlo.XorOp(bits, integer(bits.type, greatest)).result
    negative = _compare(bits, integer(bits.type, 0), "LT")
    return stablehlo.SelectOp(negative, turned, bits).result


def _compare(left: ir.Value, right: ir.Value, direction: str) -> ir.Value:
    return stablehlo.CompareOp(left, right, stablehlo.ComparisonDirectionAttr.get(direction)).result

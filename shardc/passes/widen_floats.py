"""Compute everything in float64, for a reference that rounding does not blur."""

from collections.abc import Iterable
from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.errors import InputError
from shardc.ir.pass_manager import Pass
from shardc.ir.walk import functions, walk

_NARROW = ("f16", "bf16", "f32")

# The types of these mean something: written digits, bits, a library routine, a random stream.
_KEEPS_TYPES = frozenset(
    {
        "stablehlo.bitcast_convert",
        "stablehlo.constant",
        "stablehlo.custom_call",
        "stablehlo.rng",
    }
)


class _Widening:
    def __init__(self, types: tuple[str, ...]) -> None:
        wide = ir.F64Type.get()
        self.element_types: dict[str, ir.Type] = dict.fromkeys(types, wide)
        if "f32" in types:
            self.element_types["complex<f32>"] = ir.ComplexType.get(wide)

    def type(self, type_: ir.Type) -> ir.Type:
        """What becomes of a type."""
        if not isinstance(type_, ir.RankedTensorType):
            return type_
        element_type = self.element_types.get(str(type_.element_type), type_.element_type)
        return ir.RankedTensorType.get(type_.shape, element_type, type_.encoding)

    def values(self, values: Iterable[ir.Value]) -> None:
        for value in values:
            value.set_type(self.type(value.type))

    def signature(self, function: ir.Operation) -> None:
        old = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
        new = ir.FunctionType.get(
            [self.type(t) for t in old.inputs], [self.type(t) for t in old.results]
        )
        function.attributes["function_type"] = ir.TypeAttr.get(new)

    def surround(self, op: ir.Operation, operand_types: list[ir.Type]) -> None:
        """Narrows the operands of an op that keeps its types, and widens its results."""
        with op.location:
            for i, narrow in enumerate(operand_types):
                if op.operands[i].type != narrow:
                    with ir.InsertionPoint(op):
                        op.operands[i] = stablehlo.ConvertOp(narrow, op.operands[i]).result
            for result in op.results:
                wide = self.type(result.type)
                if wide != result.type:
                    with ir.InsertionPoint.after(op):
                        widened = stablehlo.ConvertOp(wide, result)
                    result.replace_all_uses_except(widened.result, widened.operation)


def _forget_precision(op: ir.Operation) -> None:
    """Removes what asks for fewer digits."""
    if op.name == "stablehlo.dot_general" and "algorithm" in op.attributes:
        del op.attributes["algorithm"]
    identity = op.name == "stablehlo.convert" and op.operands[0].type == op.results[0].type
    if identity or op.name == "stablehlo.reduce_precision":
        op.results[0].replace_all_uses_with(op.operands[0])
        op.erase()


@dataclass(frozen=True)
class WidenFloats(Pass):
    """Makes every value of the given float types float64, arguments and results included.

    Constants keep their digits and are converted. Ops whose types mean something (bitcasts, custom
    calls, random numbers) keep them between conversions, so random bits stay the same. What asks
    for fewer digits (`reduce_precision`, conversions to bf16, dot algorithms) disappears. A second
    run changes nothing.

    Attributes:
        types: element types to widen, of f16, bf16 and f32 (with complex<f32>).
    """

    name = "shardc-widen-floats"

    types: tuple[str, ...] = _NARROW

    def apply(self, module: ir.Operation) -> None:
        for each in self.types:
            if each not in _NARROW:
                raise InputError(
                    f"'{each}' is not a float type that can be widened",
                    code="SHARDC-181",
                    help=f"the types are: {', '.join(_NARROW)}",
                )
        widening = _Widening(self.types)
        found = [op for op in walk(module) if op.name not in ("func.func", "sdy.mesh")]
        kept = [(op, [o.type for o in op.operands]) for op in found if op.name in _KEEPS_TYPES]
        for op in walk(module):
            for region in op.regions:
                for block in region.blocks:
                    widening.values(block.arguments)
            if op.name not in _KEEPS_TYPES:
                widening.values(op.results)
        for op, operand_types in kept:
            widening.surround(op, operand_types)
        for op in found:
            if op.name not in _KEEPS_TYPES:
                _forget_precision(op)
        for function in functions(module):
            widening.signature(function)

"""Compute everything in float64, for a reference without float32 rounding."""

from collections.abc import Iterable
from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy, stablehlo

from shardc.errors import InputError
from shardc.ir.attributes import IN_SHARDINGS, SHARDING, call_target
from shardc.ir.pass_manager import Pass
from shardc.ir.walk import all_functions, walk

_NARROW = ("f16", "bf16", "f32")

# The types of these are significant: literal digits, bits, a library routine, a random stream.
_KEEPS_TYPES = frozenset(
    {
        "stablehlo.bitcast_convert",
        "stablehlo.constant",
        "stablehlo.custom_call",
        "stablehlo.rng",
    }
)


def _keeps_types(op: ir.Operation) -> bool:
    own = (call_target(op) or "").startswith("shardc.")  # an accumulation has any type
    return op.name in _KEEPS_TYPES and not own


class _Widening:
    def __init__(self, types: tuple[str, ...]) -> None:
        wide = ir.F64Type.get()
        self.element_types: dict[str, ir.Type] = dict.fromkeys(types, wide)
        if "f32" in types:
            self.element_types["complex<f32>"] = ir.ComplexType.get(wide)

    def type(self, type_: ir.Type) -> ir.Type:
        """The widened type."""
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

    def attribute(self, attribute: ir.Attribute) -> ir.Attribute:
        """A shardc attribute with the types in it widened."""
        if isinstance(attribute, ir.TypeAttr):
            return ir.TypeAttr.get(self.type(attribute.value))
        if isinstance(attribute, ir.ArrayAttr):
            return ir.ArrayAttr.get([self.attribute(each) for each in attribute])
        if isinstance(attribute, ir.DictAttr):
            entries = [attribute[i] for i in range(len(attribute))]
            return ir.DictAttr.get({e.name: self.attribute(e.attr) for e in entries})
        return attribute

    def attributes(self, op: ir.Operation) -> None:
        """Widens types in the tables of a module and the argument attributes of a function."""
        for name in list(op.attributes):
            if name.startswith("shardc.") or name in ("arg_attrs", "res_attrs"):
                op.attributes[name] = self.attribute(op.attributes[name])

    def surround(self, op: ir.Operation, operand_types: list[ir.Type]) -> None:
        """Narrows the operands of an op that keeps its types, and widens its results."""
        wanted, made = _shardings(op)
        with op.location:
            for i, narrow in enumerate(operand_types):
                if op.operands[i].type != narrow:
                    with ir.InsertionPoint(op):
                        narrowed = _convert(op.operands[i], narrow, op, wanted[i])
                        op.operands[i] = narrowed.results[0]
            for result, sharding in zip(op.results, made, strict=True):
                wide = self.type(result.type)
                if wide != result.type:
                    with ir.InsertionPoint.after(op):
                        widened = _convert(result, wide, op, sharding)
                    result.replace_all_uses_except(widened.results[0], widened)


def _shardings(op: ir.Operation) -> tuple[list[ir.Attribute | None], list[ir.Attribute | None]]:
    """The planned shardings of operands and results; None for those without."""
    wanted: list[ir.Attribute | None] = [None] * len(op.operands)
    made: list[ir.Attribute | None] = [None] * len(op.results)
    if IN_SHARDINGS in op.attributes:
        wanted = list(ir.ArrayAttr(op.attributes[IN_SHARDINGS]))
    if SHARDING in op.attributes:
        made = list(sdy.TensorShardingPerValueAttr(op.attributes[SHARDING]).shardings)
    return wanted, made


def _convert(
    value: ir.Value, type_: ir.Type, near: ir.Operation, sharding: ir.Attribute | None
) -> ir.Operation:
    """A conversion with the stage and phase of `near`, which keeps the sharding."""
    op = stablehlo.ConvertOp(type_, value).operation
    for name in near.attributes:
        if name.startswith("shardc.") and name != IN_SHARDINGS:
            op.attributes[name] = near.attributes[name]
    if sharding is not None:
        op.attributes[SHARDING] = sdy.TensorShardingPerValueAttr.get([sharding])
        op.attributes[IN_SHARDINGS] = ir.ArrayAttr.get([sharding])
    return op


def _forget_precision(op: ir.Operation) -> None:
    """Removes reductions of precision; an op with a planned sharding stays as an identity."""
    if op.name == "stablehlo.dot_general" and "algorithm" in op.attributes:
        del op.attributes["algorithm"]
    if op.name == "stablehlo.reduce_precision":
        i32 = ir.IntegerType.get_signless(32)
        op.attributes["exponent_bits"] = ir.IntegerAttr.get(i32, 11)
        op.attributes["mantissa_bits"] = ir.IntegerAttr.get(i32, 52)
    identity = op.name == "stablehlo.convert" and op.operands[0].type == op.results[0].type
    if IN_SHARDINGS not in op.attributes and (identity or op.name == "stablehlo.reduce_precision"):
        op.results[0].replace_all_uses_with(op.operands[0])
        op.erase()


@dataclass(frozen=True)
class WidenFloats(Pass):
    """Makes every value of the given float types float64, arguments and results included.

    Constants keep their digits and are converted. Ops with significant types (bitcasts, custom
    calls, random numbers) keep them between conversions, so random bits stay the same. Reductions
    of precision (`reduce_precision`, conversions to bf16, dot algorithms) are removed. A module
    that is cut into stages and sharded keeps its plan. A second run changes nothing.

    Attributes:
        types: element types to widen, of f16, bf16 and f32 (with complex<f32>).
    """

    name = "shardc-widen-floats"
    changes_types = True

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
        kept = [(op, [o.type for o in op.operands]) for op in found if _keeps_types(op)]
        for op in walk(module):
            for region in op.regions:
                for block in region.blocks:
                    widening.values(block.arguments)
            if not _keeps_types(op):
                widening.values(op.results)
        for op, operand_types in kept:
            widening.surround(op, operand_types)
        for op in found:
            if not _keeps_types(op):
                _forget_precision(op)
        widening.attributes(module)
        for function in all_functions(module):
            widening.signature(function)
            widening.attributes(function)

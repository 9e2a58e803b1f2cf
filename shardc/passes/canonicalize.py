"""Remove no-ops and ops on empty tensors, and hoist constants out of regions."""

from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.analysis.program.op_classes import PRODUCTS
from shardc.ir.attributes import SHARDING, get_int
from shardc.ir.constants import filled, is_complex, splat, zeros
from shardc.ir.pass_manager import Pass, run_registered
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import body, walk
from shardc.rules.reducers import reducer

PURE = ("stablehlo.", "chlo.")
KEPT = {  # constants, and ops that may have side effects
    "stablehlo.constant",
    "stablehlo.custom_call",
    "stablehlo.while",
    "stablehlo.case",
    "stablehlo.if",
    "stablehlo.infeed",
    "stablehlo.recv",
}
FILLED = {"stablehlo.reduce", "stablehlo.reduce_window", "stablehlo.pad"}
"""If the first half of their operands is empty, the second half fills the results."""
NEUTRAL = {"add": 0, "multiply": 1, "xor": 0}
"""Reducers of which a start that is counted twice would show, and what they may start from."""


@dataclass(frozen=True)
class Canonicalize(Pass):
    """Folds ops on empty tensors into constants, drops conversions of a type to itself and products
    with 1, starts sums and products from 0 and 1, then runs MLIR's `canonicalize`, which erases
    dead ops and hoists constants out of loops and branches.

        reduce(%x init: %start) applies add
    becomes
        add %start, reduce(%x init: 0) applies add

    XLA counts the start once per piece if it reduces a concatenation, such as an all-to-all makes.

    XLA drops products with 1, too; left here, each would be planned, and its time counted. The
    StableHLO in the wheel folds nothing else. XLA as of jaxlib 0.11.2 aborts the process on
    most ops with an empty operand inside `shard_map`. A second run changes nothing.
    """

    name = "shardc-canonicalize"
    never_refuses = "simplifying a valid module cannot fail"

    def apply(self, module: ir.Operation) -> None:
        found = [op for op in walk(module) if _forwards(op) is not None or _has_empty(op)]
        for op in reversed(found):  # what stands in an op goes with it
            if op.name == "func.func":
                _without_empty_arguments(op)
            elif (same := _forwards(op)) is not None:
                op.results[0].replace_all_uses_with(same)
            else:
                _without_empty(op)
        for op in [op for op in walk(module) if _starts_otherwise(op)]:
            _start_from_neutral(op)
        run_registered(module, "canonicalize")


def _forwards(op: ir.Operation) -> ir.Value | None:
    """The operand that an op gives unchanged: what it converts to its own type, or multiplies or
    divides by one; None if it does something else."""
    if op.name == "stablehlo.convert":
        return op.operands[0] if op.operands[0].type == op.results[0].type else None
    if op.name not in ("stablehlo.multiply", "stablehlo.divide") or SHARDING in op.attributes:
        return None
    first, second = op.operands
    if is_complex(first):  # inf times the imaginary part of one is not a number
        return None
    if splat(second) == 1:
        return first
    return second if op.name == "stablehlo.multiply" and splat(first) == 1 else None


def _starts_otherwise(op: ir.Operation) -> bool:
    if op.name != "stablehlo.reduce" or len(op.results) != 1 or SHARDING in op.attributes:
        return False
    if is_complex(op.results[0]):  # the bindings cannot create a complex constant
        return False
    neutral = NEUTRAL.get(reducer(op) or "")
    return neutral is not None and splat(op.operands[1]) != neutral


def _start_from_neutral(op: ir.Operation) -> None:
    """Takes the start of a reduction out, and combines it with the result."""
    name, start, result = str(reducer(op)), op.operands[1], op.results[0]
    with ir.InsertionPoint(op), op.location:
        op.operands[1] = filled(start.type, NEUTRAL[name])
    with ir.InsertionPoint.after(op), op.location:
        everywhere = stablehlo.broadcast_in_dim(result.type, start, [])
        whole = ir.Operation.create(
            f"stablehlo.{name}", results=[result.type], operands=[everywhere, result]
        )
    result.replace_all_uses_except(whole.results[0], whole)


def _has_empty(op: ir.Operation) -> bool:
    if op.name == "func.func":
        return any(0 in shape_of(value) for block in op.regions[0] for value in block.arguments)
    if not op.name.startswith(PURE) or op.name in KEPT or not len(op.results):
        return False
    return any(0 in shape_of(value) for value in (*op.operands, *op.results))


def _without_empty_arguments(function: ir.Operation) -> None:
    block = body(function)
    with ir.InsertionPoint.at_block_begin(block), function.location:
        for value in block.arguments:
            if _can_be_constant(value):
                value.replace_all_uses_with(_no_elements(value.type))


def _without_empty(op: ir.Operation) -> None:
    with ir.InsertionPoint(op), op.location:
        if all(_can_be_constant(value) for value in op.results):
            new = [_no_elements(value.type) for value in op.results]
        elif op.name == "stablehlo.concatenate" and 0 not in shape_of(op.results[0]):
            new = [_joined(op)]
        elif op.name in PRODUCTS and 0 in shape_of(op.operands[0]):
            new = [zeros(value.type) for value in op.results]
        elif op.name in FILLED and 0 in shape_of(op.operands[0]):
            fills = list(op.operands)[len(op.operands) // 2 :]
            new = [
                stablehlo.broadcast_in_dim(value.type, fill, [])
                for value, fill in zip(op.results, fills, strict=True)
            ]
        else:
            return
    for old, value in zip(op.results, new, strict=True):
        old.replace_all_uses_with(value)
    op.erase()


def _can_be_constant(value: ir.Value) -> bool:
    """Whether a value is empty; the bindings cannot create an empty complex constant."""
    return 0 in shape_of(value) and not is_complex(value)


def _no_elements(type_: ir.Type) -> ir.Value:
    return stablehlo.ConstantOp(ir.Attribute.parse(f"dense<> : {type_}")).result


def _joined(op: ir.Operation) -> ir.Value:
    """The concatenation of the nonempty operands; a single one is forwarded."""
    dim = get_int(op, "dimension") or 0
    filled = [value for value in op.operands if shape_of(value)[dim] > 0]
    if len(filled) == 1:
        return filled[0]
    attributes = {name: op.attributes[name] for name in op.attributes}
    return ir.Operation.create(
        op.name, results=[op.results[0].type], operands=filled, attributes=attributes
    ).results[0]

"""Cast parameters to narrow types once per step instead of in every microbatch."""

from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.analysis.program.arguments import state_arguments
from shardc.ir.attributes import BATCH_AXIS, CAST_ONCE, CASTS, SHARDING, arg_attrs, int_attr
from shardc.ir.pass_manager import Pass
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import body, defining_op, main_function, ops, walk

_MOVES = ("stablehlo.reshape", "stablehlo.transpose", "stablehlo.dynamic_slice", "stablehlo.slice")


@dataclass(frozen=True)
class CastParametersOnce(Pass):
    """Marks casts of parameters to narrower floats with `shardc.once`, and lifts those of rows out
    of loops over layers.

    `shardc-split-microbatches` makes what is marked once, before the microbatches. The copies take
    memory all step; without, each microbatch would cast the same parameters again, forward and
    backward. Casts of elements commute with reads of rows, so no number changes. A second run
    changes nothing.

        while { %row = dynamic_slice %w, %i, %0, sizes = [1, 4]     : tensor<8x4xf32>
                %cast = convert %row                                : tensor<1x4xbf16> }
    becomes
        %narrow = convert %w {shardc.once}                          : tensor<8x4xbf16>
        while { %cast = dynamic_slice %narrow, %i, %0, sizes = [1, 4] }

    A parameter is state that holds no batch, or what is made of such state outside of loops.
    """

    name = "shardc-cast-parameters-once"
    never_refuses = "a cast that cannot be lifted stays where it is"

    def apply(self, module: ir.Operation) -> None:
        function = main_function(module)
        parameters = _parameters(function)
        copies = {
            (op.operands[0], _element(op.results[0])): op.results[0]
            for op in ops(function)
            if op.operands and op.operands[0] in parameters and _narrows(op)
        }
        for loop in [op for op in walk(function) if op.name == "stablehlo.while"]:
            if SHARDING in loop.attributes:
                continue
            for op in list(walk(loop)):
                if _narrows(op) and (path := _path(op))[-1].operands[0] in parameters:
                    _lift(path, copies, body(function))
        for copy in copies.values():
            copy.owner.attributes[CAST_ONCE] = ir.UnitAttr.get()
        if copies:
            module.attributes[CASTS] = int_attr(len(copies))


def _parameters(function: ir.Operation) -> set[ir.Value]:
    """The values of @main that depend on state, and on no batch."""
    arguments = body(function).arguments
    fixed = {arguments[n] for n, each in enumerate(arg_attrs(function)) if BATCH_AXIS not in each}
    found = {arguments[n] for n in state_arguments(function)} & fixed
    for op in ops(function):
        if len(op.regions) == 0 and all(value in fixed for value in op.operands):
            fixed.update(op.results)
            if any(value in found for value in op.operands):
                found.update(op.results)
    return found


def _narrows(op: ir.Operation) -> bool:
    """Whether an op casts floats to fewer bits."""
    if op.name != "stablehlo.convert" or SHARDING in op.attributes:
        return False
    source, target = _element(op.operands[0]), _element(op.results[0])
    if not isinstance(source, ir.FloatType) or not isinstance(target, ir.FloatType):
        return False
    return target.width < source.width


def _path(cast: ir.Operation) -> list[ir.Operation]:
    """From a cast back to the read of the value whose rows it casts."""
    path: list[ir.Operation] = [cast]
    while (op := defining_op(path[-1].operands[0])) is not None:
        if op.name not in _MOVES or SHARDING in op.attributes:
            break
        path.append(op)
    return path


def _lift(
    path: list[ir.Operation], copies: dict[tuple[ir.Value, ir.Type], ir.Value], block: ir.Block
) -> None:
    """Casts what the last op of `path` reads where that is made, and reads rows of the copy."""
    cast, parameter = path[0], path[-1].operands[0]
    narrow = _element(cast.results[0])
    if (parameter, narrow) not in copies:
        made = defining_op(parameter)
        start = ir.InsertionPoint.at_block_begin(block)
        with start if made is None else ir.InsertionPoint.after(made), cast.location:
            whole = ir.RankedTensorType.get(shape_of(parameter), narrow)
            copies[parameter, narrow] = stablehlo.ConvertOp(whole, parameter).result
    value = copies[parameter, narrow]
    for op in reversed(path[1:]):
        with ir.InsertionPoint(op), op.location:
            value = ir.Operation.create(
                op.name,
                results=[ir.RankedTensorType.get(shape_of(op.results[0]), narrow)],
                operands=[value, *list(op.operands)[1:]],
                attributes={name: op.attributes[name] for name in op.attributes},
            ).results[0]
    cast.results[0].replace_all_uses_with(value)
    for op in path:
        if not any(True for _ in op.results[0].uses):
            op.erase()


def _element(value: ir.Value) -> ir.Type:
    return ir.RankedTensorType(value.type).element_type

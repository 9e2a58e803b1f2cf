"""Cast parameters to narrow types once per step instead of in every microbatch."""

from collections.abc import Collection
from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.analysis.loops.row_loop import before_barriers, row_loop, row_read
from shardc.analysis.loops.value_numbering import reshapes
from shardc.analysis.program.arguments import state_arguments
from shardc.ir.attributes import BATCH_AXIS, CAST_ONCE, CASTS, SHARDING, arg_attrs, int_attr
from shardc.ir.pass_manager import Pass
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import block_terminator, body, defining_op, main_function, ops, walk
from shardc.rewrite.loops.carried_values import drop_unused

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

    A parameter is state that holds no batch, or what is made of such state outside of loops. Where
    a loop stacks the rows that it has cast, for the way back, the stack is the copy.
    """

    name = "shardc-cast-parameters-once"
    never_refuses = "a cast that cannot be lifted stays where it is"

    def apply(self, module: ir.Operation) -> None:
        function = main_function(module)
        parameters = _parameters(function)
        copies: dict[tuple[ir.Value, ir.Type], ir.Operation] = {}
        for op in walk(function):
            if CAST_ONCE in op.attributes:
                copies[_key(op, op.operands[0])] = op
        while _lift_all(function, parameters, copies):  # stacks that are copies are cast, too
            for loop in _loops(function):
                _forward_stacks(loop, {copy.results[0] for copy in copies.values()})
        if copies:
            drop_unused(function)
            count = sum(CAST_ONCE in op.attributes for op in walk(function))
            module.attributes[CASTS] = int_attr(count)


def _lift_all(
    function: ir.Operation,
    parameters: set[ir.Value],
    copies: dict[tuple[ir.Value, ir.Type], ir.Operation],
) -> bool:
    """Lifts casts of parameters, and of copies of these; whether there was one."""
    found = False
    for op in [op for op in walk(function) if _narrows(op) and CAST_ONCE not in op.attributes]:
        path, source = _reads(op, parameters)
        if source in parameters:
            _lift(op, path, source, copies, body(function))
            parameters.update(copy.results[0] for copy in copies.values())
            found = True
    return found


def _loops(function: ir.Operation) -> list[ir.Operation]:
    """The loops without shardings of their own."""
    loops = (op for op in walk(function) if op.name == "stablehlo.while")
    return [loop for loop in loops if SHARDING not in loop.attributes]


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


def _key(cast: ir.Operation, source: ir.Value) -> tuple[ir.Value, ir.Type]:
    """What a copy is of, and its element type."""
    return source, _element(cast.results[0])


def _reads(
    cast: ir.Operation, parameters: Collection[ir.Value]
) -> tuple[list[ir.Operation], ir.Value]:
    """The ops that move what a cast casts, the last one first, and the value that they move: a
    parameter, if one is found.

    Barriers, which `jax.checkpoint` puts in front of what it computes again, move nothing.
    """
    path: list[ir.Operation] = []
    value = before_barriers(cast.operands[0])
    while value not in parameters and (op := defining_op(value)) is not None:
        if op.name not in _MOVES or SHARDING in op.attributes:
            break
        path.append(op)
        value = before_barriers(op.operands[0])
    return path, value


def _lift(
    cast: ir.Operation,
    path: list[ir.Operation],
    source: ir.Value,
    copies: dict[tuple[ir.Value, ir.Type], ir.Operation],
    block: ir.Block,
) -> None:
    """Replaces a cast by the same moves of a copy, which is made where its source is."""
    key = _, narrow = _key(cast, source)
    if key not in copies:
        made = defining_op(source)
        start = ir.InsertionPoint.at_block_begin(block)
        with start if made is None else ir.InsertionPoint.after(made), cast.location:
            whole = ir.RankedTensorType.get(shape_of(source), narrow)
            copies[key] = stablehlo.ConvertOp(whole, source).operation
        copies[key].attributes[CAST_ONCE] = ir.UnitAttr.get()
    value = copies[key].results[0]
    for op in reversed(path):
        with ir.InsertionPoint(op), op.location:
            value = ir.Operation.create(
                op.name,
                results=[ir.RankedTensorType.get(shape_of(op.results[0]), narrow)],
                operands=[value, *list(op.operands)[1:]],
                attributes={name: op.attributes[name] for name in op.attributes},
            ).results[0]
    cast.results[0].replace_all_uses_with(value)
    cast.erase()


def _forward_stacks(loop: ir.Operation, copies: set[ir.Value]) -> None:
    """Replaces stacks of all rows of a copy by the copy."""
    found = row_loop(loop)
    if found is None:
        return
    for position, dim in found.writes.items():
        update = defining_op(block_terminator(found.body).operands[position])
        assert update is not None, "a stack is updated by an op"
        row = update.operands[1]
        while (op := defining_op(before_barriers(row))) is not None and reshapes(op):
            row = op.operands[0]
        row = before_barriers(row)
        if found.reads.get(row) == dim:
            copy, stack = row_read(row).operands[0], loop.results[position]
            if copy in copies and copy.type == stack.type:
                stack.replace_all_uses_with(copy)


def _element(value: ir.Value) -> ir.Type:
    return ir.RankedTensorType(value.type).element_type

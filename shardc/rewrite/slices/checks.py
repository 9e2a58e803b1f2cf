"""Checks of premises: each slice counts the elements that violate them, and the step returns which
are violated."""

from collections.abc import Sequence

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, stablehlo

from shardc.analysis.slices.squares.premises import Premise
from shardc.ir.attributes import (
    ASSUMED,
    KIND,
    RESULT_PIECES,
    RESULT_SHARDINGS,
    RESULT_STAGES,
    RESULT_TYPES,
    RESULTS,
    ROUND,
    STAGE,
    VALUE,
    arg_attrs,
    function_kind,
    get_int,
    int_attr,
    result_attrs,
    set_arg_attrs,
    set_result_attrs,
    str_array,
    str_attr,
)
from shardc.ir.constants import zeros
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import body, defining_op, functions, terminator, where
from shardc.plan.function_kind import FunctionKind
from shardc.rewrite.calls.function_signature import return_values, update_type


def broken(premises: Sequence[Premise], parts: Sequence[ir.Value]) -> ir.Value:
    """The number of elements, among the parts of its value, that violate each premise, at the
    current insertion point: f32[len(premises)]."""
    counts = [_broken(premise, part) for premise, part in zip(premises, parts, strict=True)]
    if len(counts) == 1:
        return counts[0]
    return stablehlo.ConcatenateOp(counts, 0, results=[count_type(len(counts))]).result


def count_type(count: int) -> ir.Type:
    """The type of the counts of so many premises."""
    return ir.RankedTensorType.get([count], ir.F32Type.get())


def _broken(premise: Premise, part: ir.Value) -> ir.Value:
    size = stablehlo.AbsOp(part).result
    holds = _compared(size, premise.most, "LE")  # not for nan
    if premise.least:
        holds = stablehlo.AndOp(holds, _compared(size, premise.least, "GE")).result
    one = ir.RankedTensorType.get(shape_of(part), ir.F32Type.get())
    ones = stablehlo.ConvertOp(one, stablehlo.NotOp(holds).result).result
    scalar = ir.RankedTensorType.get([], ir.F32Type.get())
    every = ir.DenseI64ArrayAttr.get(list(range(len(shape_of(part)))))
    count = ir.Operation.create(
        "stablehlo.reduce",
        results=[scalar],
        operands=[ones, zeros(scalar)],
        attributes={"dimensions": every},
        regions=1,
    )
    here = ir.Location.current
    block = count.regions[0].blocks.append(scalar, scalar, arg_locs=[here, here])
    with ir.InsertionPoint(block):
        stablehlo.ReturnOp([stablehlo.AddOp(*block.arguments).result])
    return stablehlo.ReshapeOp(count_type(1), count.result).result


def _compared(value: ir.Value, limit: float, direction: str) -> ir.Value:
    element = ir.RankedTensorType(value.type).element_type
    splat = ir.DenseElementsAttr.get_splat(value.type, ir.FloatAttr.get(element, limit))
    how = stablehlo.ComparisonDirectionAttr.get(direction)
    return stablehlo.CompareOp(value, stablehlo.ConstantOp(splat).result, how).result


def return_checks(
    module: ir.Operation,
    function: ir.Operation,
    premises: Sequence[Premise],
    counts: str,
    result: str,
) -> None:
    """Lets the step return, behind the user's results, which premises are broken.

    Args:
        function: one whose slices count.
        counts: id of the accumulator to which they add.
        result: id of the result.
    """
    stage = get_int(function, STAGE) or 0
    update = _update(module, stage)
    attrs = arg_attrs(update), result_attrs(update)
    total = body(update).add_argument(count_type(len(premises)), function.location)
    end = terminator(update)
    with ir.InsertionPoint(end), function.location:
        how = stablehlo.ComparisonDirectionAttr.get("GT")
        flags = stablehlo.CompareOp(total, zeros(total.type), how).result
    return_values(update, [*end.operands, flags])
    update_type(update)
    set_arg_attrs(update, [*attrs[0], {VALUE: str_attr(counts)}])
    set_result_attrs(update, [*attrs[1], {VALUE: str_attr(result)}])
    row = {
        RESULTS: str_attr(result),
        RESULT_TYPES: ir.TypeAttr.get(flags.type),
        RESULT_STAGES: int_attr(stage),
        RESULT_PIECES: ir.DenseI64ArrayAttr.get([]),
        RESULT_SHARDINGS: ir.UnitAttr.get(),
        ASSUMED: str_array(map(said, premises)),
    }
    for name, entry in row.items():
        if name in module.attributes or name == ASSUMED:
            known = ir.ArrayAttr(module.attributes[name]) if name in module.attributes else ()
            module.attributes[name] = ir.ArrayAttr.get([*known, entry])


def said(premise: Premise) -> str:
    """The words for a violated premise."""
    maker = defining_op(premise.value)
    name = "an argument" if maker is None else f"'{maker.name}' at {where(maker)}"
    below = f", or below {premise.least:.2g}" if premise.least else ""
    return f"{name} has a number that is nan or above {premise.most:.2g} in magnitude{below}"


def _update(module: ir.Operation, stage: int) -> ir.Operation:
    """An update of a stage; a new one if the stage has none."""
    for each in functions(module):
        if function_kind(each) is FunctionKind.UPDATE and get_int(each, STAGE) == stage:
            return each
    unknown = ir.Location.unknown(module.context)
    with ir.InsertionPoint(module.regions[0].blocks[0]), unknown:
        made = func.FuncOp(f"stage{stage}_update_0", ir.FunctionType.get([], [])).operation
    made.attributes[STAGE], made.attributes[ROUND] = int_attr(stage), int_attr(0)
    made.attributes[KIND] = str_attr(FunctionKind.UPDATE)
    with ir.InsertionPoint(made.regions[0].blocks.append()), unknown:
        func.ReturnOp([])
    return made

"""Stacks of a body's values, one row per iteration: written by one loop, read by another."""

from collections.abc import Sequence

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.analysis.program.counted_loop import CountedLoop
from shardc.ir.clone import hollow_copy
from shardc.ir.constants import integer, zeros
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import block_terminator


def with_stacks(
    loop: ir.Operation, counted: CountedLoop, values: Sequence[ir.Value], forwards: bool = True
) -> ir.Operation:
    """Replaces a loop by one that also carries a stack of each of `values`, after all else.

    Args:
        forwards: iteration k writes row k; else row trips - 1 - k.
    """
    with ir.InsertionPoint(loop), loop.location:
        types = [_stack_type(value, counted.trips) for value in values]
        starts = [zeros(type_) for type_ in types]
        new = hollow_copy(
            loop, [*loop.operands, *starts], [*(result.type for result in loop.results), *types]
        )
    for old, region in zip(loop.regions, new.regions, strict=True):
        old.blocks[0].append_to(region)
        for type_ in types:
            region.blocks[0].add_argument(type_, loop.location)
    body = new.regions[1].blocks[0]
    end, stacks = block_terminator(body), list(body.arguments)[len(loop.operands) :]
    with ir.InsertionPoint(end), end.location:
        row = _row(body, counted, forwards)
        written = [
            stablehlo.DynamicUpdateSliceOp(
                stack,
                stablehlo.ReshapeOp(_stack_type(value, 1), value).result,
                _starts(row, value),
            ).result
            for stack, value in zip(stacks, values, strict=True)
        ]
        stablehlo.ReturnOp([*end.operands, *written])
    end.erase()
    for old_result, result in zip(loop.results, new.results, strict=False):
        old_result.replace_all_uses_with(result)
    loop.erase()
    return new


def read_stacks(
    loop: ir.Operation,
    counted: CountedLoop,
    values: Sequence[ir.Value],
    stacks: Sequence[ir.Value],
    forwards: bool = True,
) -> None:
    """Replaces values of a loop's body by the rows of stacks that belong to the iteration; `values`
    and `forwards` as in `with_stacks`."""
    body = loop.regions[1].blocks[0]
    with ir.InsertionPoint.at_block_begin(body), loop.location:
        row = _row(body, counted, forwards)
        for value, stack in zip(values, stacks, strict=True):
            sizes = [1, *shape_of(value)]
            part = stablehlo.DynamicSliceOp(stack, _starts(row, value), sizes).result
            value.replace_all_uses_with(stablehlo.ReshapeOp(value.type, part).result)


def _row(body: ir.Block, counted: CountedLoop, forwards: bool) -> ir.Value:
    """The row that an iteration of a loop with this body has in its stacks."""
    start, step = counted.start, counted.step
    count = body.arguments[counted.counter]
    if (start, step) != (0, 1):
        wide = ir.RankedTensorType.get([], ir.IntegerType.get_signless(64))
        if count.type != wide:  # which may hold every count, but not how far one is from the start
            count = stablehlo.ConvertOp(wide, count).result
        count = stablehlo.SubtractOp(count, integer(wide, start)).result
        if step != 1:
            count = stablehlo.DivOp(count, integer(wide, step)).result
    if forwards:
        return count
    return stablehlo.SubtractOp(integer(count.type, counted.trips - 1), count).result


def _starts(row: ir.Value, value: ir.Value) -> list[ir.Value]:
    rank = len(shape_of(value))
    return [row, *([integer(row.type, 0)] * rank if rank else [])]


def _stack_type(value: ir.Value, rows: int) -> ir.Type:
    type_ = ir.RankedTensorType(value.type)
    return ir.RankedTensorType.get([rows, *type_.shape], type_.element_type)

"""Loop fission: two loops over the same iterations; the second reads what the first has stacked."""

from collections.abc import Collection, Sequence

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.analysis.program.counted_loop import CountedLoop
from shardc.ir.clone import clone_op, hollow_copy
from shardc.ir.constants import integer, zeros
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import block_terminator, ops_of


def fission(
    loop: ir.Operation, counted: CountedLoop, values: Sequence[ir.Value], late: Collection[int]
) -> None:
    """Replaces a counted `stablehlo.while` by two.

    The first also carries a stack for each of `values`, one row per iteration; the second reads
    these rows. Results at `late` come from the second loop, all others from the first;
    `shardc.rewrite.loops.carried_values.drop_unused` removes dead results.

    Args:
        values: of the body of the loop; nothing they depend on depends on carries at `late`.
    """
    places = [_place(loop, value) for value in values]
    with ir.InsertionPoint(loop), loop.location:
        first = _stacking(clone_op(loop, {}), counted, places)
        second = clone_op(loop, {})
        _read(second, counted, places, list(first.results)[len(loop.results) :])
    for p, result in enumerate(loop.results):
        result.replace_all_uses_with((second if p in late else first).results[p])
    loop.erase()


Place = tuple[int, int]  # position of an op in a body, -1 for the body itself; of its result


def _place(loop: ir.Operation, value: ir.Value) -> Place:
    body = loop.regions[1].blocks[0]
    if isinstance(value.owner, ir.Block):
        return -1, ir.BlockArgument(value).arg_number
    return ops_of(body).index(value.owner.operation), ir.OpResult(value).result_number


def _at(loop: ir.Operation, place: Place) -> ir.Value:
    body, (position, number) = loop.regions[1].blocks[0], place
    return body.arguments[number] if position < 0 else ops_of(body)[position].results[number]


def _stacking(loop: ir.Operation, counted: CountedLoop, places: Sequence[Place]) -> ir.Operation:
    """The loop with one stack per place appended to its carried values."""
    values = [_at(loop, place) for place in places]
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
    with ir.InsertionPoint(end):
        row = _row(body, counted)
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
    loop.erase()
    return new


def _read(
    loop: ir.Operation, counted: CountedLoop, places: Sequence[Place], stacks: Sequence[ir.Value]
) -> None:
    """Replaces the values at `places` by reads of their stacks."""
    body = loop.regions[1].blocks[0]
    old = [_at(loop, place) for place in places]
    with ir.InsertionPoint.at_block_begin(body):
        row = _row(body, counted)
        for value, stack in zip(old, stacks, strict=True):
            sizes = [1, *shape_of(value)]
            part = stablehlo.DynamicSliceOp(stack, _starts(row, value), sizes).result
            new = stablehlo.ReshapeOp(value.type, part).result
            value.replace_all_uses_with(new)


def _row(body: ir.Block, counted: CountedLoop) -> ir.Value:
    """The iteration number."""
    start, step = counted.start, counted.step
    count = body.arguments[counted.counter]
    if (start, step) == (0, 1):
        return count
    wide = ir.RankedTensorType.get([], ir.IntegerType.get_signless(64))
    if count.type != wide:  # which may hold every count, but not how far one is from the start
        count = stablehlo.ConvertOp(wide, count).result
    count = stablehlo.SubtractOp(count, integer(wide, start)).result
    return count if step == 1 else stablehlo.DivOp(count, integer(wide, step)).result


def _starts(row: ir.Value, value: ir.Value) -> list[ir.Value]:
    rank = len(shape_of(value))
    return [row, *([integer(row.type, 0)] * rank if rank else [])]


def _stack_type(value: ir.Value, rows: int) -> ir.Type:
    type_ = ir.RankedTensorType(value.type)
    return ir.RankedTensorType.get([rows, *type_.shape], type_.element_type)

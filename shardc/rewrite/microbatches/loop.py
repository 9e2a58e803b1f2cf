"""A loop over the microbatches inside the program."""

from collections.abc import Sequence

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.ir.attributes import (
    ACCUMULATE,
    BATCH_DIM,
    KIND,
    MICROBATCH_INDEX,
    PHASE,
    call_target,
    get_int,
    get_str,
)
from shardc.ir.constants import integer, zeros
from shardc.ir.tensor_types import shape_of, sum_type
from shardc.rewrite.microbatches.ops import with_shape


def loop_over_microbatches(
    inside: Sequence[ir.Operation], after: ir.Operation, count: int
) -> list[tuple[ir.Operation, ir.Value]]:
    """Moves the ops of a microbatch into a `stablehlo.while` over the microbatches.

    The microbatch index becomes the loop's counter. Each sum over the microbatches becomes a
    loop-carried accumulator (float32 for 16-bit floats); where parts are concatenated, the loop
    carries the whole value and writes the microbatch's part of it.

    Args:
        inside: consecutive ops, at least one accumulation among them; only these are used outside.
        after: the op after them.
        count: number of microbatches.
    Returns:
        The accumulations, now without users, each with the value that replaces it.
    """
    sums = [op for op in inside if call_target(op) == ACCUMULATE]
    types = [op.results[0].type if _is_concat(op) else sum_type(op.results[0].type) for op in sums]
    indices = [op for op in inside if call_target(op) == MICROBATCH_INDEX]
    number = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    types = [number, *types]
    with ir.InsertionPoint(inside[0]), sums[0].location:
        starts = [integer(number, 0), *map(zeros, types[1:])]
        loop = ir.Operation.create("stablehlo.while", results=types, operands=starts, regions=2)
    locations = [loop.location] * len(types)
    condition, body = (region.blocks.append(*types, arg_locs=locations) for region in loop.regions)
    with ir.InsertionPoint(condition), loop.location:
        below = stablehlo.ComparisonDirectionAttr.get("LT")
        more = stablehlo.CompareOp(condition.arguments[0], integer(number, count), below)
        stablehlo.ReturnOp([more.result])
    for op in inside:
        if op in sums:
            continue
        body.append(op)
        if PHASE in op.attributes:
            del op.attributes[PHASE]
    for op in indices:
        op.results[0].replace_all_uses_with(body.arguments[0])
        op.erase()
    with ir.InsertionPoint(body), loop.location:
        carried = [stablehlo.add(body.arguments[0], integer(number, 1))]
        for op, so_far in zip(sums, list(body.arguments)[1:], strict=True):
            part = op.operands[0]
            if _is_concat(op):
                dim = get_int(op, BATCH_DIM)
                assert dim is not None, "a concatenation has a dim"
                carried.append(_written(so_far, part, body.arguments[0], dim))
            else:
                carried.append(stablehlo.add(so_far, _as(part, so_far.type)))
        stablehlo.ReturnOp(carried)
    found = []
    with ir.InsertionPoint(after), loop.location:
        for op, total in zip(sums, list(loop.results)[1:], strict=True):
            found.append((op, _as(total, op.results[0].type)))
            op.results[0].replace_all_uses_with(found[-1][1])
    return found


def _is_concat(op: ir.Operation) -> bool:
    return get_str(op, KIND) == "concat"


def _written(whole: ir.Value, part: ir.Value, index: ir.Value, dim: int) -> ir.Value:
    """`whole` with `part` as entry `index` of dim `dim`."""
    shape = [*shape_of(part)[:dim], 1, *shape_of(part)[dim:]]
    row = stablehlo.ReshapeOp(with_shape(part, shape), part).result
    zero = integer(index.type, 0)
    starts = [index if d == dim else zero for d in range(len(shape))]
    return stablehlo.DynamicUpdateSliceOp(whole, row, starts).result


def _as(value: ir.Value, type_: ir.Type) -> ir.Value:
    return value if value.type == type_ else stablehlo.convert(type_, value)

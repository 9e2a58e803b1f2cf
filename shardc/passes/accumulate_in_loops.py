"""Let loops over layers add to the gradient accumulators in place."""

from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.analysis.loops.row_loop import RowLoop, row_loop
from shardc.ir.attributes import SHARDING, VALUE, arg_attrs, result_attrs
from shardc.ir.pass_manager import Pass
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import block_terminator, body, defining_op, functions, terminator
from shardc.rewrite.microbatches.ops import with_shape


@dataclass(frozen=True)
class AccumulateInLoops(Pass):
    """Makes loops that compute gradients carry the accumulators that the gradients are added to.

    The backward loop of a scanned network stacks or sums the gradients of its layers for one
    microbatch; the result is then added to the accumulator, so both are live. After this pass the
    loop carries the accumulator itself and adds each row to the accumulator's row, in the same
    order; a sum over layers is added to the accumulator term by term. Works on stage functions: an
    accumulator is an argument that is also returned under its own `shardc.value`. A second run
    changes nothing.

        %g = while (%c = %zeros) { %c' = dynamic_update_slice %c, %row, %i }
        %total = add %acc, %g
    becomes
        %total = while (%c = %acc) {
          %old = dynamic_slice %c, %i
          %new = add %old, %row
          %c' = dynamic_update_slice %c, %new, %i }
    """

    name = "shardc-accumulate-in-loops"
    never_refuses = "a sum that is not added to an accumulator at once is left alone"

    def apply(self, module: ir.Operation) -> None:
        known: dict[ir.Value, RowLoop | None] = {}
        for function in functions(module):
            arguments = {
                attrs[VALUE]: value
                for value, attrs in zip(body(function).arguments, arg_attrs(function), strict=True)
                if VALUE in attrs
            }
            totals = [
                (arguments[attrs[VALUE]], total)
                for total, attrs in zip(
                    terminator(function).operands, result_attrs(function), strict=True
                )
                if VALUE in attrs and attrs[VALUE] in arguments
            ]
            for accumulator, total in totals:
                _accumulate(accumulator, total, known)


def _accumulate(
    accumulator: ir.Value, total: ir.Value, known: dict[ir.Value, RowLoop | None]
) -> None:
    """Makes the loop that computes the addend carry the accumulator, if there is such a loop."""
    add = defining_op(total)
    if add is None or add.name != "stablehlo.add" or not _is_used_once(accumulator):
        return
    old, value = add.operands
    convert = defining_op(value)
    if convert is not None and convert.name == "stablehlo.convert" and _is_used_once(value):
        value = convert.operands[0]
    loop = defining_op(value)
    if old != accumulator or loop is None or not _is_used_once(value):
        return
    if loop.name != "stablehlo.while" or SHARDING in loop.attributes:
        return
    p = ir.OpResult(value).result_number
    name = loop.results[0]  # stable, whatever the loop's initial values
    if name not in known:
        known[name] = row_loop(loop)
    found = known[name]
    if found is None or list(loop.regions[0].blocks[0].arguments[p].uses):
        return
    if p in found.writes and _writes_all(found, p):
        _add_rows(found, p, accumulator.type)
    elif p not in found.sums or value.type != accumulator.type:
        return
    loop.operands[p] = accumulator
    total.replace_all_uses_with(loop.results[p])
    add.erase()
    if convert is not None and convert != loop:
        convert.erase()


def _is_used_once(value: ir.Value) -> bool:
    return len(list(value.uses)) == 1


def _update(found: RowLoop, p: int) -> ir.Operation:
    """The op that writes a row of the stack carried at `p`."""
    update = defining_op(block_terminator(found.body).operands[p])
    assert update is not None, "a carried stack is updated by an op"
    return update


def _writes_all(found: RowLoop, p: int) -> bool:
    """Whether a row spans all other dims of the stack."""
    stack, row = (list(shape_of(value)) for value in list(_update(found, p).operands)[:2])
    stack[found.writes[p]] = 1
    return stack == row


def _add_rows(found: RowLoop, p: int, accumulator: ir.Type) -> None:
    """Makes the loop add rows to the stack carried at `p`, in the accumulator's type."""
    loop, update = found.loop, _update(found, p)
    carried, row, *starts = update.operands
    for block in (region.blocks[0] for region in loop.regions):
        block.arguments[p].set_type(accumulator)
    update.results[0].set_type(accumulator)
    loop.results[p].set_type(accumulator)
    with ir.InsertionPoint(update), update.location:
        part = with_shape(carried, shape_of(row))
        if row.type != part:
            row = stablehlo.ConvertOp(part, row).result
        sizes = ir.DenseI64ArrayAttr.get(list(shape_of(row)))
        old = stablehlo.DynamicSliceOp(carried, starts, sizes).result
        update.operands[1] = stablehlo.AddOp(old, row).result

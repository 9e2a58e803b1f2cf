"""Drops results of functions that a call can compute by itself."""

from collections.abc import Sequence

from jax.extend.mlir import ir

from shardc.ir.attributes import result_attrs, set_result_attrs
from shardc.ir.calls import CALL
from shardc.ir.clone import clone_op, inputs
from shardc.ir.walk import ops, terminator
from shardc.rewrite.calls.function_signature import return_values, update_type

_MOST_OPS = 16  # to make a result beside each call instead


def drop_results(function: ir.Operation, calls: Sequence[ir.Operation]) -> None:
    """Drops the results of a function that no call uses, that are arguments, or that depend on no
    argument and take few ops, which then stand before each call. A call without results disappears.

    Args:
        calls: all calls of the function; they are replaced.
    """
    returned = list(terminator(function).operands)
    free = _without_arguments(function)
    kept = []
    for position, value in enumerate(returned):
        if isinstance(value, ir.BlockArgument):
            for call in calls:
                call.results[position].replace_all_uses_with(call.operands[value.arg_number])
        elif (slice_ := _slice(function, value, free)) is not None:
            for call in calls:
                if _is_used(call.results[position]):
                    _repeat(slice_, call, position, value)
        elif any(_is_used(call.results[position]) for call in calls):
            kept.append(position)
    if len(kept) == len(returned):
        return
    attrs = result_attrs(function)
    return_values(function, [returned[p] for p in kept])
    update_type(function)
    set_result_attrs(function, [attrs[p] for p in kept])
    for call in calls:
        if kept:
            _replace(call, kept)
        else:
            call.erase()


def _is_used(value: ir.Value) -> bool:
    return next(iter(value.uses), None) is not None


def _without_arguments(function: ir.Operation) -> set[ir.Value]:
    """The values of a function's block that depend on none of its arguments."""
    found: set[ir.Value] = set()
    for op in ops(function):
        if all(value in found for value in inputs(op)):
            found.update(op.results)
    return found


def _slice(
    function: ir.Operation, value: ir.Value, free: set[ir.Value]
) -> list[ir.Operation] | None:
    """The ops behind a value that depends on no arguments, in order; None if they are many, or if
    there are calls among them."""
    needed = {value}
    found = []
    for op in reversed(ops(function)) if value in free else ():
        if needed.intersection(op.results):
            found.append(op)
            needed.update(inputs(op))
    if not 0 < len(found) <= _MOST_OPS or any(op.name == CALL for op in found):
        return None
    return found[::-1]


def _repeat(
    defining_op: Sequence[ir.Operation], call: ir.Operation, position: int, value: ir.Value
) -> None:
    values: dict[ir.Value, ir.Value] = {}
    with ir.InsertionPoint(call), call.location:
        for op in defining_op:
            values.update(zip(op.results, clone_op(op, values).results, strict=True))
    call.results[position].replace_all_uses_with(values[value])


def _replace(call: ir.Operation, kept: Sequence[int]) -> None:
    with ir.InsertionPoint(call), call.location:
        new = ir.Operation.create(
            call.name,
            results=[call.results[p].type for p in kept],
            operands=list(call.operands),
            attributes={name: call.attributes[name] for name in call.attributes},
        )
    for p, result in zip(kept, new.results, strict=True):
        call.results[p].replace_all_uses_with(result)
    call.erase()

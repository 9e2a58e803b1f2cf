"""Floats whose extremes, or other selected elements, a loop carries."""

from collections import ChainMap
from collections.abc import Collection, MutableMapping

from jax.extend.mlir import ir

from shardc.analysis.loops.propagate_marks import of_regions, propagated
from shardc.analysis.loops.row_loop import used_alone
from shardc.analysis.program.op_classes import CHEAP, IDENTITIES, RANDOM, chooses
from shardc.ir.calls import CALL
from shardc.ir.clone import inputs
from shardc.ir.effects import is_host_call, must_run_once
from shardc.ir.tensor_types import is_float
from shardc.ir.walk import block_terminator, defining_op, ops, ops_of, walk

Sources = MutableMapping[ir.Value, frozenset[ir.Operation]]


def may_round(op: ir.Operation) -> bool:
    """Whether two copies of an op's floats may differ in their last bits."""
    return not (chooses(op) or op.name in CHEAP or op.name in IDENTITIES)


def carried_invariants(loop: ir.Operation) -> list[ir.Operation]:
    """Ops of a loop's body that compute the same floats in every iteration, and whose elements
    later iterations receive (the largest so far, say).

    One device computes the same bits every time. Pieces of the loop on several stages may not.
    """
    body = loop.regions[1].blocks[0]
    made = [op for op in invariant_ops(body) if may_round(op)]
    marks: Sources = {v: frozenset([op]) for op in made for v in op.results if is_float(v)}
    carried = _carried(loop, marks) if marks else ()
    return [op for op in made if op in carried]


def carried_sources(function: ir.Operation, among: Collection[ir.Operation]) -> list[ir.Operation]:
    """The ops in `among` whose floats a loop carries elements of; all are at the top level of
    `function`."""
    marks: Sources = {}
    found: set[ir.Operation] = set()
    for op in ops(function):
        if op.name == "stablehlo.while":
            found |= _carried(op, marks)
        own = frozenset([op] if op in among else [])
        for result, handed in zip(op.results, propagated(op, marks, chooses), strict=True):
            if is_float(result) and (own or handed):
                marks[result] = own | handed
    return [op for op in ops(function) if op in found]


def _carried(loop: ir.Operation, marks: Sources) -> set[ir.Operation]:
    """The sources whose elements an iteration may pass to the next. Stacks that iterations only
    write to do not count."""
    inside: Sources = ChainMap({}, marks)
    of_regions(loop, inside, chooses)
    body = loop.regions[1].blocks[0]
    ends = block_terminator(body).operands
    met = [end for a, end in zip(body.arguments, ends, strict=True) if not _is_stacked(a, end)]
    return set().union(*(inside.get(end, ()) for end in met))


def invariant_ops(body: ir.Block) -> list[ir.Operation]:
    """The loop-invariant ops of a loop's body that may run outside it."""
    varying: set[ir.Value] = set(body.arguments)
    found = []
    for op in ops_of(body)[:-1]:
        if varying.isdisjoint(inputs(op)) and all(map(_may_move, [op, *walk(op)])):
            found.append(op)
        else:
            varying.update(op.results)
    return found


def _may_move(op: ir.Operation) -> bool:
    return not (must_run_once(op) or is_host_call(op) or op.name == CALL or op.name in RANDOM)


def _is_stacked(argument: ir.Value, end: ir.Value) -> bool:
    """Whether iterations only write to a carried value."""
    op = defining_op(end)
    written = op is not None and op.name == "stablehlo.dynamic_update_slice"
    return written and used_alone(argument, end)

"""Operands of float comparisons, which must not mix originals with copies.

A value rematerialized in another function is partitioned and compiled separately, and may differ in
the last bits. JAX's gradient of a maximum tests which elements equal the maximum; if one side is
the original and the other a copy, none may be equal.
"""

from collections.abc import Callable, Collection

from jax.extend.mlir import ir

from shardc.analysis.program.def_use import Dataflow
from shardc.analysis.program.op_classes import (
    CHEAP,
    FUSED,
    IDENTITIES,
    MOVES,
    ON_THE_FLY,
    OPAQUE,
    chooses,
    is_extreme,
)
from shardc.ir.calls import CALL
from shardc.ir.clone import inputs
from shardc.ir.constants import splat
from shardc.ir.tensor_types import is_float
from shardc.ir.walk import defining_op, walk

# Where two values meet so that it matters whether they are equal to the last bit.
MEETING = frozenset(("stablehlo.compare", "stablehlo.subtract", "stablehlo.divide"))
_HANDS_ON = (MOVES | ON_THE_FLY | {"stablehlo.select"}) - OPAQUE - {CALL}


def compared_makers(
    op: ir.Operation, may_pass: Callable[[ir.Operation], bool]
) -> set[ir.Operation]:
    """The ops that define the floats that `op`, or an op nested in it, compares; without constants.

    Args:
        may_pass: elementwise ops to look through; ops that only move elements are always looked
            through.
    Returns:
        Empty if nothing is compared, or only with constants.
    """
    if not any(_compares_floats(each) for each in [op, *walk(op)]):
        return set()
    found: set[ir.Operation] = set()
    seen: set[ir.Operation] = set()
    todo = inputs(op)
    while todo:
        value = todo.pop()
        maker = defining_op(value)
        if maker is None or maker in seen or not is_float(value) or splat(value) is not None:
            continue
        seen.add(maker)
        if maker.name in _HANDS_ON or (maker.name in FUSED and may_pass(maker)):
            todo += inputs(maker)
        else:
            found.add(maker)
    return found


def torn_extremes(
    chain: Collection[ir.Operation], again: Collection[ir.Operation]
) -> set[ir.Operation]:
    """Maxima and the like that are not made again, though what they choose from is; with the ops
    in between. They are to be made again, too: the difference of an element and its maximum is zero
    only if both are of one time.

    Args:
        chain: ops in their order.
        again: those of them that are made again.
    """
    found: set[ir.Operation] = set()
    choosing: dict[ir.Operation, set[ir.Operation]] = {}  # chooses from what is made again: by what
    for op in chain:
        if not chooses(op):
            continue
        makers = [maker for value in inputs(op) if (maker := defining_op(value)) is not None]
        if any(m in choosing or (m in again and not chooses(m)) for m in makers):
            choosing[op] = {op}.union(*(choosing[m] for m in makers if m in choosing))
            if is_extreme(op) or not found.isdisjoint(makers):
                found |= choosing[op]
    return found - set(again)


def compared_clones(flow: Dataflow, cloned: Collection[int]) -> set[int]:
    """Cloned ops whose floats meet what was chosen from another clone of them.

    On one device a chosen element (a maximum, a row) has the bits of its source. Clones are
    partitioned and compiled separately, and may differ in the last bits. Here an op that runs once
    chooses from a clone, and both reach, through elementwise ops and moves, an op of `MEETING`.

    Args:
        cloned: ops with a clone in every function that uses them.
    """
    sources = _chosen_clones(flow, cloned)
    if not sources:
        return set()
    met: set[int] = set()
    # Value -> cloned op -> the first op on each way from there that runs once; -1: none does.
    ways: dict[ir.Value, dict[int, set[int]]] = {}
    for i, op in enumerate(flow.ops):
        if op.name in IDENTITIES:
            ways |= {
                result: ways.get(operand, {})
                for operand, result in zip(op.operands, op.results, strict=True)
            }
            continue
        found: dict[int, set[int]] = {i: {-1}} if i in sources else {}
        for value in inputs(op):
            for source, firsts in ways.get(value, {}).items():
                found.setdefault(source, set()).update(firsts)
        torn = {s for s, firsts in found.items() if len(firsts) > 1 and firsts & sources[s]} - met
        if torn and any(_meets(each) for each in (op, *walk(op))):
            met |= torn
        if i not in cloned:
            found = {s: {i if f < 0 else f for f in firsts} for s, firsts in found.items()}
        if op.name in FUSED or chooses(op):
            ways |= dict.fromkeys(op.results, found)
    return met


def _chosen_clones(flow: Dataflow, cloned: Collection[int]) -> dict[int, set[int]]:
    """Cloned ops that may round -> the ops that run once and choose from their floats."""
    sources: dict[int, set[int]] = {}
    chosen: dict[ir.Value, set[int]] = {}  # floats -> the cloned ops whose elements they are
    for i, op in enumerate(flow.ops):
        if op.name in IDENTITIES:
            for operand, result in zip(op.operands, op.results, strict=True):
                chosen[result] = chosen.get(operand, set())
        elif chooses(op):
            found = set().union(*(chosen.get(value, ()) for value in inputs(op)))
            if i in cloned:
                chosen |= dict.fromkeys((r for r in op.results if is_float(r)), found)
            else:
                for source in found if any(map(is_float, op.results)) else ():
                    sources.setdefault(source, set()).add(i)
        elif i in cloned and op.name not in CHEAP:
            chosen |= {result: {i} for result in op.results if is_float(result)}
    return sources


def _meets(op: ir.Operation) -> bool:
    return op.name in MEETING and is_float(op.operands[0])


def _compares_floats(op: ir.Operation) -> bool:
    if op.name != "stablehlo.compare":
        return False
    return is_float(op.operands[0]) and all(splat(value) is None for value in op.operands)

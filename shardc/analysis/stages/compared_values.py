"""Operands of float comparisons, which must not mix originals with copies.

A value rematerialized in another function is partitioned and compiled separately, and may differ in
the last bits. JAX's gradient of a maximum tests which elements equal the maximum; if one side is
the original and the other a copy, none may be equal.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

from jax.extend.mlir import ir

from shardc.analysis.loops.propagate_marks import propagated
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
from shardc.ir.walk import CONTROL_FLOW, defining_op, walk

# Where two values meet so that it matters whether they are equal to the last bit.
MEETING = frozenset(("stablehlo.compare", "stablehlo.subtract", "stablehlo.divide"))
_FORWARDS = (MOVES | ON_THE_FLY | {"stablehlo.select"}) - OPAQUE - {CALL}


class Compared(NamedTuple):
    """The floats that an op compares.

    Attributes:
        makers: the ops that define them; none if nothing is compared, or only with constants.
        between: the ops that lead from their results to the comparison.
    """

    makers: set[ir.Operation]
    between: set[ir.Operation]


def compared_floats(op: ir.Operation, may_pass: Callable[[ir.Operation], bool]) -> Compared:
    """The floats that `op`, or an op nested in it, compares; without constants.

    Args:
        may_pass: elementwise ops to look through; ops that only move elements are always looked
            through.
    """
    found = Compared(set(), set())
    if not any(_compares_floats(each) for each in [op, *walk(op)]):
        return found
    seen: set[ir.Operation] = set()
    todo = inputs(op)
    while todo:
        value = todo.pop()
        maker = defining_op(value)
        if maker is None or maker in seen or not is_float(value) or splat(value) is not None:
            continue
        seen.add(maker)
        if maker.name in _FORWARDS or (maker.name in FUSED and may_pass(maker)):
            found.between.add(maker)
            todo += inputs(maker)
        else:
            found.makers.add(maker)
    return found


def torn_extremes(
    chain: Collection[ir.Operation], again: Collection[ir.Operation]
) -> set[ir.Operation]:
    """Extremes that are not rematerialized although the values they select from are, with the ops
    in between. They must be rematerialized, too: the difference of an element and its maximum is
    zero only if both are original or both rematerialized.

    Args:
        chain: ops in order.
        again: the ops among them that are rematerialized.
    """
    found: set[ir.Operation] = set()
    choosing: dict[
        ir.Operation, set[ir.Operation]
    ] = {}  # selects from rematerialized values: by which ops
    for op in chain:
        if not chooses(op):
            continue
        makers = [maker for value in inputs(op) if (maker := defining_op(value)) is not None]
        if any(m in choosing or (m in again and not chooses(m)) for m in makers):
            choosing[op] = {op}.union(*(choosing[m] for m in makers if m in choosing))
            if is_extreme(op) or not found.isdisjoint(makers):
                found |= choosing[op]
    return found - set(again)


def kept_for_loops(
    chain: Collection[ir.Operation], again: Collection[ir.Operation]
) -> set[ir.Operation]:
    """The ops of `again` whose floats pass through a loop or branch that is not rematerialized.

    They must be kept: elements that the loop has selected from them may meet them.

    Args:
        chain, again: as for `torn_extremes`.
    """
    if not any(op.name in CONTROL_FLOW and op not in again for op in chain):
        return set()
    found: set[ir.Operation] = set()
    made: dict[ir.Value, frozenset[ir.Operation]] = {}  # by which of `again`
    for op in chain:
        own = frozenset([op] if op in again and not chooses(op) else [])
        for result, handed in zip(op.results, propagated(op, made, chooses), strict=True):
            if is_float(result) and (own or handed):
                made[result] = own | handed
                if op.name in CONTROL_FLOW and op not in again:
                    found |= handed
    return found


def compared_clones(flow: Dataflow, cloned: Collection[int]) -> set[int]:
    """Cloned ops whose floats meet an element selected from another clone.

    On one device a selected element (a maximum, a row) has the bits of its source. Clones are
    partitioned and compiled separately, and may differ in the last bits. Found are clones from
    which an op that runs once selects, if both the clone and the selection reach an op of `MEETING`
    through elementwise ops and moves. Loops and branches count as the ops inside them do.

    Args:
        cloned: ops with a clone in every function that uses them.
    """
    sources = _chosen_clones(flow, cloned)
    if not sources:
        return set()
    met: set[int] = set()
    # (cloned op, the first op on a path from it that runs once; -1: none does)
    ways: dict[ir.Value, frozenset[tuple[int, int]]] = {}
    on_ways: set[int] = set()  # ops on such a path
    for i, op in enumerate(flow.ops):
        own = frozenset([(i, -1)] if i in sources else [])
        if not own and on_ways.isdisjoint(flow.op_inputs[i]):
            continue
        firsts: dict[int, set[int]] = {}
        for source, first in frozenset().union(*(ways.get(value, ()) for value in flow.inputs[i])):
            firsts.setdefault(source, set()).add(first)
        torn = {s for s, found in firsts.items() if len(found) > 1 and found & sources[s]} - met
        if torn and any(_meets(each) for each in (op, *walk(op))):
            met |= torn
        runs_once = i not in cloned and op.name not in IDENTITIES
        handed = propagated(op, ways, _is_passed, flow.inputs[i])
        for result, found in zip(op.results, handed, strict=True):
            if runs_once:
                found = frozenset((s, i if first < 0 else first) for s, first in found)
            if own or found:
                ways[result] = own | found
                on_ways.add(i)
    return met


def _is_passed(op: ir.Operation) -> bool:
    return op.name in FUSED or chooses(op)


def _chosen_clones(flow: Dataflow, cloned: Collection[int]) -> dict[int, set[int]]:
    """Cloned ops that may round -> the ops that run once and select from their floats."""
    sources: dict[int, set[int]] = {}
    chosen: dict[ir.Value, frozenset[int]] = {}  # floats -> the cloned ops they were selected from
    given: set[int] = set()  # ops with such floats
    for i, op in enumerate(flow.ops):
        handed = [frozenset[int]()] * len(op.results)
        if not given.isdisjoint(flow.op_inputs[i]):
            handed = propagated(op, chosen, chooses, flow.inputs[i])
        rounds = not (chooses(op) or op.name in CHEAP or op.name in IDENTITIES)
        own = frozenset([i] if i in cloned and rounds else [])
        for result, found in zip(op.results, handed, strict=True):
            if not (own or found) or not is_float(result):
                continue
            if i in cloned or op.name in IDENTITIES:
                chosen[result] = own | found
                given.add(i)
            else:
                for source in found:
                    sources.setdefault(source, set()).add(i)
    return sources


def _meets(op: ir.Operation) -> bool:
    return op.name in MEETING and is_float(op.operands[0])


def _compares_floats(op: ir.Operation) -> bool:
    if op.name != "stablehlo.compare":
        return False
    return is_float(op.operands[0]) and all(splat(value) is None for value in op.operands)

"""Operands of float comparisons, which must not mix originals with rematerialized copies.

A value rematerialized in another function is partitioned and compiled separately, and may differ in
the last bits. JAX's gradient of a maximum tests which elements equal the maximum; if one side is
the original and the other a copy, none may be equal.
"""

from collections.abc import Callable, Collection

from jax.extend.mlir import ir

from shardc.analysis.program.op_classes import FUSED, MOVES, ON_THE_FLY, OPAQUE, chooses, is_extreme
from shardc.ir.calls import CALL
from shardc.ir.clone import inputs
from shardc.ir.constants import splat
from shardc.ir.tensor_types import is_float
from shardc.ir.walk import defining_op, walk

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


def _compares_floats(op: ir.Operation) -> bool:
    if op.name != "stablehlo.compare":
        return False
    return is_float(op.operands[0]) and all(splat(value) is None for value in op.operands)

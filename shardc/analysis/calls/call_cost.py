"""The cost of one call of a function."""

from itertools import accumulate

from jax.extend.mlir import ir

from shardc.analysis.program.flops import ZERO, heavy_flops, op_cost
from shardc.analysis.program.liveness import Liveness, is_in_place
from shardc.analysis.program.op_classes import ON_THE_FLY
from shardc.ir.calls import CallCost, facts_of
from shardc.ir.tensor_types import num_bytes
from shardc.ir.walk import ops, planned_ops, terminator


def call_cost(function: ir.Operation) -> CallCost:
    """FLOPs and bytes of a function; its own calls already have summaries."""
    total = ZERO
    for op in ops(function):
        total = total.plus(op_cost(op))
    heavy = sum(map(heavy_flops, ops(function)))
    return CallCost(*total, heavy, _inner_bytes(function))


def _inner_bytes(function: ir.Operation) -> int:
    """Peak bytes of live values that the function computes and does not return."""
    inside = planned_ops(function)
    live, returned = Liveness(function), set(terminator(function).operands)
    changes = [0] * (len(inside) + 1)
    for time, op in enumerate(inside):
        facts = facts_of(op)
        if facts is not None:
            changes[time] += facts.cost.inner_bytes
            changes[time + 1] -= facts.cost.inner_bytes
        if op.name in ON_THE_FLY or is_in_place(op):
            continue
        for result in op.results:
            if result not in returned:
                changes[time] += num_bytes(result)
                changes[live.last_use(result, time) + 1] -= num_bytes(result)
    return max(accumulate(changes), default=0)

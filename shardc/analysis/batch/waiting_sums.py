"""Loops whose iterations need complete sums over the batch, and which sums."""

from dataclasses import dataclass, replace

from jax.extend.mlir import ir

from shardc.analysis.batch.batch_state import State
from shardc.analysis.batch.control_flow import RegionFlow, analyse_loop
from shardc.analysis.batch.microbatch import BatchFlow
from shardc.analysis.loops.row_loop import RowLoop, row_loop
from shardc.ir.attributes import SHARDING
from shardc.ir.tensor_types import num_elements
from shardc.ir.walk import defining_op


@dataclass(frozen=True)
class WaitingSums:
    """A loop over layers that could work on microbatches if it needed no complete sums.

    Attributes:
        loop: its iterations.
        sums: values of the body that are sums over the batch; none of them depends on a value that
            waits for one.
        late: positions of the carried values that wait for them.
    """

    loop: RowLoop
    sums: list[ir.Value]
    late: list[int]


def waiting_sums(flow: BatchFlow) -> WaitingSums | None:
    """The first refused loop of a step that fission could split; None if there is none: iterations
    need more of the batch than sums, say, or a sum depends on earlier iterations."""
    graph = flow.program.graph
    for i, op in enumerate(graph.ops):
        states = [replace(flow.states[u], sweep=0) for u in graph.uses[i]]
        if op.name == "stablehlo.while" and i not in flow.loops and any(s.varies for s in states):
            found = _of_loop(flow, i, states)
            if found is not None:
                return found
    return None


def _of_loop(flow: BatchFlow, i: int, states: list[State]) -> WaitingSums | None:
    graph, op = flow.program.graph, flow.program.graph.ops[i]
    count = len(op.operands)
    outside = [graph.values[u] for u in graph.uses[i][count:]]
    captured = dict(zip(outside, states[count:], strict=True))
    found = analyse_loop(op, states[:count], captured, flow.program.inner_rules, may_wait=True)
    loop = row_loop(op)
    if found is None or loop is None or not found.waiting or SHARDING in op.attributes:
        return None  # its sharding attribute lists all carried values
    sums = list(dict.fromkeys(_nearer(value, found) for value in found.waiting))
    late = [p for p, state in enumerate(found.carries) if state.sweep > 0]
    inside = [*loop.body.arguments, *(r for each in loop.body for r in each.operation.results)]
    return WaitingSums(loop, sums, late) if late and set(sums) <= set(inside) else None


def _nearer(value: ir.Value, found: RegionFlow) -> ir.Value:
    """The sum that `value` is computed from by ops of one partial operand that do not shrink it."""
    op = defining_op(value)
    while op is not None and op.name != "stablehlo.convert" and len(op.results) == 1:
        partial = [v for v in op.operands if v in found.states and found.states[v].is_partial]
        if len(partial) != 1 or num_elements(partial[0]) > num_elements(value):
            break
        value = partial[0]
        op = defining_op(value)
    return value

"""Loops whose iterations need complete sums over the batch, and which sums."""

from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.batch.control_flow import RegionFlow
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
    """The first loop of a step that fission could split; None if there is none: iterations need
    more of the batch than sums, say, or a sum depends on earlier iterations."""
    for i, found in flow.waiting_loops.items():
        if any(flow.states[u].varies for u in flow.program.graph.uses[i]):
            sums = _of_loop(flow.program.graph.ops[i], found)
            if sums is not None:
                return sums
    return None


def _of_loop(op: ir.Operation, found: RegionFlow) -> WaitingSums | None:
    loop = row_loop(op)
    if loop is None or SHARDING in op.attributes:
        return None  # its sharding attribute lists all carried values
    sums = list(dict.fromkeys(_nearer(value, found) for value in found.waiting or ()))
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

"""Which of the forward values that a backward pass computes again are worth keeping instead."""

from collections.abc import Collection

from jax.extend.mlir import ir

from shardc.analysis.program.flops import op_cost
from shardc.analysis.program.fusion import is_fused
from shardc.analysis.residency.recomputed import Recomputation
from shardc.analysis.stages.backward_split import one_time
from shardc.cost.model import CostModel
from shardc.ir.clone import inputs
from shardc.ir.tensor_types import dtype_of, num_bytes
from shardc.plan.priced_work import Work
from shardc.solver.pipeline.kept_values import Maker, kept_values

UNITS = 1 << 40  # the costs of all ops and values in sum, for the solver's integers


def worth_keeping(found: Recomputation, price: float, model: CostModel) -> set[ir.Value]:
    """The results of `found.again` to be taken from the forward pass.

    The others are recomputed from these. What is kept costs `price` times the time in which the
    device writes it and reads it back, and what is recomputed costs its time: the exact minimum
    of the sum, by a minimum cut. The lower the price, the more is kept.
    """
    made: list[ir.Value] = [value for op in found.again for value in op.results]
    number = {value: i for i, value in enumerate(made)}
    wanted = _wanted(found)
    keepable = {v for v, original in found.originals.items() if original.name}
    seconds = {op: op_seconds(op, model) for op in found.again}
    moving = {v: price * _moving_s(v, model) for v in keepable}
    unit = (sum(seconds.values()) + sum(moving.values())) / UNITS or 1.0
    costs = [round(moving[v] / unit) if v in keepable else 2 * UNITS for v in made]
    makers = [
        Maker(
            tuple(number[value] for value in inputs(op) if value in number),
            tuple(number[value] for value in op.results),
            round(seconds[op] / unit) + 1,
        )
        for op in found.again
    ]
    chosen = kept_values(costs, makers, [number[value] for value in made if value in wanted])
    kept = {made[i] for i in chosen}
    return consistent(found, kept) if kept else kept


def consistent(found: Recomputation, kept: Collection[ir.Value]) -> set[ir.Value]:
    """`kept`, changed so that no comparison mixes a forward value with one that is computed again;
    nothing if that takes values that cannot be kept."""
    made: set[ir.Value] = {value for op in found.again for value in op.results}
    outside = {value for op in found.again for value in inputs(op)} - made
    chosen = one_time({*kept, *outside}, found.block, found.again, _wanted(found)) & made
    names = [found.originals[value].name for value in chosen if value in found.originals]
    return chosen if len(names) == len(chosen) and all(names) else set()


def _wanted(found: Recomputation) -> set[ir.Value]:
    """The values that other ops than `again` use."""
    again = set(found.again)
    return {
        value
        for op in found.again
        for value in op.results
        if any(_in_block(use.owner.operation, op) not in again for use in value.uses)
    }


def _in_block(op: ir.Operation, other: ir.Operation) -> ir.Operation:
    """The ancestor of `op` (or itself) in the block of `other`."""
    while op.block != other.block:
        assert op.parent is not None, "a value is used in its own block, or in regions there"
        op = op.parent.operation
    return op


def op_seconds(op: ir.Operation, model: CostModel) -> float:
    """Seconds of an op on one device; of one that fuses with its neighbours, of its arithmetic."""
    cost = op_cost(op)
    moved = 0 if is_fused(op) else cost.bytes_read + cost.bytes_written
    return model.op_s(Work(dtype_of(op.results[0]), cost.flops, moved))


def _moving_s(value: ir.Value, model: CostModel) -> float:
    """Seconds to write a value and to read it."""
    return model.op_s(Work(dtype_of(value), 0, 2 * num_bytes(value)))

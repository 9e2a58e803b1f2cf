"""Which of the forward values that a backward pass computes again are worth keeping instead."""

from collections.abc import Collection, Set

from jax.extend.mlir import ir

from shardc.analysis.program.flops import op_cost
from shardc.analysis.program.fusion import is_fused
from shardc.analysis.residency.recomputed import Recomputation
from shardc.analysis.stages.backward_split import makers_of, one_time
from shardc.analysis.stages.compared_values import Compared, compared_floats
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

    A comparison may rule that minimum out (`consistent`). Then the better of two choices is taken:
    the minimum with all that the comparison needs, and the least sum that keeps nothing compared.
    """
    choice = _Choice(found, price, model)
    least = choice.least()
    first = consistent(found, least) if least else least
    if first == least:
        return first
    compared = {
        value
        for each in _comparisons(found).values()
        for op in each.makers | each.between
        for value in op.results
    }
    least = choice.least(compared)
    second = consistent(found, least) if least else least
    return min(first, second, key=choice.cost)


class _Choice:
    """What a block keeps of the values that it computes again, at a price."""

    def __init__(self, found: Recomputation, price: float, model: CostModel) -> None:
        self.again, self.wanted = found.again, _wanted(found)
        self.made: list[ir.Value] = [value for op in found.again for value in op.results]
        self.seconds = {op: op_seconds(op, model) for op in found.again}
        keepable = [v for v, original in found.originals.items() if original.name]
        self.moving = {v: price * moving_seconds(v, model) for v in keepable}

    def least(self, never: Collection[ir.Value] = ()) -> set[ir.Value]:
        """The cheapest values to keep, none of `never` among them."""
        number = {value: i for i, value in enumerate(self.made)}
        unit = (sum(self.seconds.values()) + sum(self.moving.values())) / UNITS or 1.0
        costs = [
            round(self.moving[v] / unit) if v in self.moving and v not in never else 2 * UNITS
            for v in self.made
        ]
        makers = [
            Maker(
                tuple(number[value] for value in inputs(op) if value in number),
                tuple(number[value] for value in op.results),
                round(self.seconds[op] / unit) + 1,
            )
            for op in self.again
        ]
        needed = [number[value] for value in self.made if value in self.wanted]
        return {self.made[i] for i in kept_values(costs, makers, needed)}

    def cost(self, kept: Collection[ir.Value]) -> float:
        """Seconds of what runs again, and the price of what is kept."""
        ran = makers_of(self.wanted.difference(kept), kept)
        return sum(self.seconds.get(op, 0.0) for op in ran) + sum(self.moving[v] for v in kept)


def consistent(found: Recomputation, kept: Collection[ir.Value]) -> set[ir.Value]:
    """`kept`, changed so that no comparison mixes a forward value with one that is computed again;
    nothing if that takes values that cannot be kept."""
    again = set(found.again)
    made: set[ir.Value] = {value for op in found.again for value in op.results}
    outside = {value for op in found.again for value in inputs(op)} - made
    wanted = _wanted(found)
    whole = _comparisons(found)
    torn: list[ir.Operation] = []
    chosen = set(kept)
    while True:
        chosen = one_time({*kept, *outside}, torn, found.again, wanted) & made
        more = [op for op, each in whole.items() if _is_torn(each, again, chosen)]
        if not more:
            break
        torn += more
        for op in more:
            del whole[op]
    names = [found.originals[value].name for value in chosen if value in found.originals]
    return chosen if len(names) == len(chosen) and all(names) else set()


def _comparisons(found: Recomputation) -> dict[ir.Operation, Compared]:
    """The ops of a block that compare floats with others, and what they compare."""
    each = {op: compared_floats(op, lambda _: False) for op in found.block}
    return {op: compared for op, compared in each.items() if len(compared.makers) > 1}


def _is_torn(compared: Compared, again: Set[ir.Operation], kept: Set[ir.Value]) -> bool:
    """Whether a comparison sees a forward value: a kept one, or one that is not computed again."""
    ways = compared.makers | compared.between
    return not compared.makers <= again or any(not kept.isdisjoint(op.results) for op in ways)


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


def moving_seconds(value: ir.Value, model: CostModel) -> float:
    """Seconds to write a value and to read it."""
    return model.op_s(Work(dtype_of(value), 0, 2 * num_bytes(value)))

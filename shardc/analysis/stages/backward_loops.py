"""Which loops of a stage's backward compute both results that other stages wait for and others."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.loops.row_loop import row_loop
from shardc.analysis.program.counted_loop import CountedLoop
from shardc.analysis.program.flops import heavy_flops
from shardc.analysis.stages.backward_split import (
    awaited_results,
    kept_between,
    makers_of,
    one_time,
)
from shardc.cost.model import CostModel
from shardc.ir.attributes import SHARDING
from shardc.ir.clone import inputs
from shardc.ir.walk import block_terminator, defining_op, ops, ops_of, terminator
from shardc.rules.allowed_factors import BARRIER


@dataclass(frozen=True)
class LoopSplit:
    """A loop that fission can split into two.

    Attributes:
        counted: how it counts.
        kept: values of its body that the first loop stashes per iteration for the second.
        late: positions of the carried values that only the second loop computes.
    """

    loop: ir.Operation
    counted: CountedLoop
    kept: list[ir.Value]
    late: list[int]


def next_loop_split(
    function: ir.Operation, functions: Sequence[ir.Operation], model: CostModel
) -> LoopSplit | None:
    """A loop of a backward function that has products both for results that other stages wait for
    and for others, such as a scan over layers, with input gradients and weight gradients. None if
    there is none.

    Args:
        functions: all stage functions.
    """
    returned = list(terminator(function).operands)
    awaited = [returned[r] for r in awaited_results(function, functions)]
    urgent = makers_of(awaited)
    used = {value for op in urgent for value in inputs(op)} | set(awaited)
    for loop in reversed(ops(function)):  # what is behind decides what is urgent of one
        if loop in urgent and loop.name == "stablehlo.while" and SHARDING not in loop.attributes:
            split = _split(loop, used, model)
            if split is not None:
                return split
    return None


def _split(loop: ir.Operation, used: Collection[ir.Value], model: CostModel) -> LoopSplit | None:
    found = row_loop(loop)
    if found is None:
        return None
    body, handed = found.body, list(block_terminator(found.body).operands)
    carried: list[ir.Value] = list(body.arguments)
    asked = [p for p, a in enumerate(loop.regions[0].blocks[0].arguments) if list(a.uses)]
    first = _closed({p for p, r in enumerate(loop.results) if r in used} | set(asked), body, handed)
    late = [p for p in range(len(handed)) if p not in first]
    early = _needed([handed[p] for p in first], body)
    rest = _needed([handed[p] for p in late], body)
    own = [op for op in ops_of(body) if rest.intersection(op.results)]
    if not any(heavy_flops(op) for op in own if early.isdisjoint(op.results)):
        return None
    # The second loop counts for itself; all else that the first carries it has to be given.
    counters = {carried[p] for p in found.counted.counters}
    times = {carried[p]: 0 if carried[p] in counters else 2 for p in first}
    shared = [op for op in own if not early.isdisjoint(op.results)]
    wanted = {v for op in own if early.isdisjoint(op.results) for v in inputs(op)}
    wanted.update(handed[p] for p in late)
    kept = one_time(kept_between(times, shared, wanted, model), own, shared, wanted)
    order = [*carried, *(value for op in ops_of(body) for value in op.results)]
    return LoopSplit(loop, found.counted, [v for v in order if v in kept - counters], late)


def _closed(positions: set[int], body: ir.Block, handed: Sequence[ir.Value]) -> set[int]:
    """`positions` and all carried positions that later iterations need to compute them."""
    carried = list(body.arguments)
    while True:
        needed = _needed([handed[p] for p in positions], body)
        more = {p for p, argument in enumerate(carried) if argument in needed} - positions
        if not more:
            return positions
        positions = positions | more


def _needed(values: Iterable[ir.Value], body: ir.Block) -> set[ir.Value]:
    """All values of a body that `values` depend on within an iteration."""
    found: set[ir.Value] = set()
    todo = list(values)
    while todo:
        value = todo.pop()
        if value in found:
            continue
        found.add(value)
        op = defining_op(value)
        if op is not None and op.block == body:
            is_barrier = op.name == BARRIER
            todo += [op.operands[ir.OpResult(value).result_number]] if is_barrier else inputs(op)
    return found

"""Stacked layers: values of a step with one row per iteration of its layer loops."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from jax.extend.mlir import ir

from shardc.analysis.loops.row_loop import RowLoop, row_loop, row_read
from shardc.analysis.program.flops import is_heavy, op_cost
from shardc.analysis.program.op_classes import NEVER_TWICE
from shardc.ir.attributes import SHARDING
from shardc.ir.constants import splat
from shardc.ir.walk import body, defining_op, main_function, ops, terminator
from shardc.rules.allowed_factors import allowed_factors
from shardc.rules.op_rule import OpRule
from shardc.rules.program_rules import main_rules
from shardc.rules.reducers import splits_into_partial_results


@dataclass
class LoopGroup:
    """Loops over the same stacks: the layers of one network, forward and backward.

    Attributes:
        loops: positions in main, the forward one first.
        trips: iterations of each.
        flops: of all of them.
        first: number of the first iteration, counted over all groups.
        independent: the iterations of its loops interact only through sums.
    """

    loops: list[int]
    trips: int
    flops: int
    first: int = 0
    independent: bool = True


@dataclass
class StackedLayers:
    """The stacks of a step and the loops over them.

    Attributes:
        ops: of main.
        loops: position of a layer loop -> the rows that its iterations access.
        stacks: value -> (the dim of its rows, position of one loop of their group).
        factors: position of an op that can be split along rows -> its factor of the rows.
        rules: of the ops.
        groups: of loops, in program order.
        flops: of the whole step.
        conflicts: values that are stacked along different dims for different ops; the first dim
            counts.
    """

    ops: list[ir.Operation]
    loops: dict[int, RowLoop]
    rules: list[OpRule | None]
    stacks: dict[ir.Value, tuple[int, int]] = field(default_factory=dict)
    factors: dict[int, int] = field(default_factory=dict)
    groups: list[LoopGroup] = field(default_factory=list)
    flops: int = 0
    conflicts: set[ir.Value] = field(default_factory=set)

    def group_of(self, i: int) -> LoopGroup | None:
        """The group whose rows op number `i` can be cut along, or that loop `i` belongs to."""
        if i in self.loops:
            return self._group(i)
        factor, rule = self.factors.get(i), self.rules[i] if self.rules else None
        if factor is None or rule is None:
            return None
        for value, dim, factors in places(self.ops[i], rule):
            if factors == (factor,) and self.stacks.get(value, (-1, -1))[0] == dim:
                return self._group(self.stacks[value][1])
        return None

    def _group(self, loop: int) -> LoopGroup:
        return next(group for group in self.groups if loop in group.loops)


def stacked_layers(module: ir.Operation, aliases: dict[int, int]) -> StackedLayers:
    """Propagates the rows of the stacks that layer loops read and write through light ops.

    A layer loop is a counted loop with a matrix product inside. Rows propagate both ways, so that
    the optimizer's moments of a stacked parameter are stacks, as its gradient is. They do not
    propagate through splats: one splat may be the zeros of several stacks with different row dims.

    Args:
        aliases: argument -> result that is its next state.
    """
    main = main_function(module)
    all_ops = ops(main)
    loops = {}
    for i, op in enumerate(all_ops):
        if op.name == "stablehlo.while" and SHARDING not in op.attributes and is_heavy(op):
            found = row_loop(op)
            if found is not None and found.counted.trips > 1:
                loops[i] = found
    if not loops:
        return StackedLayers(all_ops, {}, [])
    flow = StackedLayers(all_ops, loops, main_rules(module)[0])
    _Follower(flow, main, aliases).run()
    return flow


class _Follower:
    def __init__(self, flow: StackedLayers, main: ir.Operation, aliases: dict[int, int]) -> None:
        self.flow = flow
        self.number = {op: i for i, op in enumerate(flow.ops)}
        self.parent = {i: i for i in flow.loops}
        self.twins: dict[ir.Value, list[ir.Value]] = {}
        returned = terminator(main).operands
        for arg, result in aliases.items():
            argument = body(main).arguments[arg]
            self.twins.setdefault(argument, []).append(returned[result])
            self.twins.setdefault(returned[result], []).append(argument)
        self.waiting: deque[int] = deque()

    def run(self) -> None:
        for i, found in self.flow.loops.items():
            for row, dim in found.reads.items():
                self._mark(row_read(row).operands[0], dim, i)
            for p, dim in found.writes.items():
                self._mark(found.loop.operands[p], dim, i)
                self._mark(found.loop.results[p], dim, i)
        while self.waiting:
            self._visit(self.waiting.popleft())
        self._group()

    def _root(self, i: int) -> int:
        while self.parent[i] != i:
            i = self.parent[i]
        return i

    def _mark(self, value: ir.Value, dim: int, loop: int) -> None:
        if splat(value) is not None:
            return
        if value in self.flow.stacks:
            known, other = self.flow.stacks[value]
            if known != dim:
                self.flow.conflicts.add(value)
            trips = {self.flow.loops[i].counted.trips for i in (other, loop)}
            if known == dim and len(trips) == 1:
                low, high = sorted((self._root(loop), self._root(other)))
                self.parent[high] = low
            return
        self.flow.stacks[value] = (dim, loop)
        if (op := defining_op(value)) is not None:
            self._wait(op)
        for use in value.uses:
            self._wait(use.owner.operation)
        for twin in self.twins.get(value, ()):
            self._mark(twin, dim, loop)

    def _wait(self, op: ir.Operation) -> None:
        if op in self.number:
            self.waiting.append(self.number[op])

    def _visit(self, i: int) -> None:
        op, rule = self.flow.ops[i], self.flow.rules[i]
        if i in self.flow.loops or rule is None:
            return
        found = places(op, rule)
        if i not in self.flow.factors:
            factor = self._factor(op, rule)
            if factor is None:
                return
            self.flow.factors[i] = factor
        chosen = self.flow.factors[i]
        marked = [v for v, d, f in found if f == (chosen,) and self._is_marked(v, d)]
        loop = self.flow.stacks[marked[0]][1]
        for value, dim, factors in found:
            if chosen in factors:
                self._mark(value, dim, loop)

    def _is_marked(self, value: ir.Value, dim: int) -> bool:
        return value in self.flow.stacks and self.flow.stacks[value][0] == dim

    def _factor(self, op: ir.Operation, rule: OpRule) -> int | None:
        """The factor along which `op` can work on rows alone, if a stack has rows there."""
        allowed = allowed_factors(op, rule)
        found = places(op, rule)
        for value, dim, factors in found:
            if len(factors) != 1 or not self._is_marked(value, dim) or not allowed[factors[0]]:
                continue
            factor = factors[0]
            if all(f == (factor,) for _, _, f in found if factor in f) and _is_worthwhile(
                op, rule, factor
            ):
                return factor
        return None

    def _group(self) -> None:
        groups: dict[int, LoopGroup] = {}
        for i, found in self.flow.loops.items():
            group = groups.setdefault(self._root(i), LoopGroup([], found.counted.trips, 0))
            group.loops.append(i)
            group.flops += op_cost(found.loop).flops
            group.independent = group.independent and found.independent
        first = 0
        for group in groups.values():
            group.first = first
            first += group.trips
        self.flow.groups = list(groups.values())
        self.flow.flops = sum(op_cost(op).flops for op in self.flow.ops)


def places(op: ir.Operation, rule: OpRule) -> list[tuple[ir.Value, int, tuple[int, ...]]]:
    """(value, dim, factors of the dim) of all operands and results of an op."""
    return [
        (value, dim, factors)
        for value, mapping in [
            *zip(op.operands, rule.operands, strict=True),
            *zip(op.results, rule.results, strict=True),
        ]
        for dim, factors in enumerate(mapping)
    ]


def _is_worthwhile(op: ir.Operation, rule: OpRule, factor: int) -> bool:
    """Light ops, products with rows as a batch dim, and reductions over rows into partial sums."""
    if any(rule.is_summed(r, factor) for r in range(len(rule.results))):
        return op.name == "stablehlo.reduce" and splits_into_partial_results(op)
    if op.name == "stablehlo.dot_general":
        return all(
            any(factor in factors for factors in mapping)
            for mapping in (*rule.operands, *rule.results)
        )
    return op.name not in NEVER_TWICE and op.name != "stablehlo.gather"


def even_cuts(flow: StackedLayers, pieces: int) -> tuple[int, ...]:
    """Where to cut the loops to split the step into about `pieces` parts of even work.

    Returns:
        First iterations of pieces, counted over all groups. A group with no more work than one part
        is not cut; neither is a loop over data, whose iterations belong to the microbatches.
    """
    cuts: list[int] = []
    for group in flow.groups:
        share = 0 if group.independent else group.flops / max(flow.flops, 1)
        parts = pieces * share
        count = min(max(round(parts), 2 if parts > 1 else 1), group.trips)
        cuts += [group.first + -(-p * group.trips // count) for p in range(1, count)]
    return tuple(cuts)


def boundaries(group: LoopGroup, cuts: Sequence[int]) -> list[int]:
    """First iterations of the pieces of the group's loops, and the end: [0, .., trips]."""
    inner = sorted({cut - group.first for cut in cuts if 0 < cut - group.first < group.trips})
    return [0, *inner, group.trips]

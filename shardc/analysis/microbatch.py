"""What a microbatch sees of every value of a step: the whole, a part of it, or a partial sum.

A forward dataflow over Shardy's sharding rules, as if the batch dims were sharded over one more
axis, in time. Where a partial sum meets an op that is not linear in it, the sum over the
microbatches must be complete: that value is accumulated, and what follows has level 1 (it runs
after the microbatches). The set of accumulated values is found by repetition, so that a gradient
used in `g * g` and in `b1 * g` is accumulated once.
"""

from dataclasses import dataclass, field
from functools import cached_property

from jax.extend.mlir import ir

from shardc.analysis.batch_state import (
    INVARIANT,
    Cut,
    FactorCut,
    Kind,
    State,
    common_parts,
    from_factor,
    may_cut,
    most_parts,
    to_factor,
)
from shardc.analysis.flops import heavy_flops
from shardc.analysis.graph import ARGUMENT, ValueGraph, value_graph
from shardc.analysis.linear import keeps_partial
from shardc.analysis.sharding_rules import OpRule, main_rules
from shardc.ir.reducers import is_zero
from shardc.ir.walk import main_function

# Results are operands, one by one.
IDENTITIES = {"stablehlo.optimization_barrier", "sdy.sharding_constraint"}
# Ops that may stand before or after the microbatches only if they do not work on the batch.
HEAVY = {
    "stablehlo.while",
    "stablehlo.case",
    "stablehlo.if",
    "stablehlo.custom_call",
    "stablehlo.fft",
    "stablehlo.cholesky",
    "stablehlo.triangular_solve",
}
# A matrix product below this share of all FLOPs counts as light.
LIGHT_SHARE = 0.002


@dataclass(frozen=True)
class Program:
    """A flat function with its sharding rules: what every run of the analysis reads."""

    graph: ValueGraph
    rules: list[OpRule | None]

    @cached_property
    def heavy_flops(self) -> list[int]:
        """For each op the FLOPs of its matrix products and convolutions."""
        return [heavy_flops(op) for op in self.graph.ops]

    @cached_property
    def heavy(self) -> list[bool]:
        """For each op whether it belongs to the work that is done once per microbatch."""
        least = LIGHT_SHARE * sum(self.heavy_flops)
        return [
            op.name in HEAVY or flops > least
            for op, flops in zip(self.graph.ops, self.heavy_flops, strict=True)
        ]

    @cached_property
    def zeros(self) -> set[int]:
        """Values known to be all zeros."""
        return {v for v, value in enumerate(self.graph.values) if is_zero(value)}


def program_of(module: ir.Operation) -> Program:
    """The main function of a module, ready for analysis."""
    return Program(value_graph(main_function(module)), main_rules(module))


@dataclass(frozen=True)
class Obstacle:
    """An op that has to work on the whole batch in the midst of the microbatches.

    Attributes:
        op: position of the op that would have to wait for the accumulation.
        cause: position of the op that needs the whole batch first.
        reason: "sum" where the cause uses a sum over the batch, "whole" where it uses every example.
    """

    op: int
    cause: int
    reason: str


@dataclass
class BatchFlow:
    """The states of all values, for one choice of batch arguments.

    Attributes:
        program: what was analysed.
        batch_args: batch argument -> its batch dim.
        states: for each value what a microbatch has of it, once accumulated where it must be.
        sums: partial sums that are accumulated.
        wholes: (op, value): uses of a varying value that need all of it.
        seeds: arguments that the batch is in, cut or not (default: the batch arguments).
        early: accumulated or gathered values that are computed before the microbatches instead.
        cuts: op -> the factor of it that the microbatches cut.
        parts: the number of microbatches must divide this.
        obstacle: why the step cannot be split, or None.
    """

    program: Program
    batch_args: dict[int, int]
    seeds: frozenset[int] = frozenset()
    early: set[int] = field(default_factory=set)
    forced: dict[int, int] = field(default_factory=dict)
    states: list[State] = field(default_factory=list)
    sums: set[int] = field(default_factory=set)
    wholes: set[tuple[int, int]] = field(default_factory=set)
    cuts: dict[int, FactorCut] = field(default_factory=dict)
    limits: dict[int, int] = field(default_factory=dict)
    blocked: list[int] = field(default_factory=list)
    obstacle: Obstacle | None = None

    # ---- results ----

    @property
    def parts(self) -> int:
        """The number of microbatches must divide this; 0 without batch arguments."""
        shapes = self.program.graph.shapes
        sizes = [(shapes[a] or (0,))[dim] for a, dim in self.batch_args.items()]
        return common_parts([*sizes, *self.limits.values()])

    @cached_property
    def depends(self) -> list[bool]:
        """For each value whether it depends on a batch argument."""
        args = range(self.program.graph.num_args)
        return self._reach([a in self.batch_args or a in self.seeds for a in args], set())

    @cached_property
    def behind_heavy(self) -> list[bool]:
        """For each value whether a heavy op that works on the batch stands before it."""
        uses, heavy = self.program.graph.uses, self.program.heavy
        working = {
            i for i, used in enumerate(uses) if heavy[i] and any(self.depends[u] for u in used)
        }
        return self._reach([False] * self.program.graph.num_args, working)

    def _reach(self, found: list[bool], sources: set[int]) -> list[bool]:
        """For each value whether it comes from a marked argument or from an op of `sources`."""
        graph = self.program.graph
        for i, used in enumerate(graph.uses):
            if graph.ops[i].name in IDENTITIES:
                found += [found[u] for u in used]
            else:
                reached = i in sources or any(found[u] for u in used)
                found += [reached] * len(graph.results[i])
        return found

    @property
    def cut_flops(self) -> int:
        """FLOPs of matrix products of which each microbatch does a part."""
        flops = self.program.heavy_flops
        return sum(flops[i] for i in self.cuts)

    @property
    def work_on_batch(self) -> bool:
        """Whether a heavy op depends on the batch."""
        return any(self.behind_heavy)

    # ---- one run ----

    def run(self) -> dict[int, int]:
        """Computes all states; returns sums found to be needed whole: value -> op that needs it."""
        graph = self.program.graph
        self.states = [
            State(Kind.VARYING, 0, Cut(self.batch_args[a])) if a in self.batch_args else INVARIANT
            for a in range(graph.num_args)
        ]
        self.sums, self.wholes, self.cuts = set(), set(), {}
        self.limits, self.blocked = {}, []
        self.needed: dict[int, int] = {}
        for i in range(len(graph.ops)):
            results = self._transfer(i)
            for v, state in zip(graph.results[i], results, strict=True):
                if state.is_partial and v in self.forced:
                    self.sums.add(v)
                    state = State(Kind.INVARIANT, self._level_of(v))
                self.states.append(state)
        for v in graph.returned:
            if self.states[v].is_partial:
                self.needed.setdefault(v, ARGUMENT)
        return self.needed

    def _level_of(self, value: int) -> int:
        """The level from which on an accumulated or gathered value can be had."""
        return 0 if value in self.early else 1

    def _whole(self, i: int, v: int) -> int:
        """Notes that op i needs all of the varying value v; returns the level of that."""
        self.wholes.add((i, v))
        return max(self._level_of(v), self.states[v].level)

    def _transfer(self, i: int) -> list[State]:
        graph = self.program.graph
        op, used = graph.ops[i], graph.uses[i]
        states = [self.states[v] for v in used]
        count = len(graph.results[i])
        level = max((s.level for s in states), default=0)
        if op.name in IDENTITIES:
            return states
        if all(s.kind is Kind.INVARIANT for s in states):
            return [State(Kind.INVARIANT, level)] * count
        partial = [p for p, s in enumerate(states) if s.is_partial]
        varying = [p for p, s in enumerate(states) if s.varies]
        if level == 0 and not varying:
            zero = {p for p, v in enumerate(used) if v in self.program.zeros}
            if len(used) == len(op.operands) and keeps_partial(op, set(partial), zero):
                return [State(Kind.PARTIAL)] * count
        for p in partial:
            self.needed.setdefault(used[p], i)
            level = max(level, self._level_of(used[p]))
        if not varying:
            return [State(Kind.INVARIANT, level)] * count
        return self._cut(i, varying, level)

    def _cut(self, i: int, varying: list[int], level: int) -> list[State]:
        """Results of an op with varying operands: it computes a part, if its rule allows it."""
        graph, rule = self.program.graph, self.program.rules[i]
        op, used = graph.ops[i], graph.uses[i]
        chosen: FactorCut | None = None
        kind: Kind | None = None
        # The operand that the heavy work made decides which factor is cut.
        for p in sorted(varying, key=lambda p: not self.behind_heavy[used[p]]):
            cut = self.states[used[p]].cut
            assert cut is not None
            mine = to_factor(rule, rule.operands[p], cut) if rule and self._ruled(i) else None
            if rule and mine and chosen is None:
                kind = may_cut(op, rule, mine)
                chosen = mine if kind else None
            if chosen is None or mine != chosen:
                level = max(level, self._whole(i, used[p]))
        if self.program.heavy[i] and (level > 0 or chosen is None):
            self.blocked.append(i)
        if rule is None or chosen is None or kind is None:
            return [State(Kind.INVARIANT, level)] * len(graph.results[i])
        if level > 0 and kind is Kind.PARTIAL:
            return [State(Kind.INVARIANT, level)] * len(graph.results[i])
        if level == 0:
            self.cuts[i] = chosen
            self.limits[i] = most_parts(rule, chosen)
        if kind is Kind.PARTIAL:
            return [State(kind)] * len(graph.results[i])
        return [State(kind, level, from_factor(rule, m, chosen)) for m in rule.results]

    def _ruled(self, i: int) -> bool:
        return len(self.program.graph.uses[i]) == len(self.program.graph.ops[i].operands)


def analyse(program: Program, batch_args: dict[int, int]) -> BatchFlow:
    """Finds what must be accumulated if the given dims of the given arguments are the batch."""
    flow = BatchFlow(program, batch_args)
    _settle(flow)
    while flow.blocked:
        light = {v for v in _frontier(flow, flow.blocked) if not flow.behind_heavy[v]}
        if light <= flow.early:
            flow.obstacle = _blame(flow)
            return flow
        flow.early |= light
        flow.forced = {}
        _settle(flow)
    flow.forced = {v: i for v, i in flow.forced.items() if v in flow.sums}
    flow.forced.update(_earlier(flow))
    _settle(flow)
    return flow


def _settle(flow: BatchFlow) -> None:
    """Repeats runs until no more sums have to be accumulated."""
    while needed := flow.run():
        flow.forced.update(needed)


def _frontier(flow: BatchFlow, blocked: list[int]) -> dict[int, int]:
    """Accumulated or gathered values that make `blocked` ops wait, each with an op that uses it."""
    graph = flow.program.graph
    whole_uses = set(flow.wholes)
    found: dict[int, int] = {}
    seen = set(blocked)
    stack = list(blocked)
    while stack:
        i = stack.pop()
        for u in graph.uses[i]:
            if (i, u) in whole_uses or (u in flow.sums and flow.states[u].level > 0):
                found[u] = min(i, found.get(u, i))
            if flow.states[u].level > 0 and u not in flow.sums:
                j = graph.producer[u]
                if j not in seen:
                    seen.add(j)
                    stack.append(j)
    return found


def _blame(flow: BatchFlow) -> Obstacle:
    """The first op that needs the whole batch, and the first heavy op that waits for it."""
    frontier = {v: i for v, i in _frontier(flow, flow.blocked).items() if v not in flow.early}
    first = min(frontier, key=lambda v: frontier[v], default=None)
    if first is None:
        return Obstacle(flow.blocked[0], flow.blocked[0], "whole")
    waiting = [b for b in flow.blocked if first in _frontier(flow, [b])]
    return Obstacle(waiting[0], frontier[first], "sum" if first in flow.sums else "whole")


def _earlier(flow: BatchFlow) -> dict[int, int]:
    """Sums to be accumulated nearer to where they arise, with a user of each.

    What stands between (a transpose, a scaling) then runs once per step instead of once per
    microbatch. Additions, reductions and upcasts stay before the accumulation: they make it fewer,
    smaller and more exact.
    """
    graph = flow.program.graph
    users = graph.users
    late = {v for v in flow.sums if v not in flow.early}
    found: dict[int, int] = {}
    returned = set(graph.returned)
    for v in sorted(late, reverse=True):
        while (source := _movable(flow, v)) is not None:
            others = [r for i in users[source] for r in graph.results[i]]
            if source in returned or not all(
                r == v or (r in late and _movable(flow, r) == source) for r in others
            ):
                break
            late.discard(v)
            late.add(source)
            found.pop(v, None)
            found[source] = graph.producer[v]
            v = source
    return found


def _movable(flow: BatchFlow, v: int) -> int | None:
    """The one partial operand of v's op, if accumulating that instead costs no more."""
    graph = flow.program.graph
    i = graph.producer[v]
    op = graph.ops[i]
    if op.name in ("stablehlo.convert", "stablehlo.reduce") or flow.program.heavy[i]:
        return None
    partial = [u for u in graph.uses[i] if flow.states[u].is_partial]
    if len(partial) != 1 or len(graph.results[i]) != 1:
        return None
    small, large = _size(graph, partial[0]), _size(graph, v)
    return partial[0] if small <= large else None


def _size(graph: ValueGraph, v: int) -> int:
    count = 1
    for size in graph.shapes[v] or ():
        count *= size
    return count

"""What a microbatch holds of every value of a step: the whole, one part of it, or a partial sum.

A forward dataflow analysis over Shardy's sharding rules, as if one more mesh axis, in time, sharded
the batch dims. An op that is not linear in a partial sum needs the complete sum over the
microbatches: the partial sum is accumulated, and its users belong to a later sweep. They run after
all sweeps, unless heavy work on the microbatches waits for them. The set of accumulated values is a
fixed point, so that a gradient that is used in `g * g` and in `b1 * g` is accumulated once.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

from shardc.analysis.batch.batch_state import (
    INVARIANT,
    LATE,
    Cut,
    FactorCut,
    Kind,
    State,
    common_parts,
    cut_states,
    divisors,
    most_parts,
    to_factor,
)
from shardc.analysis.batch.control_flow import RegionFlow, take_parts
from shardc.analysis.batch.control_flow import analyse as analyse_control_flow
from shardc.analysis.batch.step_program import Program
from shardc.analysis.program.op_classes import IDENTITIES
from shardc.ir.walk import CONTROL_FLOW
from shardc.rules.partial_sums import keeps_partial
from shardc.solver.interrupt import poll


@dataclass(frozen=True)
class Obstacle:
    """An op that needs the whole batch before the microbatches are done.

    Attributes:
        op: position of the op that would have to wait for the accumulation.
        cause: position of the first op that needs the whole batch.
        reason: "sum" if the cause uses a sum over the batch, "whole" if it uses all of it.
    """

    op: int
    cause: int
    reason: str


@dataclass
class BatchFlow:
    """The states of all values, for one choice of batch arguments.

    Attributes:
        program: the analysed program.
        batch_args: batch argument -> its batch dim.
        seeds: arguments that hold the batch, cut or not, besides the batch arguments.
        awaited: accumulated or gathered values that heavy work on the microbatches waits for. What
            light ops compute is computed before the microbatches; what heavy ops compute is
            accumulated by the sweep before the first that needs it.
        completed: partial sums to accumulate.
        states: for each value what a microbatch holds of it; invariant once accumulated.
        sums: partial sums that are accumulated -> the first sweep that can compute the parts.
        wholes: (op, value): uses of a varying value that need all of it.
        cuts: op -> the factor of it that the microbatches cut.
        loops: loop or branch that works on parts -> the dataflow inside.
        waiting_loops: loop whose iterations need complete sums over the batch -> the dataflow
            inside; fission makes it work on parts.
        limits: op -> a number that the number of microbatches must divide.
        blocked: heavy ops and control flow that have to wait for the whole batch.
        region_flows: the dataflow inside control flow, by op and states of its operands.
        obstacle: why the step cannot be split, or None.
        boundary: why one sweep is not enough, or None.
    """

    program: Program
    batch_args: dict[int, int]
    seeds: frozenset[int] = frozenset()
    awaited: set[int] = field(default_factory=set)
    completed: set[int] = field(default_factory=set)
    states: list[State] = field(default_factory=list)
    sums: dict[int, int] = field(default_factory=dict)
    wholes: set[tuple[int, int]] = field(default_factory=set)
    cuts: dict[int, FactorCut] = field(default_factory=dict)
    loops: dict[int, RegionFlow] = field(default_factory=dict)
    waiting_loops: dict[int, RegionFlow] = field(default_factory=dict)
    limits: dict[int, int] = field(default_factory=dict)
    blocked: list[int] = field(default_factory=list)
    region_flows: dict[tuple[int, tuple[State, ...]], RegionFlow | None] = field(
        default_factory=dict
    )
    obstacle: Obstacle | None = None
    boundary: Obstacle | None = None

    # ---- results ----

    @property
    def num_sweeps(self) -> int:
        """The number of sweeps over the microbatches."""
        return 1 + max((self.states[v].sweep for v in self.awaited & self.sums.keys()), default=0)

    def sums_between(self, sweep: int) -> list[int]:
        """Sums that a sweep accumulates for later ones."""
        early = self.awaited & self.sums.keys()
        return sorted(v for v in early if self.states[v].sweep == sweep + 1)

    @property
    def parts(self) -> int:
        """The number of microbatches must divide this; 0 without batch arguments."""
        shapes = self.program.graph.shapes
        sizes = [(shapes[a] or (0,))[dim] for a, dim in self.batch_args.items()]
        return common_parts([*sizes, *self.limits.values()])

    @property
    def numbers(self) -> tuple[int, ...]:
        """The possible numbers of microbatches above 1."""
        return tuple(divisors(self.parts)[1:])

    def is_late(self, v: int) -> bool:
        """Whether the value v is computed after all sweeps."""
        return self.states[v].sweep == LATE and v not in self.sums

    @cached_property
    def depends(self) -> list[bool]:
        """For each value whether it depends on a batch argument."""
        args = range(self.program.graph.num_args)
        return self._reach([a in self.batch_args or a in self.seeds for a in args], set())

    @cached_property
    def behind_heavy(self) -> list[bool]:
        """For each value whether it depends on a heavy op on the batch."""
        uses, heavy = self.program.graph.uses, self.program.heavy
        working = {
            i for i, used in enumerate(uses) if heavy[i] and any(self.depends[u] for u in used)
        }
        return self._reach([False] * self.program.graph.num_args, working)

    def _reach(self, found: list[bool], sources: set[int]) -> list[bool]:
        """For each value whether it depends on a marked argument or on an op of `sources`."""
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
        """FLOPs of the matrix products that the cut divides among the microbatches."""
        flops = self.program.heavy_flops
        return sum(flops[i] for i in (*self.cuts, *self.loops))

    @property
    def late_flops(self) -> int:
        """FLOPs of the matrix products of completed sums alone, such as an optimizer's: they run
        once, after the microbatches, however the batch is cut."""
        graph, blocked = self.program.graph, set(self.blocked)
        return sum(
            flops
            for i, flops in enumerate(self.program.heavy_flops)
            if flops and i not in blocked and all(self.is_late(v) for v in graph.results[i])
        )

    @property
    def work_on_batch(self) -> bool:
        """Whether a heavy op depends on the batch."""
        return any(self.behind_heavy)

    # ---- one pass of the dataflow ----

    def run(self) -> set[int]:
        """Computes all states; returns new partial sums to accumulate."""
        graph = self.program.graph
        self.states = [
            State(Kind.VARYING, 0, Cut(self.batch_args[a])) if a in self.batch_args else INVARIANT
            for a in range(graph.num_args)
        ]
        self.sums, self.wholes, self.cuts = {}, set(), {}
        self.loops, self.waiting_loops = {}, {}
        self.limits, self.blocked = {}, []
        self.needed: set[int] = set()
        for i in range(len(graph.ops)):
            poll()
            results = self._transfer(i)
            for v, state in zip(graph.results[i], results, strict=True):
                if state.is_partial and v in self.completed:
                    self.sums[v] = state.sweep
                    state = State(Kind.INVARIANT, self._sweep_after(v, state.sweep))
                self.states.append(state)
        for v in graph.returned:
            if self.states[v].is_partial:
                self._need(v)
        return self.needed

    def _need(self, v: int) -> None:
        """Records that the complete sum is needed; it is accumulated before any barrier."""
        self.needed.add(self.program.before_barriers(v))

    def _sweep_after(self, v: int, sweep: int) -> int:
        """The first sweep that has all of the value v, whose parts `sweep` computes."""
        return sweep + self.behind_heavy[v] if v in self.awaited else LATE

    def _whole(self, i: int, v: int) -> int:
        """Records that op i needs all of the varying value v; returns the sweep that has it."""
        self.wholes.add((i, v))
        return self._sweep_after(v, self.states[v].sweep)

    def _transfer(self, i: int) -> list[State]:
        graph = self.program.graph
        op, used = graph.ops[i], graph.uses[i]
        states = [self.states[v] for v in used]
        count = len(graph.results[i])
        sweep = max((s.sweep for s in states), default=0)
        if op.name in IDENTITIES:
            return states
        if all(s.kind is Kind.INVARIANT for s in states):
            return [State(Kind.INVARIANT, sweep)] * count
        if op.name in CONTROL_FLOW and (loop := self._loop(i, states)):
            if sweep < LATE:
                return [replace(state, sweep=sweep) for state in loop.results]
            self.blocked.append(i)
            return [_late(state) for state in loop.results]
        partial = [p for p, s in enumerate(states) if s.is_partial]
        varying = [p for p, s in enumerate(states) if s.varies]
        if sweep < LATE and not varying:
            zero = {p for p, v in enumerate(used) if v in self.program.zeros}
            if len(used) == len(op.operands) and keeps_partial(op, set(partial), zero):
                return [State(Kind.PARTIAL, sweep)] * count
        for p in partial:
            self._need(used[p])
            sweep = max(sweep, self._sweep_after(used[p], states[p].sweep))
        if not varying:
            return [State(Kind.INVARIANT, sweep)] * count
        return self._cut(i, varying, sweep)

    def _loop(self, i: int, states: list[State]) -> RegionFlow | None:
        """The dataflow inside a loop or branch, or None if it cannot work on parts even once all
        the values that it waits for are available."""
        graph = self.program.graph
        op = graph.ops[i]
        count = len(op.operands)
        sweep = max(state.sweep for state in states)
        states = [replace(state, sweep=0) for state in states]
        captured = {
            graph.values[u]: s for u, s in zip(graph.uses[i][count:], states[count:], strict=True)
        }
        known, key = self.region_flows, (i, tuple(states))
        if key not in known:
            rules = self.program.inner_rules
            inside = analyse_control_flow(op, states[:count], captured, rules, may_wait=True)
            if inside is not None and not inside.waiting:
                take_parts(op, inside, captured)
            known[key] = inside
        loop = known[key]
        if loop is not None and loop.waiting:
            self.waiting_loops[i] = loop
            return None
        if loop is not None and sweep < LATE:
            self.loops[i] = loop
            self.limits[i] = common_parts(loop.limits)
        return loop

    def _cut(self, i: int, varying: list[int], sweep: int) -> list[State]:
        """States of the results of an op with varying operands: a part, if its rule allows it."""
        graph, rule = self.program.graph, self.program.rules[i]
        used = graph.uses[i]
        chosen: FactorCut | None = None
        # Operands that depend on heavy work choose the factor first.
        for p in sorted(varying, key=lambda p: not self.behind_heavy[used[p]]):
            cut = self.states[used[p]].cut
            assert cut is not None
            ruled = rule is not None and p < len(rule.operands)  # not a capture
            mine = to_factor(rule, rule.operands[p], cut) if rule and ruled else None
            if rule and mine and chosen is None:
                chosen = mine if self.program.may_cut(i, rule, mine) else None
            if chosen is None or mine != chosen:
                sweep = max(sweep, self._whole(i, used[p]))
        if self.program.heavy[i] and (sweep == LATE or chosen is None):
            self.blocked.append(i)
        if rule is None or chosen is None:
            return [State(Kind.INVARIANT, sweep)] * len(graph.results[i])
        if sweep < LATE:
            self.cuts[i] = chosen
            self.limits[i] = most_parts(rule, chosen)
            return cut_states(rule, chosen, sweep)
        return [_late(state) for state in cut_states(rule, chosen)]


def _late(state: State) -> State:
    """The state of a value after all sweeps, when all parts of the batch are available."""
    return State(Kind.VARYING if state.varies else Kind.INVARIANT, LATE, state.cut)

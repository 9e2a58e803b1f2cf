"""In which phases of a sweep each value is needed, and in what form.

A backward analysis from what the sweep must give. The microbatches compute only what accumulated
values depend on. A value that is the same in every microbatch is rematerialized in each if it is
cheap (casts, broadcasts, constants), else hoisted before them (random bits, loops, products of
parameters, casts marked with `shardc.once`).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property

from shardc.analysis.batch.batch_state import (
    Cut,
    FactorCut,
    Kind,
    from_factor,
    may_cut,
    most_parts,
    to_factor,
)
from shardc.analysis.batch.microbatch import BatchFlow
from shardc.analysis.batch.phase_plan import (
    AFTER,
    BEFORE,
    BODY,
    Copy,
    Form,
    Materialization,
    Method,
    PhasePlan,
)
from shardc.analysis.program.op_classes import CHEAP, IDENTITIES, NEVER_TWICE, ONCE, chooses
from shardc.analysis.program.value_graph import ARGUMENT
from shardc.ir.attributes import CAST_ONCE, get_int
from shardc.ir.constants import splat_text
from shardc.ir.tensor_types import is_float, num_bytes
from shardc.plan.function_kind import Phase
from shardc.rules.op_rule import FactorKind

SMALL = 1 << 14  # elements; ops on no more are rematerialized
_ARGUMENT = Materialization(Method.ARGUMENT)
_EARLIER_SWEEP = Materialization(Method.EARLIER_SWEEP)
_CLONE = Materialization(Method.CLONE)


def plan_phases(flow: BatchFlow, sweep: int, kept: Mapping[int, int]) -> PhasePlan:
    """Decides in which phases of a sweep every op runs, and which forms every value takes.

    The last sweep gives the results of the step; the others give the sums between sweeps, and what
    later sweeps do not compute again.

    Args:
        kept: varying values and sums -> the sweep that keeps them for all later ones.
    """
    last = sweep == flow.num_sweeps - 1
    wanted = flow.program.graph.returned if last else flow.sums_between(sweep)
    return _Planner(flow, sweep, kept).run(
        [*wanted, *(v for v, keeping in kept.items() if keeping == sweep)]
    )


class _Planner:
    def __init__(self, flow: BatchFlow, sweep: int, kept: Mapping[int, int]) -> None:
        self.flow = flow
        self.sweep = sweep
        self.kept = {v for v, keeping in kept.items() if keeping < sweep}
        self.graph = flow.program.graph
        self.plan = PhasePlan()
        self.pending: dict[int, list[Form]] = defaultdict(list)
        self.required: dict[int, set[Form]] = defaultdict(set)

    def run(self, results: Iterable[int]) -> PhasePlan:
        """What to emit so that these values exist after the microbatches."""
        for v in results:
            self.require(v, AFTER)
        for i in reversed(range(len(self.graph.ops))):
            for v in self.graph.results[i]:
                self.resolve(v)
        for a in range(self.graph.num_args):
            self.resolve(a)
        return self.plan

    def require(self, v: int, form: Form) -> None:
        """Notes that a form of `v` is needed."""
        if form not in self.required[v]:
            self.required[v].add(form)
            self.pending[v].append(form)

    def resolve(self, v: int) -> None:
        """Decides how to make each required form of `v`; all its users are resolved already."""
        made: list[tuple[Form, Materialization]] = []
        argument = self.graph.producer[v] == ARGUMENT
        # Forms of "after" come last, to reuse what is computed before the microbatches anyway.
        while self.pending[v]:
            self.pending[v].sort(key=lambda n: n.phase is Phase.AFTER, reverse=True)
            form = self.pending[v].pop()
            source = self._argument(v, form) if argument else self._result(v, form)
            if source.source is not None:
                self.require(v, source.source)
            made.append((form, source))
        forms = self.plan.forms[v]
        while made:  # topological order: a source before the forms that are made from it
            ready = [(n, s) for n, s in made if s.source is None or s.source in forms]
            assert ready, f"value {v} is needed in forms that are made from each other"
            forms.update(ready)
            made = [(n, s) for n, s in made if n not in forms]

    def _argument(self, v: int, form: Form) -> Materialization:
        batch = v in self.flow.batch_args
        if form.phase is not Phase.BODY:
            return Materialization(Method.MERGE) if batch else _ARGUMENT
        if not batch:
            return Materialization(Method.SLICE, BODY) if form.cut else _ARGUMENT
        if form.cut == self.flow.states[v].cut:
            return Materialization(Method.READ)
        return Materialization(Method.SLICE if form.cut else Method.ALIAS, BEFORE)

    def _result(self, v: int, form: Form) -> Materialization:
        if v in self.kept:
            if form.phase is Phase.BEFORE:
                return _EARLIER_SWEEP
            return Materialization(Method.SLICE if form.cut else Method.ALIAS, BEFORE)
        i = self.graph.producer[v]
        state = self.flow.states[v]
        other = v in self.flow.sums or form.cut != state.cut
        if form.phase is Phase.BODY and other and self._exists(v):
            return Materialization(Method.SLICE if form.cut else Method.ALIAS, BEFORE)
        if self.graph.ops[i].name in IDENTITIES:
            return self._identity(v, form)
        if form.phase is Phase.BODY and i in self.flow.loops:
            natural = Form(Phase.BODY, state.cut)
            if form != natural:
                return Materialization(Method.SLICE, natural)
            return self._copy(i, form)
        batch = self._on_batch(i)
        if form.phase is Phase.BEFORE:
            between = v in self.flow.sums and 0 < state.sweep <= self.sweep
            return _EARLIER_SWEEP if between else self._copy(i, form)
        if form.phase is Phase.AFTER:
            return self._after(v, form)
        if state.kind is not Kind.INVARIANT or v in self.flow.sums:
            assert form.cut == state.cut, f"value {v} is needed in another form than it has"
            return self._copy(i, form)
        if self._rounded_before(v):
            return Materialization(Method.SLICE if form.cut else Method.ALIAS, BEFORE)
        if form.cut is not None:
            cut = self._cuttable(v, form.cut)
            if cut is not None and not self._smallest(v):
                return self._copy(i, form, cut)
            once = self._after_once[v] or batch or self._costly(i)
            return Materialization(Method.SLICE, BEFORE if once else BODY)
        if batch or self._costly(i):
            return Materialization(Method.ALIAS, BEFORE)
        return self._copy(i, form)

    def _identity(self, v: int, form: Form) -> Materialization:
        """Barriers are kept in the body only, where they keep forward and backward apart."""
        i = self.graph.producer[v]
        natural = Form(Phase.BODY, self.flow.states[v].cut)
        if form.phase is not Phase.BODY or form != natural:
            self.require(self.graph.operand_at(v), form)
            return Materialization(Method.FORWARD)
        if not self.plan.copies[i]:
            states = [self.flow.states[u] for u in self.graph.uses[i]]
            inside = [p for p, state in enumerate(states) if state.sweep <= self.sweep]
            forms = tuple(
                Form(Phase.BODY, self.flow.states[self.graph.uses[i][p]].cut) for p in inside
            )
            self.plan.copies[i].append(Copy(BODY, forms, forms, tuple(inside)))
            for p, each in zip(inside, forms, strict=True):
                self.require(self.graph.uses[i][p], each)
        return _CLONE

    def _after(self, v: int, form: Form) -> Materialization:
        i = self.graph.producer[v]
        state = self.flow.states[v]
        if self._exists(v) and (v in self.flow.sums or BEFORE in self.required[v]):
            return Materialization(Method.ALIAS, BEFORE)
        if v in self.flow.sums:
            return Materialization(Method.SUM, BODY)
        if state.sweep > self.sweep:
            return self._copy(i, form)
        if state.varies:
            return Materialization(Method.CONCAT, Form(Phase.BODY, state.cut))
        assert not state.is_partial, f"value {v} is needed whole but not accumulated"
        once = self._costly(i) and self._wanted_earlier(i)
        if self._on_batch(i) or once or self._rounded_before(v):
            return Materialization(Method.ALIAS, BEFORE)
        return self._copy(i, form)

    def _exists(self, v: int) -> bool:
        """Whether all of a value that is accumulated or gathered exists before this sweep."""
        return v in self.flow.awaited and self.flow.states[v].sweep <= self.sweep

    def _rounded_before(self, v: int) -> bool:
        """Whether v is a float that is computed before the microbatches anyway and that might round
        in another way if it were computed again: its own maximum, say, might exceed it."""
        op, value = self.graph.ops[self.graph.producer[v]], self.graph.values[v]
        rounds = is_float(value) and op.name not in CHEAP and not chooses(op)
        return rounds and BEFORE in self.required[v]

    def _wanted_earlier(self, i: int) -> bool:
        return any(
            n.phase is not Phase.AFTER for v in self.graph.results[i] for n in self.required[v]
        )

    def _on_batch(self, i: int) -> bool:
        """Whether an op combines parts into a whole value (see `awaited`): it runs before the body
        only."""
        return any(self.flow.states[u].kind is not Kind.INVARIANT for u in self.graph.uses[i])

    def _costly(self, i: int) -> bool:
        op = self.graph.ops[i]
        if op.name in NEVER_TWICE or CAST_ONCE in op.attributes:
            return True
        if op.name in CHEAP:
            return False
        return any(self._size(v) > SMALL for v in (*self.graph.uses[i], *self.graph.results[i]))

    def _size(self, v: int) -> int:
        count = 1
        for size in self.graph.shapes[v] or ():
            count *= size
        return count

    def _cuttable(self, v: int, cut: Cut) -> FactorCut | None:
        """The factor to cut so that an invariant op computes only the required part."""
        i = self.graph.producer[v]
        op, rule = self.graph.ops[i], self.flow.program.rules[i]
        if op.name in IDENTITIES or self._on_batch(i):
            return None
        if op.name in ("stablehlo.constant", "stablehlo.iota"):
            return FactorCut(-1) if self._makes_part(v, cut) else None
        if rule is None or len(self.graph.results[i]) != 1:
            return None
        factor = to_factor(rule, rule.results[0], cut)
        if factor is None or rule.kinds[factor.factor] is not FactorKind.PASS_THROUGH:
            return None
        if most_parts(rule, factor) % max(self.flow.parts, 1):
            return None  # fewer equal parts than there may be microbatches
        return factor if may_cut(op, rule, factor) is Kind.VARYING else None

    @cached_property
    def _after_once(self) -> list[bool]:
        """For each value whether it depends on an op that may run only once per step."""
        found = [False] * self.graph.num_args
        for i, used in enumerate(self.graph.uses):
            once = self.graph.ops[i].name in ONCE
            found += [once or any(found[u] for u in used)] * len(self.graph.results[i])
        return found

    def _smallest(self, v: int) -> bool:
        """Whether v is the smallest value to keep of costly work: no larger than its operands.

        For dropout this is the mask, not the random bits.
        """
        used = self.graph.uses[self.graph.producer[v]]
        if not self._after_once[v]:
            return False
        sources = sum(num_bytes(self.graph.values[u]) for u in used)
        return num_bytes(self.graph.values[v]) <= sources

    def _makes_part(self, v: int, cut: Cut) -> bool:
        """Whether all parts of a constant or iota are equal."""
        op = self.graph.ops[self.graph.producer[v]]
        if op.name == "stablehlo.iota":
            return get_int(op, "iota_dimension") != cut.dim
        return splat_text(op) is not None

    def _copy(self, i: int, form: Form, cut: FactorCut | None = None) -> Materialization:
        """Plans a copy of op i that makes `form` of one of its results, or reuses one."""
        for copy in self.plan.copies[i]:
            same = copy.form.phase is form.phase
            if same and (form.phase is not Phase.BODY or form in copy.results):
                return _CLONE
        used, results = self.graph.uses[i], self.graph.results[i]
        if form.phase is not Phase.BODY:
            copy = Copy(form, (form,) * len(used), (form,) * len(results))
        else:
            cut = cut or self.flow.cuts.get(i)
            copy = Copy(form, self._operands(i, cut), self._results(i, form))
        self.plan.copies[i].append(copy)
        for u, each in zip(used, copy.operands, strict=True):
            self.require(u, each)
        return _CLONE

    def _operands(self, i: int, cut: FactorCut | None) -> tuple[Form, ...]:
        """Forms of the operands of a body copy."""
        rule = self.flow.program.rules[i]
        loop = self.flow.loops.get(i)
        own = len(self.graph.ops[i].operands)  # captures have no factors
        found = []
        for p, u in enumerate(self.graph.uses[i]):
            state = self.flow.states[u]
            assert state.sweep <= self.sweep, f"op {i} of sweep {self.sweep} needs a later {u}"
            if loop and p < len(loop.carries):
                found.append(Form(Phase.BODY, loop.carries[p].cut))
            elif loop and self.graph.values[u] in loop.captured:
                found.append(Form(Phase.BODY, loop.captured[self.graph.values[u]]))
            elif state.varies and (i, u) not in self.flow.wholes:
                found.append(Form(Phase.BODY, state.cut))
            elif cut and rule and cut.factor >= 0 and not state.is_partial and p < own:
                found.append(Form(Phase.BODY, from_factor(rule, rule.operands[p], cut)))
            else:
                found.append(BODY)
        return tuple(found)

    def _results(self, i: int, form: Form) -> tuple[Form, ...]:
        """Forms of the results of a body copy made for `form`."""
        results = self.graph.results[i]
        if len(results) == 1:
            return (form,)
        return tuple(Form(Phase.BODY, self.flow.states[v].cut) for v in results)

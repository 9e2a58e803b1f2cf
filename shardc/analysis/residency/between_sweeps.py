"""Which values a sweep over the microbatches keeps for later sweeps.

Without, a later sweep computes again all that it needs of what earlier ones have computed.
"""

from collections.abc import Collection, Mapping, Sequence

from jax.extend.mlir import ir

from shardc.analysis.batch.microbatch import BatchFlow
from shardc.analysis.batch.phase_plan import Copy, Form, Method, PhasePlan
from shardc.analysis.batch.phases import plan_phases
from shardc.analysis.loops.propagate_marks import propagated
from shardc.analysis.program.op_classes import IDENTITIES, chooses
from shardc.analysis.program.value_graph import ARGUMENT
from shardc.analysis.residency.selection import UNITS, moving_seconds, op_seconds
from shardc.cost.model import CostModel
from shardc.plan.function_kind import Phase
from shardc.solver.pipeline.kept_values import Maker, kept_values


def kept_between_sweeps(flow: BatchFlow, price: float, model: CostModel) -> dict[int, int]:
    """The values to keep, each with the sweep that keeps it.

    One sweep after the other takes from those before it what costs less to keep than to compute
    again: the exact minimum for this sweep, by a minimum cut. What is kept for one sweep is free
    for all later ones. Of a value, the parts of all microbatches are kept; of addends, their sum.

    Args:
        price: of keeping a value, relative to the time in which a device writes and reads it.
    """
    sources = _chosen_from(flow)
    never: set[int] = set()
    while True:
        kept: dict[int, int] = {}
        first: dict[int, int] = {}  # value -> the first sweep whose microbatches compute it
        torn: set[int] = set()
        for sweep in range(flow.num_sweeps):
            needs = _Needs(flow, plan_phases(flow, sweep, kept), first, sources, never)
            more = needs.worth_keeping(price, model, kept)
            kept.update((v, first[v]) for v in more)
            torn |= needs.torn(kept, more).keys()
            for v in needs.computed:
                first.setdefault(v, sweep)
        if not torn:
            return kept
        never |= torn


def _chosen_from(flow: BatchFlow) -> dict[int, frozenset[int]]:
    """Value -> the other ops from whose results its elements may be chosen as they are."""
    graph = flow.program.graph
    marks: dict[ir.Value, frozenset[int]] = {}
    found: dict[int, frozenset[int]] = {}
    for i, op in enumerate(graph.ops):
        handed = propagated(op, marks, chooses, [graph.values[u] for u in graph.uses[i]])
        for v, given in zip(graph.results[i], handed, strict=True):
            exact = op.name in IDENTITIES or chooses(op)
            marks[graph.values[v]] = given if exact else given | {i}
            if given:
                found[v] = given
    return found


class _Needs:
    """What a sweep computes, and what of it an earlier one has computed before.

    Attributes:
        computed: values of which each microbatch computes its part or addend, also if nothing needs
            them here: the other results of a loop.
        again: the ops all of whose needed results an earlier sweep has -> these results.

    Args:
        first: value -> the earlier sweep that computes it.
        sources: value -> the ops from whose results its elements may be chosen.
        never: values that must not be kept.
    """

    def __init__(
        self,
        flow: BatchFlow,
        plan: PhasePlan,
        first: Mapping[int, int],
        sources: Mapping[int, frozenset[int]],
        never: Collection[int],
    ) -> None:
        self.flow, self.plan, self.sources, self.never = flow, plan, sources, never
        self.graph = flow.program.graph
        self.computed: list[int] = []
        self.again: dict[int, tuple[int, ...]] = {}
        self.read: dict[int, list[int]] = {}  # op in the microbatches -> the values that it reads
        for i in sorted(plan.copies):
            copies = [copy for copy in plan.copies[i] if copy.form.phase is Phase.BODY]
            if not copies:
                continue
            self.read[i] = [u for copy in copies for u in self._parts_read(i, copy)]
            results = [each for copy in copies for each in self._results(i, copy)]
            self.computed += [v for v, form in results if form == self._own_form(v)]
            needed = [(v, form) for v, form in results if self._is_copied(v, form)]
            if needed and all(v in first and form == self._own_form(v) for v, form in needed):
                self.again[i] = tuple(dict.fromkeys(v for v, _ in needed))

    def worth_keeping(self, price: float, model: CostModel, before: Collection[int]) -> set[int]:
        """The values of `again` that cost less to keep than to compute again.

        Elements that one op has chosen from another's result must not meet that result computed
        again, which may be rounded in another way. So if they are kept, that result is kept, too.

        Args:
            before: values that are kept anyway, for earlier sweeps.
        """
        values = [v for results in self.again.values() for v in results]
        moving = [price * moving_seconds(self.graph.values[v], model) for v in values]
        running = {i: op_seconds(self.graph.ops[i], model) for i in self.again}
        unit = (sum(moving) + sum(running.values())) / UNITS or 1.0
        redo = {i: 1 + round(each / unit) for i, each in running.items()}
        costs = [1 + round(each / unit) for each in moving]
        most = sum(costs) + sum(redo.values()) + 1
        costs = [most if v in self.never else c for v, c in zip(values, costs, strict=True)]
        while True:
            kept = self._cheapest(values, costs, redo) - set(self.never)
            torn = {i for ops in self.torn({*before, *kept}, kept).values() for i in ops}
            if not torn & redo.keys():
                return kept
            redo.update(dict.fromkeys(torn & redo.keys(), most))

    def torn(self, kept: Collection[int], more: Collection[int]) -> dict[int, set[int]]:
        """The values of `kept` whose elements were chosen from results that this sweep computes
        again though it keeps `more` -> the ops that it runs for that."""
        ran = {i for i in self.read if i not in self.again} | self._run_again(more)
        found = {v: self.sources.get(v, frozenset()) & ran for v in kept}
        return {v: set(ops) for v, ops in found.items() if ops}

    def _cheapest(
        self, values: Sequence[int], costs: Sequence[int], redo: Mapping[int, int]
    ) -> set[int]:
        number = {v: n for n, v in enumerate(values)}
        makers = [
            Maker(
                tuple(number[u] for u in self.read[i] if u in number),
                tuple(number[v] for v in results),
                redo[i],
            )
            for i, results in self.again.items()
        ]
        needed = [number[v] for v in self._needed() if v in number]
        return {values[n] for n in kept_values(costs, makers, needed)}

    def _needed(self) -> set[int]:
        """Values that ops outside `again` read, or that leave the microbatches."""
        found = {u for i, read in self.read.items() if i not in self.again for u in read}
        for v, forms in self.plan.forms.items():
            own = self._own_form(v)
            if own is not None and any(made.source == own for made in forms.values()):
                found.add(v)
        return found

    def _run_again(self, kept: Collection[int]) -> set[int]:
        """The ops of `again` that the sweep runs although these values are kept."""
        made_by = {v: i for i, results in self.again.items() for v in results}
        todo = [v for v in self._needed() if v not in kept]
        found: set[int] = set()
        while todo:
            i = made_by.get(todo.pop())
            if i is not None and i not in found:
                found.add(i)
                todo += [u for u in self.read[i] if u not in kept]
        return found

    def _results(self, i: int, copy: Copy) -> list[tuple[int, Form]]:
        """The results of a copy, each in its form."""
        results = self.graph.results[i]
        if copy.positions is not None:
            results = tuple(results[p] for p in copy.positions)
        return list(zip(results, copy.results, strict=True))

    def _parts_read(self, i: int, copy: Copy) -> list[int]:
        """The values that a copy reads as another copy has made them for this microbatch."""
        used = self.graph.uses[i]
        if copy.positions is not None:
            used = tuple(used[p] for p in copy.positions)
        pairs = zip(used, copy.operands, strict=True)
        return [u for u, form in pairs if form == self._own_form(u) and self._is_copied(u, form)]

    def _is_copied(self, v: int, form: Form) -> bool:
        """Whether a copy of its op makes this form of `v`."""
        made = self.plan.forms.get(v, {}).get(form)
        return made is not None and made.method is Method.CLONE

    def _own_form(self, v: int) -> Form | None:
        """What a microbatch has of a value that an op makes: its part, or its addend of a sum; None
        if it is the same in every microbatch."""
        state = self.flow.states[v]
        if self.graph.producer[v] == ARGUMENT or not (state.varies or v in self.flow.sums):
            return None
        return Form(Phase.BODY, state.cut)

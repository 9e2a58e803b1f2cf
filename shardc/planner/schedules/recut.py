"""A planned pipeline cut again: into chunks, or with stages that keep less."""

from dataclasses import replace

import msgspec

from shardc.analysis.stages.stage_refusal import StageRefusal
from shardc.cost.model import CostModel
from shardc.cutting import outline_shape
from shardc.options import PlanOptions
from shardc.plan.shape import RULES
from shardc.plan.stages_spec import Recompute
from shardc.planner.candidate import Candidate
from shardc.planner.proposal import Proposal, with_schedule
from shardc.planner.schedules.cuts import Cut, cut_of
from shardc.planner.split_cache import Splits
from shardc.schedule.registry import schedule_named
from shardc.schedule.work import Work

UNCHUNKED = "1f1b"  # a schedule whose stages are cut one per group

type Rule = Recompute | None
"""What all stages recompute; None: each does what the planned one does."""


class Recut:
    """The program of a planned pipeline, in other stages on the same device groups.

    Attributes:
        planned: the stages as they are planned.
    """

    def __init__(self, base: Candidate, work: Work, splits: Splits, model: CostModel) -> None:
        assert base.shape.num_chunks == 1, "one stage per device group"
        self._base, self._work, self._splits, self._model = base, work, splits, model
        self._sizes = [len(mesh.device_ids) for mesh in base.shape.meshes]
        self.planned = cut_of(base.module, model, self._sizes)
        self._cuts: dict[tuple[int, Rule], Cut | str] = {(1, None): self.planned}

    def rules(self, chunks: int) -> list[Rule]:
        """What stages may recompute, least first. Chunks all follow one rule, because each group
        has early and late ones."""
        own = sorted(set(self._rules), key=RULES.index)
        same: list[Rule] = [None]
        if len(own) > 1:
            same = [None, own[-1]] if chunks == 1 else [own[-1]]
        if not self._splits.compute_twice:
            return same
        return [*same, *RULES[RULES.index(own[-1]) + 1 : RULES.index("user") + 1]]

    @property
    def _rules(self) -> list[Recompute]:
        """The rule of each planned stage."""
        shape = self._base.shape
        return [shape.residency_of(stage).recompute for stage in range(shape.num_stages)]

    def has(self, chunks: int, rule: Rule) -> bool:
        """Whether the program was cut like this, or that is known to be impossible."""
        return (chunks, rule) in self._cuts

    def of(self, name: str, chunks: int, rule: Rule) -> Cut | str:
        """The program in `chunks` stages per device group, or why there are fewer.

        Args:
            name: a schedule that runs as many chunks.
        """
        if (chunks, rule) not in self._cuts:
            self._cuts[chunks, rule] = self._cut(name, chunks, rule)
        return self._cuts[chunks, rule]

    def whole(self, rule: Rule) -> Cut:
        """The program in one stage per device group."""
        cut = self.of(UNCHUNKED, 1, rule)
        assert isinstance(cut, Cut), "as many stages as are planned"
        return cut

    def roughly(self, chunks: int, rule: Rule) -> Cut:
        """An estimate for equal chunks, without cutting the program into chunks."""
        return self.whole(rule).in_chunks(chunks, len(self._sizes))

    def _cut(self, name: str, chunks: int, rule: Rule) -> Cut | str:
        shape = self._with_rule(rule).shape
        if chunks > 1:
            if len(set(self._sizes)) > 1:
                return "device groups are of unequal size"
            stages = len(self._sizes) * chunks
            even = self._splits.even_stages(shape.num_microbatches, stages)
            if isinstance(even, StageRefusal):
                return f"{stages} stages are more than the {even.most} layers"
            shape = self.proposal(name, chunks, 1, rule).shape
            shape = msgspec.structs.replace(
                shape, schedule=UNCHUNKED, meshes=shape.meshes[:stages], num_replicas=1
            )
        outlined = outline_shape(self._splits.staged(shape), shape, self._model.cluster)
        return cut_of(outlined, self._model, self._sizes)

    def proposal(self, name: str, chunks: int, slices: int, rule: Rule) -> Proposal:
        """The pipeline with a schedule, in the compiler's form; it must be possible."""
        options = PlanOptions(chunks=chunks, slices=slices)
        return with_schedule(self._with_rule(rule), self._splits, name, options)

    def _with_rule(self, rule: Rule) -> Proposal:
        """The planned pipeline, with stages that all recompute the same."""
        base = self._base.proposal
        if rule is None:
            return base
        held = schedule_named(base.shape.schedule).in_flight(self._work)
        shape = base.shape.recomputing([rule] * base.shape.num_stages, held)
        return replace(base, shape=shape)

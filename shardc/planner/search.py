"""Chooses the shape of the pipeline: microbatches, stages, their meshes and the schedule.

Shapes (a single stage among them) are ranked by the prices of layers (`promising.py`). The best few
are planned exactly, as they will run, memory included, and the one with the shortest simulated
schedule wins. If only one shape is requested, or layers cannot be identified, shapes are planned
exactly right away. Budgets count work; the time limit only stops what takes too long.
"""

from collections.abc import Sequence

import msgspec

from shardc.analysis.batch.microbatch_refusal import MicrobatchRefusal
from shardc.analysis.shardings.mesh_fit import check_mesh_divides, with_user_mesh
from shardc.analysis.stages.stage_refusal import StageRefusal
from shardc.cluster import Cluster
from shardc.ir.context import Module
from shardc.options import PlanOptions
from shardc.plan.decisions import Plan
from shardc.plan.layout import Mesh
from shardc.plan.notes import Data, Note, NoteCode
from shardc.plan.predicted import JudgedSchedule
from shardc.plan.shape import Reuse
from shardc.planner.allowed_request import (
    check_stages,
    most_microbatches,
    most_stages,
    state_too_large,
)
from shardc.planner.attempts import Attempts, Progress, effort_of
from shardc.planner.budget import BUDGET
from shardc.planner.candidate import Candidate
from shardc.planner.pipelines.plain_shapes import (
    even_proposals,
    plan_plain,
    whole_proposals,
    whole_views,
)
from shardc.planner.promising import Promising, promising_shapes
from shardc.planner.proposal import (
    Found,
    Proposal,
    distinct,
    is_plain,
    num_chunks,
    with_schedule,
)
from shardc.planner.record.recorded_plan import recorded
from shardc.planner.record.search_notes import search_notes
from shardc.planner.schedules.choice import choose_schedule
from shardc.planner.shapes import FAR
from shardc.planner.split_cache import ONCE, Splits
from shardc.schedule.registry import AUTO, schedule_to_run
from shardc.solver.interrupt import finish, poll_between
from shardc.solver.solve import LimitError


class Planner:
    """Plans one program, and records what it considered.

    Attributes:
        tried: the shapes that were planned exactly.
        promising: the result of the search; None: it did not run.
        weighed: the schedules considered for the winning pipeline.
    """

    def __init__(
        self,
        module: Module,
        cluster: Cluster,
        options: PlanOptions,
        progress: Progress | None = None,
        wanted: int = BUDGET.wanted,
        reuse: Reuse = ONCE,
    ) -> None:
        self.module, self.cluster = module, cluster
        self.options = with_user_mesh(module, options)
        self.mesh_of_program = options.mesh != self.options.mesh
        self.progress = progress or (lambda text: None)
        self.wanted = wanted
        self.promising: Promising | None = None
        self.weighed: tuple[JudgedSchedule, ...] = ()
        self.unmet: list[Note] = []
        pipelines = options.stages != 1
        self.splits = Splits(module, options.batch_args, pipelines=pipelines, reuse=reuse)
        self.tried = Attempts(module, self.splits, cluster, self.options, self.progress)
        self.limit = options.memory_limit_bytes or cluster.device.memory_bytes
        self.orders = options.schedule != "auto" and schedule_to_run(options.schedule).any_placement
        self.chooses = options.schedule == "auto" or self.orders
        self.schedule = "1f1b" if self.chooses else options.schedule
        self.asked_chunks, self.asked_slices = options.chunks, options.slices
        if self.chooses:  # the search uses one stage per device group, whole
            self.options = msgspec.structs.replace(self.options, chunks="auto", slices="auto")
        self.chunks = num_chunks(self.schedule, self.options)
        self.base = self.schedule if is_plain(self.schedule, self.options) else "1f1b"
        self.schedules = list(AUTO) if self.chooses else [self.base]

    def check_request(self) -> LimitError | None:
        """Why nothing fits, if the state alone is too large; raises if the request contradicts the
        cluster, like `check_stages`."""
        check_stages(self.cluster, self.options, self.mesh_of_program)
        return state_too_large(self.module, self.cluster, self.options.memory_limit_bytes)

    def run(self) -> Plan:
        """The best plan, for a request that `check_request` allows; raises like `plan_program`."""
        self._settle_microbatches()
        views = whole_views(self.cluster, self.options)
        try:
            if self.options.mesh != "auto":
                check_mesh_divides(self.splits.whole(self._first_count()), self.options.mesh)
            direct = self._direct(views)
            self.promising = self._promising() if direct is None else None
            if self.promising is not None:
                self._plan_best(self.promising)
                self._plan_on_other_meshes(self.promising)
            self._plan_each(direct or [])
            if self.tried.best is None:
                plan_plain(self.tried, self.options, self.schedule, self._can_split)
            if not self.tried.has_any:
                self._plan_each(self._even())
            most_ops = BUDGET.unranked_ops if self.promising is None else BUDGET.ranked_ops
            best = self.tried.best if self.tried.may_plan_another(most_ops) else None
            if best is not None and best.gap > BUDGET.final.gap:
                self.tried.plan(best.proposal, BUDGET.final)
            self.tried.keep_more()
            if self.chooses:
                asked = self.asked_chunks, self.asked_slices, self.limit, self.unmet, self.orders
                self.weighed = choose_schedule(self.tried, self.splits, *asked, self.promising)
            poll_between()
        except KeyboardInterrupt:
            if self.tried.best is None:
                raise
            self._keep_best()
        if self.tried.best is None:
            raise self.tried.bug or self.tried.explained(self.unmet)
        try:
            return self._plan_of(self.tried.best)
        except KeyboardInterrupt:
            self._keep_best()
            return self._plan_of(self.tried.best)

    def _keep_best(self) -> None:
        """After an interrupt: the remaining work ends soon, and no longer polls."""
        finish()
        self.tried.notes.append(Note(NoteCode.INTERRUPTED))

    def _plan_of(self, best: Candidate) -> Plan:
        plan = best.plan(
            self.splits.of(best.shape),
            self.cluster,
            [*self.unmet, *self.tried.notes],
            self.tried.seconds_spent(),
        )
        limit = self.options.memory_limit_bytes
        plan = recorded(plan, best, self.splits, limit, [*self.tried.judged.values()])
        return msgspec.structs.replace(plan, unmet=tuple(self.unmet), schedules=self.weighed)

    # ---- the request ----

    def _settle_microbatches(self) -> None:
        """The most microbatches possible, up to the request."""
        if self.options.microbatches == "auto":
            return
        count, refusal = most_microbatches(self.splits, self.options)
        if refusal is not None:
            self._take_fewer("microbatches", count, refusal)

    def _take_fewer(self, name: str, count: int, why: MicrobatchRefusal | StageRefusal) -> None:
        """Plans only `count` of the requested stages or microbatches, and notes it."""
        self._note_fewer(name, count, why)
        self.options = msgspec.structs.replace(self.options, **{name: count})

    def _note_fewer(self, name: str, count: int, why: MicrobatchRefusal | StageRefusal) -> None:
        """Notes that there are only `count` stages or microbatches."""
        asked = getattr(self.options, name)
        reason = why.message if why.where is None else f"{why.message} ({why.where})"
        data: Data = {"what": name, "count": count, "reason": reason}
        if why.help is not None:
            data["help"] = why.help
        if asked == "auto":
            self.tried.notes.append(Note(NoteCode.FEWER, data))
        else:
            self.unmet.append(Note(NoteCode.FEWER, {**data, "asked": asked}))

    # ---- shapes planned without an estimate ----

    def _direct(self, views: list[Mesh]) -> list[Proposal] | None:
        """The shapes to plan if the request leaves little open; None: search for them, and over
        islands in any case, of which each may be better alone."""
        asked, count = self.options, self.options.microbatches
        if self.cluster.islands:
            return None
        alone = self.cluster.num_devices == 1 and asked.stages == "auto"
        if count != "auto" and (alone or asked.stages == 1):
            return whole_proposals(count, views, self.base, self.options)
        if alone or (asked.stages == 1 and len(views) == 1):
            one = whole_proposals(1, views, self.base, self.options)
            self._plan_each(one)  # several are rarely faster
            return None if self.tried.best is None else []
        return None if "auto" in (asked.stages, count) else self._even()

    def _even(self) -> list[Proposal]:
        """Stages of even work: the requested number, or as many as possible."""
        while True:
            count = self._first_count()
            even = even_proposals(self.splits, self.cluster, self.options, count, self.schedule)
            if not isinstance(even, StageRefusal):
                return even
            if self._take_most_stages(even):
                views = whole_views(self.cluster, self.options)
                return whole_proposals(count, views, self.base, self.options)

    def _take_most_stages(self, refusal: StageRefusal) -> bool:
        """Plans as many stages as possible; whether that is one."""
        assert self.options.stages not in ("auto", refusal.most), "each refusal leaves fewer stages"
        name, count, why = most_stages(self.splits, self.options, refusal)
        self._take_fewer(name, count, why)
        return name == "stages" and count == 1

    def _plan_each(self, proposals: Sequence[Proposal]) -> None:
        """Plans shapes unless estimated to be slower than the best, while there is time."""
        effort = effort_of(len(proposals) == 1)
        for proposal in proposals:
            slow = proposal.step_time_s > FAR * self.tried.best_s
            more = self.tried.best is None or self.tried.may_plan_another(BUDGET.unranked_ops)
            if more and not slow:
                self.tried.plan(proposal, effort)

    def _first_count(self) -> int:
        asked = self.options.microbatches
        return 1 if asked == "auto" else asked

    # ---- shapes found by the search ----

    def _promising(self) -> Promising | None:
        """Shapes worth planning exactly, the most promising first."""
        self.progress("estimating the layers")
        for _ in range(2):
            found = promising_shapes(
                self.module,
                self.splits,
                self.cluster,
                self.options,
                self.schedules,
                self.tried.share_spent,
                lambda refusal: self._note_fewer("microbatches", 1, refusal),
                self.wanted,
            )
            if isinstance(found, StageRefusal):
                if self.options.stages == found.most:
                    return None  # one stage, as requested, of a program without work
                if self.options.stages == "auto":
                    self._note_fewer("stages", found.most, found)
                    return None
                if self._take_most_stages(found):
                    return None
                if self.options.microbatches == "auto":
                    continue
                found = None
            if found is None:
                self._plan_each(self._even())
                return None
            self.tried.notes += search_notes(found)
            return found
        return None

    def _plan_best(self, promising: Promising) -> None:
        """Plans the most promising shapes exactly, as long as one may be faster than the best; and
        more if none fits, or the best is slower than estimates for others."""
        self._plan_each(promising.across)
        self._plan_found(promising, promising.found)
        first = next(iter(promising.found), None)
        if first is None or not self.tried.is_far_behind(first):
            return
        if self.tried.best is None or self.tried.may_plan(first, BUDGET.ranked_ops):
            more = promising.search.widened(BUDGET.most_tried, self.tried.best_s)
            known = {each.key for each in promising.found}
            self._plan_found(promising, [each for each in more if each.key not in known])

    def _plan_found(self, promising: Promising, found: Sequence[Found]) -> None:
        planned, tried, waiting = 0, 0, distinct(found, BUDGET.most_tried)
        while waiting and tried < BUDGET.most_tried:
            each, tried, better_s = waiting.pop(0), tried + 1, self.tried.best_s
            if self.tried.best is not None:
                if planned == BUDGET.most_planned:
                    break
                # Others differ only in the number of microbatches, and may be faster.
                if self.tried.is_beaten(each) or not self.tried.may_plan(each, BUDGET.ranked_ops):
                    continue
            proposal = promising.search.proposal(each)
            if proposal is not None:
                if self.base != self.schedule:
                    proposal = with_schedule(proposal, self.splits, self.schedule, self.options)
                effort = effort_of(2 * self.tried.num_ops(proposal.shape) > BUDGET.ranked_ops)
                answer = self.tried.plan(proposal, effort, better_s)
                planned += isinstance(answer, Candidate)
                if isinstance(answer, LimitError):
                    waiting = promising.with_smaller(waiting, each, answer)

    def _plan_on_other_meshes(self, promising: Promising) -> None:
        """Plans the best shape, if it is a single stage, on each mesh whose layers take about as
        long: prices of layers leave out the reshards between them."""
        best, prices = self.tried.best, promising.search.prices
        if best is None or best.shape.num_stages > 1:
            return
        count, (own,) = best.shape.num_microbatches, best.shape.meshes
        times = {mesh: prices.all_s(mesh, count) for mesh in prices.open_views(len(own.device_ids))}
        for mesh, mesh_s in times.items():
            near = mesh != own and mesh_s <= FAR * times.get(own, 0.0)
            if near and self.tried.may_plan_another(BUDGET.ranked_ops):
                proposal = best.proposal.on((mesh,))
                self.tried.plan(proposal, effort_of(False), self.tried.best_s)

    def _can_split(self, count: int) -> bool:
        refusal = self.splits.refusal(count)
        if refusal is not None and not self.splits.counts - {1} and not self.tried.notes:
            self._note_fewer("microbatches", 1, refusal)
        return refusal is None

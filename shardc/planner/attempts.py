"""Shapes that are planned exactly, within a budget; keeps the best."""

import functools
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from shardc.cluster import Cluster
from shardc.cutting import outline_shape
from shardc.errors import BugError, InfeasibleError
from shardc.ir.bugs import bugs_while
from shardc.ir.context import Module
from shardc.ir.walk import functions, planned_ops
from shardc.options import PlanOptions
from shardc.plan.alternatives import Alternative, mesh_words
from shardc.plan.decisions import stage_words
from shardc.plan.notes import Data, Note, NoteCode
from shardc.plan.shape import RULES, PipelineShape
from shardc.plan.stages_spec import Recompute
from shardc.planner.allowed_request import most_memory, print_request, ways_out
from shardc.planner.budget import BUDGET, Effort
from shardc.planner.candidate import Candidate, plan_exactly, says_more
from shardc.planner.proposal import Found, Proposal
from shardc.planner.shapes import FAR, NEAR
from shardc.planner.sharding_conflicts import in_conflict
from shardc.planner.split_cache import Splits
from shardc.schedule.registry import schedule_named
from shardc.solver.interrupt import poll, poll_between
from shardc.solver.solve import LimitError

LESS: tuple[Recompute, ...] = "none", "selective"  # recomputation than a program says
SEARCH = "search"  # the proposer of shapes that the search found
RERAISE = "SHARDC_RERAISE"  # environment variable: a bug in planning a shape ends planning

Progress = Callable[[str], None]


class Attempts:
    """Plans shapes of one program and keeps the best.

    Attributes:
        best: the fastest shape so far.
        infeasible: among shapes that do not fit, the error with the least missing memory.
        bug: the first bug in shardc that a shape triggered.
        notes: for the plan; the caller may add to them.
        judged: the result for each shape.
    """

    def __init__(
        self,
        module: Module,
        splits: Splits,
        cluster: Cluster,
        options: PlanOptions,
        progress: Progress,
    ) -> None:
        self.module, self.splits = module, splits
        self.cluster, self.options = cluster, options
        self.progress = progress
        self.best: Candidate | None = None
        self.infeasible: InfeasibleError | None = None
        self.bug: BugError | None = None
        self.notes: list[Note] = []
        self.judged: dict[Proposal, Alternative] = {}
        self._start_s = time.monotonic()
        self._longest_s = 0.0  # longest time to plan one shape exactly
        self._ops = self._most_ops = 0  # of all shapes, of the largest
        self._closest: Proposal | None = None  # that of `infeasible`
        self._any = False  # whether a shape was planned
        self._had_rival = False  # whether a shape was planned after the first best plan
        # The last outlined modules with and without a split backward, and what their stages depend
        # on (not the schedule's name).
        self._outlined: dict[bool, tuple[PipelineShape, Module]] = {}

    @property
    def has_any(self) -> bool:
        """Whether any shape was planned, with or without success."""
        return self._any

    @property
    def best_s(self) -> float:
        """Step time of the fastest shape so far; inf if there is none."""
        return math.inf if self.best is None else self.best.seconds

    def seconds_spent(self) -> float:
        return time.monotonic() - self._start_s

    def _solving_s(self) -> float:
        """Seconds for one shape; the first gets some even if none are left."""
        least_s = BUDGET.first_share * self.options.time_limit_s if self.best is None else 1.0
        return max(BUDGET.share * (self.options.time_limit_s - self.seconds_spent()), least_s)

    def num_ops(self, shape: PipelineShape) -> int:
        """Ops in all of its stages."""
        poll()
        outlined = self._outline(shape)
        with outlined.context:
            return sum(len(planned_ops(function)) for function in functions(outlined.operation))

    def may_plan_another(self, most_ops: int) -> bool:
        """Whether one more shape may be planned: within the budget of ops in the stages of all
        shapes, and within the time limit."""
        return self._ops + self._most_ops <= most_ops and self.has_time()

    def may_plan(self, found: Found, most_ops: int) -> bool:
        """Whether `found` may be planned: as `may_plan_another`, or as the only rival of the best
        plan, if that is slower than the estimate for `found`."""
        only_rival = not self._had_rival and self.best_s > found.pipeline.step_time_s
        return self.may_plan_another(most_ops) or (only_rival and self.has_time())

    def is_beaten(self, found: Found) -> bool:
        """Whether the best plan is probably faster than a shape: both its time and its own estimate
        beat the shape's estimate. Another schedule may still make a pipeline faster than a single
        stage."""
        assert self.best is not None
        estimate_s, own_s = found.pipeline.step_time_s, self.best.proposal.step_time_s
        if not own_s or self.best.shape.num_stages == 1 < len(found.pipeline.stages):
            return estimate_s > FAR * self.best_s
        return estimate_s > self.best_s and estimate_s > NEAR * own_s

    def is_far_behind(self, found: Found) -> bool:
        """Whether the best plan is clearly slower than the estimate for a shape."""
        return self.best_s > FAR * found.pipeline.step_time_s

    def has_time(self) -> bool:
        """Whether the remaining time covers the longest shape so far."""
        return self.seconds_spent() + self._longest_s < self.options.time_limit_s

    def share_spent(self) -> float:
        """The spent share of the search's time."""
        return self.seconds_spent() / (BUDGET.searching_share * self.options.time_limit_s)

    def _outline(self, shape: PipelineShape) -> Module:
        """The stage functions of a shape; the last are cached for other meshes and schedules."""
        split_backward = schedule_named(shape.schedule).split_backward
        stages = msgspec.structs.replace(shape, meshes=(), schedule="")
        known, outlined = self._outlined.get(split_backward, (None, None))
        if outlined is None or known != stages:
            outlined = outline_shape(self.splits.staged(shape), shape, self.cluster)
            self._outlined[split_backward] = stages, outlined
        return outlined

    def _unless_it_fails[Found](self, what: str, plan: Callable[[], Found]) -> Found | BugError:
        """The result of `plan`; the error, noted, if a bug in shardc raised it."""
        try:
            with bugs_while("planning", self.module, print_request(self.cluster, self.options)):
                return plan()
        except BugError as bug:
            if os.environ.get(RERAISE):
                raise
            self.bug = self.bug or bug
            data: Data = {"shape": what, "message": bug.message, "help": bug.help or ""}
            note = Note(NoteCode.LEFT_OUT, data)
            if note not in self.notes:
                self.notes.append(note)
            return bug

    def plan(
        self, proposal: Proposal, effort: Effort, cutoff_s: float = math.inf
    ) -> Candidate | InfeasibleError | BugError:
        """Plans a shape exactly, and keeps it if it is the best; returns the error if it does not
        fit, or if shardc fails."""
        return self._unless_it_fails(
            shape_words(proposal.shape),
            functools.partial(self._plan, proposal, effort, cutoff_s),
        )

    def keep_more(self) -> None:
        """Plans the best shape again with less recomputation, if the program has some to leave out.
        The search has already weighed that for the shapes that it found."""
        for rule in LESS if self.splits.compute_twice else ():
            if self.best is None or self.best.shape.recomputes_fully or not self.has_time():
                return
            if self.best.proposal.step_time_s:
                return
            shape, stages = self.best.shape, self.best.shape.num_stages
            own = [shape.residency_of(stage).recompute for stage in range(stages)]
            if all(RULES.index(each) <= RULES.index(rule) for each in own):
                return  # nothing to leave out
            more = shape.recomputing([rule] * stages, [0] * stages)
            proposal = replace(self.best.proposal, shape=more)
            if isinstance(self.plan(proposal, BUDGET.final, self.best_s), Candidate):
                return

    def _plan(
        self, proposal: Proposal, effort: Effort, cutoff_s: float
    ) -> Candidate | InfeasibleError:
        poll_between()
        start_s = time.monotonic()
        shape = proposal.shape
        self._any = True
        self._had_rival |= self.best is not None and self.best.proposal != proposal
        self.progress(f"planning {shape_words(shape)}, {count_words(shape)}{self._best_so_far()}")
        try:
            found = self._planned(proposal, effort=effort, cutoff_s=cutoff_s)
        except InfeasibleError as error:
            if isinstance(error, LimitError):
                missing = proposal.judged(SEARCH, error.missing_bytes)
                self.judged.setdefault(proposal, missing)
            if self.infeasible is None or says_more(error, self.infeasible):
                self.infeasible, self._closest = error, proposal
            return error
        finally:
            self._longest_s = max(self._longest_s, time.monotonic() - start_s)
        self.judged[proposal] = found.judged(SEARCH)
        best = self.best
        if best is not None and best.proposal == proposal:  # planned again, with more effort
            best, found = best.with_bounds_of(found), found.with_bounds_of(best)
            best.check_bounds()
        found.check_bounds()
        self.best = found if best is None or found.seconds < best.seconds else best
        return found

    def _best_so_far(self) -> str:
        best = self.best
        if best is None:
            return ""
        return f"; best so far {1e3 * best.seconds:.3g} ms, gap {best.gap:.0%}"

    def _planned(
        self,
        proposal: Proposal,
        *,
        effort: Effort = BUDGET.competing,
        cutoff_s: float = math.inf,
        ignored: Sequence[str] = (),
    ) -> Candidate:
        outlined = self._outline(proposal.shape)
        num_ops = self.num_ops(proposal.shape)
        self._ops, self._most_ops = self._ops + num_ops, max(self._most_ops, num_ops)
        times = max(1.0, num_ops / len(proposal.shape.meshes) / BUDGET.ops_for_effort)
        return plan_exactly(
            outlined,
            proposal,
            self.cluster,
            self.options,
            time_limit_s=self._solving_s(),
            effort_s=times * effort.effort_s,
            gap=effort.gap,
            cutoff_s=cutoff_s,
            ignored=ignored,
        )

    def explained(self, unmet: Sequence[Note]) -> InfeasibleError:
        """Why nothing fits: the shape that misses the limit by least, and what ruled others out.

        Args:
            unmet: notes on requests that are not met.
        """
        error, closest = self.infeasible, self._closest
        assert error is not None and closest is not None
        if isinstance(error, LimitError):
            limit = most_memory(self.cluster, self.options.memory_limit_bytes)
            error.help = ways_out(self.module, error, limit, self.cluster.num_devices)
            shape, count = closest.shape, len(self.judged)
            among = f"none of {count} shapes tried fits; the closest is " if count > 1 else ""
            error.message = f"{among}{shape_words(shape)}, {count_words(shape)}: {error.message}"
        with_all = functools.partial(self._planned, closest)
        error = in_conflict(self._outline(closest.shape), error, with_all)
        if unmet or self.notes:
            error.help = f"{error.help} ({'; '.join(map(str, (*unmet, *self.notes)))})"
        return error


def effort_of(alone: bool) -> Effort:
    """The effort for a shape without competitors, or with some."""
    return BUDGET.final if alone else BUDGET.competing


def count_words(shape: PipelineShape) -> str:
    """`4 microbatches`"""
    count = shape.num_microbatches
    return f"{count} microbatch{'es' * (count > 1)}"


def shape_words(shape: PipelineShape) -> str:
    """`2 stages on 2 x (2x2)`"""
    sizes = mesh_words([mesh.shape for mesh in dict.fromkeys(shape.own_meshes)])  # of each group
    return f"{stage_words(shape.num_stages // shape.num_chunks, shape.num_chunks)} on {sizes}"

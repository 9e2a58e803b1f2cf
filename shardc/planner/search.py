"""Choose the shape of the pipeline: microbatches, stages, their meshes and the schedule.

Shapes are ranked by the prices of layers (`shardc.planner.promising`), one stage among them, and
the best few are planned exactly, as they will run, memory included. The shape whose simulated
schedule is shortest wins. Where one shape is asked for, or layers cannot be told apart, shapes are
planned exactly at once.

Budgets are counted work; the time limit only stops what takes too long.
"""

import functools
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from shardc.analysis.shardings.mesh_fit import check_mesh_divides, on_asked_mesh
from shardc.cluster import Cluster
from shardc.compiler import Shape, origins, outline
from shardc.cost.submeshes import mesh_of, mesh_views
from shardc.errors import (
    BugError,
    InfeasibleError,
    MicrobatchError,
    PlanError,
    ShardcError,
    StageError,
)
from shardc.ir.bugs import bugs_while
from shardc.ir.context import Module
from shardc.ir.tensor_types import num_bytes
from shardc.ir.walk import body, functions, main_function, planned_ops
from shardc.options import PlanOptions
from shardc.plan.decisions import Plan
from shardc.plan.layout import Mesh
from shardc.planner.candidate import Candidate, plan_exactly, says_more
from shardc.planner.promising import Promising, promising_shapes
from shardc.planner.proposal import Proposal, even_proposals
from shardc.planner.request import most_microbatches, print_request, too_few_layers
from shardc.planner.shapes import distinct
from shardc.planner.split_cache import Splits
from shardc.planner.user_shardings import in_conflict
from shardc.schedule.registry import AUTO, executable_schedule
from shardc.solver.interrupt import poll_between
from shardc.solver.solve import LimitError

MOST_PLANNED, MOST_TRIED = 3, 9  # shapes that are planned exactly, if they fit, and if they do not
# Of solving a stage while shapes compete, and of the shape that won. Stages of more ops get as much
# more: a look at all of them takes that much longer.
CHOOSING_GAP, CHOOSING_EFFORT_S = 0.05, 5.0
FINAL_GAP, FINAL_EFFORT_S = 0.01, 20.0
OPS_FOR_EFFORT = 8_000
NEAR = 1.1  # a shape may be estimated so much slower than the best plan so far
MOST_TO_FIT = 64  # microbatches that are tried where fewer do not fit, and nothing is estimated
SEARCHING = 0.5  # share of the time limit after which no more layers are priced
FIRST_SHARE, SHARE = 0.25, 0.85  # of the time limit, of what is left: for planning one shape
RERAISE = "SHARDC_RERAISE"  # set in the environment: a shape at which shardc fails ends planning
INTERRUPTED = "planning was interrupted; this is the best plan found until then"
NOT_ALL = "not every promising shape was priced: the budget for pricing layers was spent"

Progress = Callable[[str], None]


def plan_program(
    module: Module,
    cluster: Cluster,
    options: PlanOptions,
    progress: Progress | None = None,
) -> Plan:
    """The best plan that was found for a prepared module; `module` is not changed.

    Where the program cannot be cut into the microbatches or stages that were asked for, the plan
    has the most that are possible, and says so in `unmet`.
    Ctrl-C returns the best plan so far.

    Raises:
        MicrobatchError: SHARDC-141, the batch arguments that were named cannot be the batch.
        StageError: SHARDC-162, more stages than devices.
        InfeasibleError: SHARDC-220, no shape fits into the memory limit.
        KeyboardInterrupt: interrupted before there was any plan.
    """
    return _Planner(module, cluster, options, progress or (lambda text: None)).run()


class _Planner:
    def __init__(
        self, module: Module, cluster: Cluster, options: PlanOptions, progress: Progress
    ) -> None:
        self.module, self.cluster = module, cluster
        self.options = on_asked_mesh(module, options)
        self.progress = progress
        self.start_s = time.monotonic()
        self.longest_s = 0.0  # of planning one shape exactly
        self.notes: list[str] = []
        self.unmet: list[str] = []
        self.splits = Splits(module, options.batch_args)
        self.outlined: tuple[Shape, Module] | None = None  # the last one, and its cuts
        self.limit = options.memory_limit_bytes or cluster.device.memory_bytes
        if options.schedule != "auto":
            executable_schedule(options.schedule)
        self.schedules = list(AUTO) if options.schedule == "auto" else [options.schedule]
        self.schedule = "1f1b" if options.schedule == "auto" else options.schedule
        self.best: Candidate | None = None
        self.infeasible: InfeasibleError | None = None
        self.bug: BugError | None = None
        self.first: Proposal | None = None  # that was planned

    def run(self) -> Plan:
        self._check_stages()
        self._settle_microbatches()
        views = self._whole_views()
        try:
            if self.options.mesh != "auto":
                check_mesh_divides(self.splits.whole(self._first_count()), self.options.mesh)
            direct = self._direct(views)
            if direct is None:
                promising = self._promising()
                if promising is not None:
                    self._plan_best(promising)
            else:
                self._plan_each(direct)
            if self.best is None and self.options.stages in (1, "auto"):
                self._plan_whole(views)
            best = self.best if self._time_for_another() else None
            if best is not None and best.gap > FINAL_GAP:
                self._try(best.proposal, FINAL_GAP, FINAL_EFFORT_S)
            poll_between()
        except KeyboardInterrupt:
            if self.best is None:
                raise
            self.notes.append(INTERRUPTED)
        if self.best is None:
            raise self.bug or self._explained()
        plan = self.best.plan(
            self.splits.of(self.best.shape),
            self.cluster,
            [*self.unmet, *self.notes],
            self._seconds_spent(),
        )
        return msgspec.structs.replace(plan, unmet=tuple(self.unmet))

    def _explained(self) -> InfeasibleError:
        """Why nothing fits: the least that is missing, and what ruled other shapes out."""
        error = self.infeasible
        assert error is not None
        if self.first is not None:
            with_all = functools.partial(self._exactly, self.first)
            error = in_conflict(self._outline(self.first.shape), error, with_all)
        if self.notes:
            error.help = f"{error.help} ({'; '.join(self.notes)})"
        return error

    # ---- what was asked for ----

    def _check_stages(self) -> None:
        asked, devices = self.options.stages, self.cluster.num_devices
        if asked != "auto" and asked > devices:
            raise StageError(
                f"{asked} stages were asked for, and cluster '{self.cluster.name}' has {devices}"
                f" device{'s' * (devices != 1)}",
                help=f"ask for at most {devices} stages, or for a larger cluster",
                code="SHARDC-162",
            )

    def _settle_microbatches(self) -> None:
        """The most microbatches that are possible, up to those that were asked for."""
        if self.options.microbatches == "auto":
            return
        count, refusal = most_microbatches(self.splits, self.options)
        if refusal is not None:
            self._take_fewer("microbatches", count, refusal)

    def _take_fewer(self, name: str, count: int, why: ShardcError) -> None:
        """Plans only `count` of the stages or microbatches that were asked for, and notes it."""
        self._note_fewer(name, count, why)
        self.options = msgspec.structs.replace(self.options, **{name: count})

    def _note_fewer(self, name: str, count: int, why: ShardcError) -> None:
        """Notes that there are only `count` stages or microbatches."""
        asked = getattr(self.options, name)
        reason = why.message if why.where is None else f"{why.message} ({why.where})"
        one = {"stages": "stage", "microbatches": "microbatch"}
        planned = f"{count} {name if count > 1 else one[name]}"
        if asked == "auto":
            self.notes.append(f"{planned}: {reason}")
        else:
            self.unmet.append(f"{planned} instead of {asked}: {reason}")

    # ---- time ----

    def _seconds_spent(self) -> float:
        return time.monotonic() - self.start_s

    def _solving_s(self) -> float:
        """Seconds for one shape; the first gets some even where none are left."""
        least_s = FIRST_SHARE * self.options.time_limit_s if self.best is None else 1.0
        return max(SHARE * (self.options.time_limit_s - self._seconds_spent()), least_s)

    def _time_for_another(self) -> bool:
        """Whether one more shape can be planned within the time limit."""
        return self._seconds_spent() + self.longest_s < self.options.time_limit_s

    # ---- shapes that are planned without an estimate ----

    def _whole_views(self) -> list[Mesh]:
        """All devices as one mesh, in every way or in the one that was asked for; those whose last
        axis is a node, or all of it, come first."""
        asked = self.options.mesh
        if asked == "auto":
            per_node = self.cluster.num_devices_per_node
            views = mesh_views(self.cluster, 0, self.cluster.num_devices)
            return sorted(views, key=lambda view: view.shape[-1] != per_node)
        if math.prod(asked) > self.cluster.num_devices:
            raise PlanError(
                f"the mesh {'x'.join(map(str, asked))} needs {math.prod(asked)} devices and"
                f" cluster '{self.cluster.name}' has {self.cluster.num_devices}",
                help="use a smaller mesh or a larger cluster",
                code="SHARDC-101",
            )
        return [mesh_of(asked, range(math.prod(asked)), self.options.mesh_axes)]

    def _direct(self, views: list[Mesh]) -> list[Proposal] | None:
        """The shapes to plan where the request leaves little open; None: they are searched for."""
        asked = self.options
        count = asked.microbatches
        if asked.stages == 1 and (len(views) == 1 or count != "auto"):
            return [] if count == "auto" else self._whole_proposals(count, views)
        if self.cluster.num_devices == 1:
            return []
        if asked.stages == "auto" or asked.stages == 1 or count == "auto":
            return None
        return self._even(count)

    def _even(self, count: int) -> list[Proposal]:
        """Stages of even work, as many as are asked for or as there can be."""
        for _ in range(2):
            try:
                assert isinstance(self.options.stages, int)
                module, loop_cuts = self.splits.in_even_parts(count, self.options.stages)
                even = even_proposals(
                    module, self.cluster, self.options, count, self.schedule, loop_cuts
                )
                return [self._recut(module, each) for each in even]
            except StageError as error:
                if error.most is None:
                    raise
                too_few = too_few_layers(self.splits, self.options, error.most)
                if too_few is not None:
                    self._take_fewer("microbatches", 1, too_few)
                    return self._even(1)
                self._take_fewer("stages", error.most, error)
                if error.most == 1:
                    return self._whole_proposals(count, self._whole_views())
        raise AssertionError("there are as many stages as there are layers")

    def _recut(self, module: Module, proposal: Proposal) -> Proposal:
        """The same stages with no loop cut but where one begins, if they can be had so."""
        begins = origins(module, proposal.shape.cuts)
        known = [each for each in begins if each is not None]
        if len(known) < len(begins):
            return proposal
        shape = self.splits.shape_at(proposal.shape, known)
        return proposal if shape is None else replace(proposal, shape=shape)

    def _plan_each(self, proposals: Sequence[Proposal]) -> None:
        """Plans shapes of which nothing is estimated, as long as there is time."""
        alone = len(proposals) == 1
        gap, effort_s = (FINAL_GAP, FINAL_EFFORT_S) if alone else (CHOOSING_GAP, CHOOSING_EFFORT_S)
        for proposal in proposals:
            if self.best is not None and not self._time_for_another():
                break
            self._try(proposal, gap, effort_s)

    def _plan_whole(self, views: list[Mesh]) -> None:
        """Plans one stage on each view, in the fewest microbatches that fit."""
        alone = len(views) == 1
        gap, effort_s = (FINAL_GAP, FINAL_EFFORT_S) if alone else (CHOOSING_GAP, CHOOSING_EFFORT_S)
        count: int | None = self._first_count()
        while count is not None:
            for number, proposal in enumerate(self._whole_proposals(count, views)):
                if number > 0 and not self._time_for_another():
                    break
                better_s = math.inf if self.best is None else self.best.seconds
                found = self._try(proposal, gap, effort_s, better_s)
                if isinstance(found, LimitError) and found.peak_bytes is None:
                    break  # however it is split over the devices, it is too much
            count = self._next_count(count) if self.best is None else None

    def _whole_proposals(self, count: int, views: list[Mesh]) -> list[Proposal]:
        batch = self.options.batch_args
        return [
            Proposal(Shape(count, (), (view,), self.schedule, batch), 0.0, ((),)) for view in views
        ]

    def _first_count(self) -> int:
        asked = self.options.microbatches
        return 1 if asked == "auto" else asked

    def _next_count(self, count: int) -> int | None:
        """The next number of microbatches that may make the step fit; None if there is none."""
        if self.options.microbatches != "auto" or not isinstance(self.infeasible, LimitError):
            return None
        state = self._state_bytes(count) / self.cluster.num_devices
        if state >= self.limit:
            return None
        # At most the rest shrinks with the microbatches.
        over = (self.infeasible.least_bytes - state) / (self.limit - state)
        more = 2 * count
        while more < count * over:
            more *= 2
        while more <= MOST_TO_FIT:
            if self._can_split(more):
                return more
            more *= 2
        return None

    def _state_bytes(self, count: int) -> int:
        """Bytes of the arguments, which every number of microbatches has to hold."""
        function = main_function(self.splits.whole(count).operation)
        return sum(num_bytes(argument) for argument in body(function).arguments)

    # ---- shapes that are searched for ----

    def _promising(self) -> Promising | None:
        """Shapes worth planning exactly, the most promising first."""
        self.progress("estimating the layers")
        for _ in range(2):
            try:
                found = promising_shapes(
                    self.module,
                    self.splits,
                    self.cluster,
                    self.options,
                    self.schedules,
                    lambda: self._seconds_spent() / (SEARCHING * self.options.time_limit_s),
                    lambda error: self._note_fewer("microbatches", 1, error),
                )
            except StageError as error:
                if error.most is None:
                    raise
                self._note_fewer("stages", error.most, error)
                if self.options.stages == "auto" or error.most == 1:
                    return None
                self.options = msgspec.structs.replace(self.options, stages=error.most)
                continue
            if found is None:
                self._plan_each(self._even(1))
                return None
            if found.search.exhausted:
                self.notes.append(NOT_ALL)
            if not found.found and self.options.stages not in (1, "auto"):
                raise InfeasibleError(
                    f"no pipeline of {self.options.stages} stages fits into"
                    f" {self.limit:,} bytes on each of {self.cluster.num_devices} devices",
                    help="raise the memory limit, or use more devices, stages or microbatches",
                )
            return found
        return None

    def _plan_best(self, promising: Promising) -> None:
        """Plans the most promising shapes exactly, as long as one may be faster than the best."""
        planned = 0
        for each in distinct(promising.found, MOST_TRIED):
            if self.best is not None:
                slow = each.pipeline.step_time_s > NEAR * self.best.seconds
                if slow or planned == MOST_PLANNED or not self._time_for_another():
                    break
            proposal = promising.search.proposal(each)
            if proposal is not None:
                found = self._try(proposal, CHOOSING_GAP, CHOOSING_EFFORT_S)
                planned += isinstance(found, Candidate)

    # ---- one shape ----

    def _can_split(self, count: int) -> bool:
        try:
            self.splits.whole(count)
        except MicrobatchError as error:
            if not self.splits.counts - {1} and not self.notes:
                self._note_fewer("microbatches", 1, error)
            return False
        return True

    def _outline(self, shape: Shape) -> Module:
        """The stage functions of a shape; the last are kept, for its other meshes."""
        key = msgspec.structs.replace(shape, meshes=())
        if self.outlined is None or self.outlined[0] != key:
            self.outlined = key, outline(self.splits.of(shape), shape.cuts)
        return self.outlined[1]

    def _unless_it_fails[Found](self, what: str, plan: Callable[[], Found]) -> Found | BugError:
        """What `plan` finds; the error, noted, where shardc itself fails at it."""
        try:
            with bugs_while("planning", self.module, print_request(self.cluster, self.options)):
                return plan()
        except BugError as bug:
            if os.environ.get(RERAISE):
                raise
            self.bug = self.bug or bug
            note = f"{what} left out: {bug.message}; {bug.help}"
            if note not in self.notes:
                self.notes.append(note)
            return bug

    def _try(
        self, proposal: Proposal, gap: float, effort_s: float, cutoff_s: float = math.inf
    ) -> Candidate | InfeasibleError | BugError:
        """Plans a shape exactly, and keeps it if it is the best; the error, if it does not fit, or
        if shardc fails at it."""
        sizes = "+".join("x".join(map(str, mesh.shape)) for mesh in proposal.shape.meshes)
        return self._unless_it_fails(
            f"{len(proposal.shape.meshes)} stages on {sizes}",
            functools.partial(self._try_out, proposal, gap, effort_s, cutoff_s),
        )

    def _try_out(
        self, proposal: Proposal, gap: float, effort_s: float, cutoff_s: float
    ) -> Candidate | InfeasibleError:
        poll_between()
        start_s = time.monotonic()
        shape = proposal.shape
        self.first = self.first or proposal
        sizes = "+".join("x".join(map(str, mesh.shape)) for mesh in shape.meshes)
        self.progress(
            f"planning {len(shape.meshes)} stages on {sizes}, {shape.num_microbatches} microbatches"
        )
        try:
            found = self._exactly(proposal, gap=gap, effort_s=effort_s, cutoff_s=cutoff_s)
        except InfeasibleError as error:
            if self.infeasible is None or says_more(error, self.infeasible):
                self.infeasible = error
            return error
        finally:
            self.longest_s = max(self.longest_s, time.monotonic() - start_s)
        best = self.best
        if best is not None and best.proposal == proposal:  # once more, with more effort
            best, found = best.with_bounds_of(found), found.with_bounds_of(best)
        self.best = found if best is None or found.seconds < best.seconds else best
        return found

    def _exactly(
        self,
        proposal: Proposal,
        *,
        gap: float = CHOOSING_GAP,
        effort_s: float = CHOOSING_EFFORT_S,
        cutoff_s: float = math.inf,
        ignored: Sequence[str] = (),
    ) -> Candidate:
        outlined = self._outline(proposal.shape)
        num_ops = sum(len(planned_ops(function)) for function in functions(outlined.operation))
        effort_s *= max(1.0, num_ops / len(proposal.shape.meshes) / OPS_FOR_EFFORT)
        return plan_exactly(
            outlined,
            proposal,
            self.cluster,
            self.options,
            time_limit_s=self._solving_s(),
            effort_s=effort_s,
            gap=gap,
            cutoff_s=cutoff_s,
            ignored=ignored,
        )

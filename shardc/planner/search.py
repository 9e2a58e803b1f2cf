"""Choose the shape of the pipeline: microbatches, stages, their meshes and the schedule.

First all devices as one stage, planned exactly, on each view of them as a mesh, in as few
microbatches as fit. Then, where a pipeline can still be faster, Alpa's two levels: what each layer
costs on each submesh comes from the intra-operator solver, a dynamic program joins layers into
stages on submeshes (`shardc.planner.layer_costs`), and the few best shapes are planned exactly, as
they will run, memory included. The shape whose simulated schedule is shortest wins.

Every step asks whether the time limit leaves room for it: large programs get fewer shapes.
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
from shardc.compiler import Shape, outline
from shardc.cost.submeshes import mesh_of, mesh_views
from shardc.errors import (
    BugError,
    InfeasibleError,
    MicrobatchError,
    PlanError,
    ShardcError,
    StageError,
)
from shardc.ir.attributes import RUNS
from shardc.ir.bugs import bugs_while
from shardc.ir.context import Module
from shardc.ir.tensor_types import num_bytes
from shardc.ir.walk import body, functions, main_function, planned_ops
from shardc.options import PlanOptions
from shardc.plan.decisions import Plan
from shardc.plan.layout import Mesh
from shardc.planner.candidate import Candidate, plan_exactly, says_more
from shardc.planner.layer_costs import (
    MOST_LAYERS,
    Proposal,
    even_proposals,
    layer_table,
    propose,
)
from shardc.planner.request import most_microbatches, print_request, too_few_layers
from shardc.planner.shape_order import ShapeOrder
from shardc.planner.split_cache import Splits
from shardc.planner.user_shardings import in_conflict
from shardc.schedule.registry import schedule_named
from shardc.solver.interrupt import poll_between
from shardc.solver.solve import LimitError

MOST_PIPELINES = 9  # that are planned exactly, before the best of them is chosen
# Of solving a stage while shapes compete, and of the shape that won. Stages of more ops get as much
# more: a look at all of them takes that much longer.
CHOOSING_GAP, CHOOSING_EFFORT_S = 0.05, 5.0
FINAL_GAP, FINAL_EFFORT_S = 0.01, 20.0
OPS_FOR_EFFORT = 8_000
REFERENCE_MICROBATCHES = 4  # at which layers are priced; other counts are scaled from there
MOST_MICROBATCHES = 16  # tried for pipelines; more only helps deeper ones
MOST_TO_FIT = 64  # microbatches that are tried where fewer do not fit
FIRST_SOLVE = 0.25  # share of the time limit that a stage of the first shape gets at least
# Share of the time left for a stage of any shape, of the only one.
ANY_SOLVE, ONLY_SOLVE = 0.5, 0.85
# Shares of the time limit after which no more counts, whole meshes (beside pipelines, and alone),
# first pipelines and further pipelines are begun.
SPLITTING, ONE_STAGE, ONLY_ONE_STAGE, FIRST_PIPELINE, ONE_PIPELINE = 0.1, 0.3, 0.5, 0.6, 0.8
RERAISE = "SHARDC_RERAISE"  # set in the environment: a shape at which shardc fails ends planning
INTERRUPTED = "planning was interrupted; this is the best plan found until then"

Progress = Callable[[str], None]


def plan_program(
    module: Module,
    cluster: Cluster,
    options: PlanOptions,
    progress: Progress | None = None,
) -> Plan:
    """The best plan that was found for a prepared module; `module` is not changed.

    Where the program cannot be cut into the microbatches or stages that were asked for, the plan
    has the most microbatches that are possible, or as many stages as there are layers, and says so
    in `unmet`.
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
        self.alone = False  # only one shape is possible, but for the number of microbatches
        self.notes: list[str] = []
        self.unmet: list[str] = []
        self.splits = Splits(module, options.batch_args)
        self.outlined: tuple[Shape, Module] | None = None  # the last one, and its cuts
        self.limit = options.memory_limit_bytes or cluster.device.memory_bytes
        self.schedule = "1f1b" if options.schedule == "auto" else options.schedule
        schedule_named(self.schedule)
        self.best: Candidate | None = None
        self.infeasible: InfeasibleError | None = None
        self.first: Proposal | None = None  # that was planned
        self.bug: BugError | None = None  # the first that a shape brought up

    def run(self) -> Plan:
        self._check_stages()
        self._settle_microbatches()
        views = self._whole_views()
        pipelines = self.cluster.num_devices > 1 and self.options.stages != 1
        whole = not pipelines or self.options.stages == "auto"
        self.alone = alone = not pipelines and len(views) == 1
        try:
            if self.options.mesh != "auto":
                check_mesh_divides(self.splits.whole(self._first_count()), self.options.mesh)
            if whole:
                self._plan_whole(views, alone)
            if pipelines and not (self._only_whole_batches() or self._near_ideal()):
                self._unless_it_fails("pipelines", self._plan_pipelines)
            best = self.best if self._time_for_another() and not alone else None
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
        if self.options.microbatches != "auto":
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

    def _seconds_left(self) -> float:
        return self.options.time_limit_s - self._seconds_spent()

    def _solving_s(self) -> float:
        """Seconds for one stage; the first shape gets some even where none are left."""
        least_s = FIRST_SOLVE * self.options.time_limit_s if self.best is None else 1.0
        share = ONLY_SOLVE if self.alone else ANY_SOLVE
        return max(share * self._seconds_left(), least_s)

    def _time_for_another(self, share: float = 1.0) -> bool:
        """Whether one more shape can be planned within this share of the time limit."""
        return self._seconds_spent() + self.longest_s < share * self.options.time_limit_s

    # ---- one stage ----

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

    def _plan_whole(self, views: list[Mesh], alone: bool) -> None:
        """Plans one stage on each view, in the fewest microbatches that fit."""
        gap, effort_s = (FINAL_GAP, FINAL_EFFORT_S) if alone else (CHOOSING_GAP, CHOOSING_EFFORT_S)
        count: int | None = self._first_count()
        while count is not None:
            for number, proposal in enumerate(self._whole_proposals(count, views)):
                share = ONLY_ONE_STAGE if self.options.stages == 1 else ONE_STAGE
                if number > 0 and not self._time_for_another(share):
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

    # ---- pipelines ----

    def _only_whole_batches(self) -> bool:
        """Whether all is left to the planner, and the batch cannot be cut for a pipeline."""
        asked = self.options
        return asked.stages == asked.microbatches == "auto" and not self._can_split(2)

    def _near_ideal(self) -> bool:
        """Whether the best plan is as fast as the bubble alone allows any pipeline to be."""
        if self.best is None:
            return False
        return self.best.seconds <= self.best.ideal_s * (1.0 + 1.0 / MOST_MICROBATCHES)

    def _plan_pipelines(self) -> None:
        """Plans the most promising shapes exactly (all, where nothing is estimated), as long as one
        may be faster than the best so far, or nothing fits."""
        if self.best is not None and not self._time_for_another(FIRST_PIPELINE):
            return
        proposals = self._proposals()
        alone = len(proposals) == 1 and self.best is None
        gap, effort_s = (FINAL_GAP, FINAL_EFFORT_S) if alone else (CHOOSING_GAP, CHOOSING_EFFORT_S)
        order = ShapeOrder(proposals)
        while order.num_planned < MOST_PIPELINES:
            proposal = order.next(None if self.best is None else self.best.seconds)
            if proposal is None:
                break
            if self.best is not None and not self._time_for_another(ONE_PIPELINE):
                break
            found = self._try(proposal, gap, effort_s)
            order.planned(proposal, found.seconds if isinstance(found, Candidate) else None)

    def _proposals(self) -> list[Proposal]:
        """Shapes worth planning exactly, the most promising first; none if one stage is enough."""
        asked = self.options
        try:
            found = self._shapes()
        except StageError as error:
            if error.most is None:
                raise
            if asked.stages == "auto":
                self._note_fewer("stages", error.most, error)
                return []
            too_few = too_few_layers(self.splits, asked, error.most)
            if too_few is not None:
                self._take_fewer("microbatches", 1, too_few)
                return self._proposals()
            self._take_fewer("stages", error.most, error)
            asked = self.options
            found = self._shapes()
        found = [p for p in found if math.isfinite(p.step_time_s)]
        found.sort(key=lambda proposal: proposal.step_time_s)
        if not found and asked.stages != "auto":
            raise InfeasibleError(
                f"no pipeline of {asked.stages} stages fits into"
                f" {self.limit:,} bytes on each of {self.cluster.num_devices} devices",
                help="raise the memory limit, or use more devices, stages or microbatches",
            )
        return found

    def _shapes(self) -> list[Proposal]:
        asked = self.options
        if asked.stages == 1:
            return self._whole_proposals(self._first_count(), self._whole_views())
        counts = self._counts_of_pipelines()
        self.splits.cut_loops(MOST_LAYERS if asked.stages == "auto" else asked.stages, counts)
        if asked.stages == "auto" or len(counts) > 1:
            found = self._estimated(counts)
        else:
            # One microbatch gains no time in stages, and the cheapest ones would be left idle.
            (count,) = counts
            module = self.splits.in_layers(count)
            found = even_proposals(module, self.cluster, asked, count, self.schedule)
        cuts = self.splits.loop_cuts
        return [replace(p, shape=msgspec.structs.replace(p.shape, loop_cuts=cuts)) for p in found]

    def _estimated(self, counts: list[int]) -> list[Proposal]:
        """Proposals from the cost of layers, taken at one count and scaled to the others."""
        if not counts:
            return []
        reference = max(
            count for count in counts if count <= REFERENCE_MICROBATCHES or count == counts[0]
        )
        self.progress("estimating the layers")
        shape = None if self.options.mesh == "auto" else tuple(self.options.mesh)
        seconds = max(self._seconds_left() / 2, 1.0)
        module = self.splits.in_layers(reference)
        table = layer_table(module, self.cluster, shape, self.options, seconds)
        found = []
        for count in counts:
            module = self.splits.in_layers(count)
            scaled = table.for_microbatches(reference / count, module, self.options)
            some = propose(scaled, self.cluster, self.options, count, self.schedule, self.limit)
            alone = count == 1 and self.options.stages != "auto"
            found += (self._evenly(module, some) if alone else []) or some
        return found

    def _evenly(self, module: Module, found: list[Proposal]) -> list[Proposal]:
        """The same pipelines of one microbatch, which gains no time in stages, cut evenly."""
        even = even_proposals(module, self.cluster, self.options, 1, self.schedule)
        views = {proposal.shape.meshes[0].shape: proposal for proposal in even}
        return [
            replace(views[p.shape.meshes[0].shape], step_time_s=p.step_time_s)
            for p in found
            if p.shape.meshes[0].shape in views
        ]

    def _counts_of_pipelines(self) -> list[int]:
        """The numbers of microbatches to try; those that the program allows, for "auto"."""
        asked = self.options.microbatches
        if asked != "auto":
            return [asked]
        found = [] if self.options.stages == "auto" else [1]
        start_s = time.monotonic()
        count = 2
        while count <= MOST_MICROBATCHES and self._can_split(count):
            if RUNS in self.splits.whole(count).operation.attributes:
                break  # the first stage would go through the batch alone before the pipeline begins
            found.append(count)
            count *= 2
            late = time.monotonic() - start_s > SPLITTING * self.options.time_limit_s
            if late and count > REFERENCE_MICROBATCHES:
                break
        return found

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
        shape = self.splits.recut(proposal.shape)
        proposal = replace(proposal, shape=shape)
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

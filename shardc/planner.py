"""Choose the shape of the pipeline: microbatches, stages, their meshes and the schedule.

Alpa's two levels: what each layer costs on each submesh comes from the intra-operator solver, a
dynamic program joins layers into stages on submeshes (`shardc.stage_costs`), and the few best
shapes are planned exactly, as they will run, memory included. The one whose simulated schedule is
shortest wins.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from shardc.analysis.arguments import cut_dims
from shardc.analysis.mesh_fit import check_mesh_divides, on_asked_mesh
from shardc.analysis.stage_table import asked_names
from shardc.cluster import Cluster
from shardc.compiler import Shape, cut, shard, shardings_of, split, work_of
from shardc.cost.submeshes import mesh_of, mesh_views
from shardc.errors import InfeasibleError, MicrobatchError, PlanError, ShardcError, StageError
from shardc.ir.context import Module
from shardc.options import PlanOptions
from shardc.plan import Plan, Predicted, StagePlan, StageReport
from shardc.schedule.registry import SCHEDULES, generate, schedule_named
from shardc.schedule.simulate import Simulation, Times, simulate
from shardc.stage_costs import (
    Crossing,
    LayerTable,
    Proposal,
    crossing,
    even_proposals,
    layer_table,
    propose,
)

MOST_CANDIDATES = 3  # shapes that are planned and fit, before the best of them is chosen
MOST_MISFITS = 6  # shapes that are planned and do not fit, likewise
PROMISING = 2.0  # the first shape of a number of stages may be estimated so much slower
CHOOSING_GAP, CHOOSING_EFFORT_S = 0.05, 5.0  # of solving a stage while shapes compete
FINAL_GAP, FINAL_EFFORT_S = 0.01, 20.0  # of solving a stage of the shape that won
REFERENCE_MICROBATCHES = 4  # at which layers are priced; other counts are scaled from there
MOST_MICROBATCHES = 16  # tried for microbatches="auto"; more only helps deeper pipelines
INTERRUPTED = "planning was interrupted; this is the best plan found until then"

Progress = Callable[[str], None]


@dataclass(frozen=True)
class _Planned:
    proposal: Proposal
    module: Module
    reports: tuple[StageReport, ...]
    simulation: Simulation
    transfers: Crossing

    @property
    def shape(self) -> Shape:
        return self.proposal.shape

    @property
    def seconds(self) -> float:
        """Predicted step time."""
        return self.simulation.makespan_s

    @property
    def gap(self) -> float:
        """The largest share of any stage's cost by which it may miss the optimum."""
        return max(1.0 - r.lower_bound / r.objective if r.objective else 0.0 for r in self.reports)


def plan_program(
    module: Module,
    cluster: Cluster,
    options: PlanOptions,
    progress: Progress | None = None,
) -> Plan:
    """The best plan that was found for a prepared module; `module` is not changed.

    Where the program cannot be cut into the microbatches or stages that were asked for, the plan
    has one microbatch, or as many stages as there are layers, and says so in `unmet`.
    Ctrl-C returns the best plan so far.

    Raises:
        MicrobatchError: SHARDC-142, the batch does not divide into the microbatches asked for, but
            into others; SHARDC-141, the batch arguments that were named cannot be the batch.
        StageError: SHARDC-162, more stages than devices.
        InfeasibleError: SHARDC-220, no shape fits into the memory limit.
        KeyboardInterrupt: interrupted before there was any plan.
    """
    return _Planner(module, cluster, options, progress or (lambda text: None)).run()


def asked_prices(
    module: Module, plan: Plan, cluster: Cluster, options: PlanOptions
) -> dict[str, float]:
    """What each sharding that the user asks for costs: name -> seconds per step.

    The predicted step time of the plan's pipeline with it less that without it, each solved anew;
    so it may be off by as much as the solver may miss the optimum (1 %), below zero too.
    """
    return _Planner(module, cluster, options, lambda text: None).prices(plan)


class _Planner:
    def __init__(
        self, module: Module, cluster: Cluster, options: PlanOptions, progress: Progress
    ) -> None:
        self.module, self.cluster = module, cluster
        self.options = on_asked_mesh(module, options)
        self.progress = progress
        self.start_s = time.monotonic()
        self.notes: list[str] = []
        self.unmet: list[str] = []
        self.splits: dict[int, Module] = {}
        self.limit = options.memory_limit_bytes or cluster.device.memory_bytes

    def run(self) -> Plan:
        best: _Planned | None = None
        infeasible: InfeasibleError | None = None
        try:
            proposals = self._proposals()
            alone = len(proposals) == 1
            for planned in self._compete(proposals, CHOOSING_GAP if not alone else FINAL_GAP):
                if isinstance(planned, InfeasibleError):
                    infeasible = infeasible or planned
                elif best is None or planned.seconds < best.seconds:
                    best = planned
            if best is not None and best.gap > FINAL_GAP and not alone:
                best = self._refined(best)
        except KeyboardInterrupt:
            if best is None:
                raise
            self.notes.append(INTERRUPTED)
        if best is None:
            assert infeasible is not None
            raise self._in_conflict(proposals[0], infeasible)
        return self._plan(best)

    def _compete(
        self, proposals: list[Proposal], gap: float
    ) -> Iterator[_Planned | InfeasibleError]:
        """Plans the most promising shapes; of those that do not fit it yields the reason.

        The first of each number of stages comes first: estimates know no memory limit but a sum.
        """
        effort_s = CHOOSING_EFFORT_S if gap == CHOOSING_GAP else FINAL_EFFORT_S
        first = {len(p.shape.meshes): p for p in reversed(proposals)}  # of each number of stages
        promising = [
            proposal
            for proposal in sorted(first.values(), key=lambda p: p.step_time_s)
            if proposal.step_time_s <= PROMISING * proposals[0].step_time_s
        ]
        others = [proposal for proposal in proposals if proposal not in promising]
        fitting = 0
        misfits: list[Shape] = []
        for proposal in [*promising, *others]:
            if any(_needs_no_less(proposal.shape, other) for other in misfits):
                continue
            if fitting and proposal in others:
                late = self._seconds_left() < self.options.time_limit_s / 2
                if late or fitting >= MOST_CANDIDATES or len(misfits) >= MOST_MISFITS:
                    break
            try:
                yield self._plan_exactly(proposal, gap, effort_s)
                fitting += 1
            except InfeasibleError as error:
                misfits.append(proposal.shape)
                yield error

    def _refined(self, best: _Planned) -> _Planned:
        """The shape that won, with its shardings closer to the optimum."""
        try:
            again = self._plan_exactly(best.proposal, FINAL_GAP, FINAL_EFFORT_S)
        except InfeasibleError:  # found in time the first time only
            return best
        return min(best, again, key=lambda planned: planned.seconds)

    def _in_conflict(self, proposal: Proposal, error: InfeasibleError) -> InfeasibleError:
        """`error`, with the shardings that the user asks for that leave too little memory."""
        names = self._asked(proposal)
        in_the_way = [name for name in names if self._fits(proposal, [name])]
        if not in_the_way and len(names) > 1 and self._fits(proposal, names):
            in_the_way = [f"all of {', '.join(names)} together"]
        if not in_the_way:
            return error
        return InfeasibleError(
            f"{error.message}; it would fit without what is asked for by {' or '.join(in_the_way)}",
            where=error.where,
            help="split that further, leave it to the planner, or raise the memory limit",
        )

    def _asked(self, proposal: Proposal) -> list[str]:
        outlined = cut(self.splits[proposal.shape.num_microbatches], proposal.shape)
        with outlined.context:
            return asked_names(outlined.operation)

    def _fits(self, proposal: Proposal, ignored: Sequence[str]) -> bool:
        try:
            self._plan_exactly(proposal, CHOOSING_GAP, CHOOSING_EFFORT_S, ignored)
        except InfeasibleError:
            return False
        return True

    def prices(self, plan: Plan) -> dict[str, float]:
        """See `asked_prices`."""
        count = plan.num_microbatches
        self.splits[count] = split(self.module, count, plan.batch_arguments, plan.batch_dims)
        shape = Shape(
            count,
            tuple(stage.cut for stage in plan.stages[1:]),
            tuple(stage.mesh for stage in plan.stages),
            plan.schedule,
            plan.batch_arguments,
        )
        proposal = Proposal(shape, 0.0, tuple(stage.layers for stage in plan.stages))

        def step_s(ignored: Sequence[str]) -> float:
            return self._plan_exactly(proposal, FINAL_GAP, FINAL_EFFORT_S, ignored).seconds

        names = self._asked(proposal)
        whole_s = step_s(()) if names else 0.0
        return {name: whole_s - step_s([name]) for name in names}

    def _seconds_left(self) -> float:
        return self.options.time_limit_s - (time.monotonic() - self.start_s)

    def _proposals(self) -> list[Proposal]:
        """Shapes worth planning exactly, the most promising first."""
        self._check_stages()
        counts = self._microbatch_counts()
        if self.options.mesh != "auto":
            check_mesh_divides(self.splits[counts[0]], self.options.mesh)
        try:
            found = self._shapes(counts)
        except StageError as error:
            if error.most is None:
                raise
            self._note_fewer("stages", error.most, error)
            self.options = msgspec.structs.replace(self.options, stages=error.most)
            found = self._shapes(counts)
        found = [p for p in found if math.isfinite(p.step_time_s)]
        found.sort(key=lambda proposal: proposal.step_time_s)
        if not found:
            raise InfeasibleError(
                f"no pipeline of {self.options.stages} stages fits into"
                f" {self.limit:,} bytes on each of {self.cluster.num_devices} devices",
                help="raise the memory limit, or use more devices, stages or microbatches",
            )
        return found

    def _shapes(self, counts: list[int]) -> list[Proposal]:
        found: list[Proposal] = []
        if self.cluster.num_devices == 1 or self.options.stages == 1:
            for count in counts:
                found += self._one_stage(count, self._schedule())
        elif self.options.stages != "auto" and self.options.microbatches != "auto":
            found += even_proposals(
                self.splits[counts[0]], self.cluster, self.options, counts[0], self._schedule()
            )
        else:
            found += self._estimated(counts)
        return found

    def _check_stages(self) -> None:
        asked, devices = self.options.stages, self.cluster.num_devices
        if asked != "auto" and asked > devices:
            raise StageError(
                f"{asked} stages were asked for, and cluster '{self.cluster.name}' has {devices}"
                f" device{'s' * (devices != 1)}",
                help=f"ask for at most {devices} stages, or for a larger cluster",
                code="SHARDC-162",
            )

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

    def _estimated(self, counts: list[int]) -> list[Proposal]:
        """Proposals from the cost of layers, taken at one count and scaled to the others."""
        reference = max(
            count for count in counts if count <= REFERENCE_MICROBATCHES or count == counts[0]
        )
        self.progress("estimating the layers")
        table = layer_table(self.splits[reference], self.cluster, self._mesh_shape(), self.options)
        found = []
        for count in counts:
            scaled = table.for_microbatches(reference / count, self.splits[count], self.options)
            found += self._proposals_for(count, scaled)
        return found

    def _microbatch_counts(self) -> list[int]:
        """The counts to try; those that the program allows, for "auto"."""
        asked, batch_args = self.options.microbatches, self.options.batch_args
        most = MOST_MICROBATCHES if self.options.stages != 1 else 1
        doubling = [2**k for k in range(most.bit_length())]
        for count in doubling if asked == "auto" else [asked]:
            try:
                self.splits[count] = split(self.module, count, batch_args)
            except MicrobatchError as error:
                no_batch = error.code == "SHARDC-141" and batch_args is None
                if asked != "auto" and not (no_batch or error.code == "SHARDC-140"):
                    raise
                if not self.splits.keys() - {1}:
                    self._note_fewer("microbatches", 1, error)
                    self.splits[1] = split(self.module, 1, batch_args)
                break
        return list(self.splits)

    def _schedule(self) -> str:
        schedule = self.options.schedule
        if schedule == "auto":
            return "1f1b"
        schedule_named(schedule)
        return schedule

    def _proposals_for(self, count: int, table: LayerTable) -> list[Proposal]:
        schedule, asked = self._schedule(), self.options.stages
        found = []
        if asked == "auto":
            found += self._one_stage(count, schedule, table)
        if asked != "auto" or count > 1:
            found += propose(table, self.cluster, self.options, count, schedule, self.limit)
        return found

    def _mesh_shape(self) -> tuple[int, ...] | None:
        return None if self.options.mesh == "auto" else tuple(self.options.mesh)

    def _one_stage(
        self, count: int, schedule: str, table: LayerTable | None = None
    ) -> list[Proposal]:
        """All devices as one mesh; every view of it, or the one that was asked for."""
        shape = self._mesh_shape()
        if shape is not None:
            if math.prod(shape) > self.cluster.num_devices:
                raise PlanError(
                    f"the mesh {'x'.join(map(str, shape))} needs {math.prod(shape)} devices and"
                    f" cluster '{self.cluster.name}' has {self.cluster.num_devices}",
                    help="use a smaller mesh or a larger cluster",
                    code="SHARDC-101",
                )
            views = [mesh_of(shape, range(math.prod(shape)), self.options.mesh_axes)]
        else:
            views = mesh_views(self.cluster, 0, self.cluster.num_devices)
        return [
            Proposal(
                Shape(count, (), (view,), schedule, self.options.batch_args),
                table.one_stage_s(view, count, schedule, self.limit) if table is not None else 0.0,
                ((),),
            )
            for view in views
        ]

    def _plan_exactly(
        self, proposal: Proposal, gap: float, effort_s: float, ignored: Sequence[str] = ()
    ) -> _Planned:
        shape = proposal.shape
        sizes = "+".join("x".join(map(str, mesh.shape)) for mesh in shape.meshes)
        self.progress(
            f"planning {len(shape.meshes)} stages on {sizes}, {shape.num_microbatches} microbatches"
        )
        outlined = cut(self.splits[shape.num_microbatches], shape)
        work = work_of(outlined, shape.num_microbatches)
        kind = SCHEDULES[shape.schedule]
        stashes = [kind.peak_activations(stage, work) for stage in range(work.num_stages)]
        module, reports = shard(
            outlined,
            self.cluster,
            stashes=stashes,
            memory_limit_bytes=self.limit,
            time_limit_s=max(self._seconds_left() / 2, 1.0),
            effort_s=effort_s,
            seed=self.options.seed,
            gap=gap,
            ignored=ignored,
        )
        transfers = crossing(module, self.cluster)
        times = [
            Times(
                forward_s=report.seconds.get("forward", 0.0),
                backward_s=report.seconds.get("backward", 0.0),
                weight_s=0.0,
                prologue_s=report.seconds.get("before", 0.0),
                update_s=report.seconds.get("update", 0.0),
            )
            for report in reports
        ]
        schedule = generate(shape.schedule, work)
        simulation = simulate(schedule, work, times, transfers.slowest_s)
        return _Planned(proposal, module, reports, simulation, transfers)

    def _plan(self, best: _Planned) -> Plan:
        shape, reports = best.shape, best.reports
        cuts = (0, *shape.cuts)
        stages = tuple(
            StagePlan(
                mesh=mesh,
                layers=best.proposal.layers[stage],
                cut=cuts[stage],
                num_flops=reports[stage].num_flops,
                time_s=reports[stage].seconds.get("forward", 0.0)
                + reports[stage].seconds.get("backward", 0.0),
                peak_bytes=reports[stage].peak_bytes,
                objective=reports[stage].objective,
                lower_bound=reports[stage].lower_bound,
            )
            for stage, mesh in enumerate(shape.meshes)
        )
        notes = [*self.unmet, *self.notes]
        for name in sorted({note for report in reports for note in report.notes}):
            notes.append(f"replicated for want of a sharding rule: {name}")
        sent = sum(
            report.communication_bytes * len(mesh.device_ids)
            for report, mesh in zip(reports, shape.meshes, strict=True)
        )
        batch = cut_dims(self.splits[shape.num_microbatches].operation)
        return Plan(
            num_stages=len(stages),
            num_microbatches=shape.num_microbatches,
            schedule=shape.schedule,
            stages=stages,
            shardings=shardings_of(best.module),
            predicted=Predicted(
                step_time_s=best.seconds,
                peak_bytes_per_device=max(report.peak_bytes for report in reports),
                communication_bytes=sent + best.transfers.num_bytes * shape.num_microbatches,
                compute_s=max(report.objective for report in reports),
                bubble_fraction=best.simulation.bubble_ratio,
            ),
            objective=sum(report.objective for report in reports),
            lower_bound=sum(report.lower_bound for report in reports),
            planning_time_s=time.monotonic() - self.start_s,
            notes=tuple(notes),
            unmet=tuple(self.unmet),
            cluster=self.cluster,
            batch_arguments=tuple(batch),
            batch_dims=tuple(batch.values()),
        )


def _needs_no_less(shape: Shape, other: Shape) -> bool:
    """Whether `shape` is `other` with as large or larger microbatches."""
    return (len(shape.cuts), shape.meshes, shape.schedule) == (
        len(other.cuts),
        other.meshes,
        other.schedule,
    ) and shape.num_microbatches <= other.num_microbatches

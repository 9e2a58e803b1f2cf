"""A pipeline shape that was planned exactly, and its conversion to a plan."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from shardc.analysis.program.arguments import cut_dims
from shardc.cluster import Cluster
from shardc.compiler import shard, shardings_of
from shardc.cutting import work_of
from shardc.errors import InfeasibleError
from shardc.ir.attributes import (
    CASTS,
    FISSIONS,
    LOOKUPS,
    ROW_CONFLICTS,
    get_int,
)
from shardc.ir.calls import called, calls_in
from shardc.ir.context import Module
from shardc.ir.walk import main_function
from shardc.options import PlanOptions
from shardc.plan.alternatives import Alternative, split_step
from shardc.plan.decisions import Plan, StagePlan, check_below, check_bounds
from shardc.plan.notes import Data, Note, NoteCode
from shardc.plan.predicted import Predicted, Replicated, StageReport
from shardc.plan.shape import PipelineShape
from shardc.plan.stages_spec import StageSpec
from shardc.planner.proposal import Proposal
from shardc.planner.record.residency_notes import (
    cast_notes,
    kept_between,
    kept_notes,
    kept_values,
    residency_notes,
    sweep_notes,
)
from shardc.planner.schedules.step_time import StepTime, step_time
from shardc.schedule.registry import schedule_named
from shardc.schedule.tasks import print_lanes
from shardc.solver.solve import LimitError

WORTH_A_NOTE = 0.01  # ops with at least this share of the step, or of its FLOPs, get a note


def plan_exactly(
    outlined: Module,
    proposal: Proposal,
    cluster: Cluster,
    options: PlanOptions,
    *,
    time_limit_s: float,
    effort_s: float,
    gap: float,
    cutoff_s: float = math.inf,
    ignored: Sequence[str] = (),
    asked: Sequence[StageSpec] = (),
) -> "Candidate":
    """Solves the shardings of a shape and simulates its schedule.

    Args:
        outlined: the stage functions of the shape.
        cutoff_s: longer steps are useless; a stage's part of the step is a lower bound.
        time_limit_s: for all stages together, by the clock.
        effort_s, gap: as in `shardc.solver.solve`, for each stage.
        ignored: names of requested shardings to ignore.
        asked: the patterns of a hand-written plan, per stage.
    Raises:
        InfeasibleError: it does not fit.
    """
    shape = proposal.shape
    family = schedule_named(shape.schedule)
    work = family.work(work_of(outlined, shape), shape.num_chunks, shape.num_slices)
    module, reports = shard(
        outlined,
        shape.meshes,
        cluster,
        stashes=family.in_flight(work) * shape.num_replicas,
        memory_limit_bytes=options.memory_limit_bytes,
        time_limit_s=time_limit_s,
        effort_s=effort_s,
        seed=options.seed,
        gap=gap,
        equal_layers=options.equal_layers,
        cutoff_s=cutoff_s,
        ignored=ignored,
        asked=asked,
        late_sums=options.late_sums,
    )
    step = step_time(module, shape, reports, cluster, family)
    software = cluster.device.software
    return Candidate(proposal, module, reports, step, software.step_s, software.gradient_overlap)


@dataclass(frozen=True)
class Candidate:
    """A shape with its shardings and their predicted cost."""

    proposal: Proposal
    module: Module
    reports: tuple[StageReport, ...]
    step: StepTime
    host_s: float = 0.0  # fixed host time of a step
    hidden: float = 0.0  # hidden share of the gradient reduction

    @property
    def shape(self) -> PipelineShape:
        return self.proposal.shape

    @property
    def seconds(self) -> float:
        """Predicted step time."""
        return self.step.seconds + self.host_s

    @property
    def least_seconds(self) -> float:
        """A lower bound for any order of the stages, as `StepTime.lower_bound_s`; 0.0 if none is
        known."""
        return self.step.least_seconds and self.step.least_seconds + self.host_s

    @property
    def peak_bytes(self) -> int:
        """Peak bytes of the fullest device."""
        peaks = [report.peak_bytes for report in self.reports]
        return max(group.total(peaks) for group in self.shape.groups)

    @property
    def objective(self) -> float:
        """Seconds per step of the busiest device group, without overlapped time."""
        seconds = self._longest([report.objective for report in self.reports])
        if self.hidden == 0.0:
            return seconds
        busy: dict[int, float] = {}
        for each in self.step.simulation.timeline:
            taken = float(each.end_s - each.start_s)
            busy[each.device] = busy.get(each.device, 0.0) + taken
        return min(seconds, max(busy.values(), default=math.inf))

    @property
    def lower_bound(self) -> float:
        """Proven: no choice of shardings makes a step of this shape shorter. Allows for the share
        that may be hidden."""
        seconds = self._longest([report.lower_bound for report in self.reports])
        return seconds * (1.0 - self.hidden)

    def _longest(self, seconds: Sequence[float]) -> float:
        """The largest total of the stages of one device group."""
        return max(group.total(seconds) for group in self.shape.groups)

    def judged(self, name: str) -> Alternative:
        """The candidate among alternatives; `name` is its proposer."""
        terms = split_step(self.seconds, self.shape.meshes, self.reports)
        return structs.replace(self.proposal.judged(name), exact=terms)

    @property
    def ideal_s(self) -> float:
        """Step time if all ops were split evenly over all devices and nothing were sent."""
        meshes = self.shape.meshes
        work = sum(r.ideal_s * len(m.device_ids) for r, m in zip(self.reports, meshes, strict=True))
        return work / len({device for mesh in meshes for device in mesh.device_ids})

    @property
    def gap(self) -> float:
        """The largest relative gap to the optimum of any stage."""
        return max(1.0 - r.lower_bound / r.objective if r.objective else 0.0 for r in self.reports)

    def with_bounds_of(self, other: "Candidate") -> "Candidate":
        """The same, with the bounds that `other`, the same shape, has proven for its stages."""
        reports = tuple(
            structs.replace(own, lower_bound=max(own.lower_bound, theirs.lower_bound))
            for own, theirs in zip(self.reports, other.reports, strict=True)
        )
        return replace(self, reports=reports)

    def check_bounds(self) -> None:
        """Asserts that no lower bound exceeds its value; called for every planned shape."""
        check_below(
            (self.lower_bound, self.objective),
            (self.objective, self.seconds),
            (self.least_seconds, self.seconds),
            *((report.lower_bound, report.objective) for report in self.reports),
        )

    def plan(
        self, split_module: Module, cluster: Cluster, notes: Sequence[Note], planning_time_s: float
    ) -> Plan:
        """The plan as data; `split_module` is the module its stages were cut from."""
        shape, reports = self.shape, self.reports
        cuts, layers = (0, *shape.cuts), self.proposal.layers
        num_stages = shape.num_stages
        between = kept_between(split_module)
        kept = kept_values(self.module) or ((),) * num_stages
        stages = tuple(
            StagePlan(
                mesh=mesh,
                layers=layers[stage],
                cut=cuts[stage],
                num_flops=report.num_flops,
                time_s=report.microbatch_s,
                peak_bytes=report.peak_bytes,
                memory=report.memory,
                objective=report.objective,
                lower_bound=report.lower_bound,
                num_folded=report.num_folded,
                folded_objective=report.folded_objective,
                communication_s=report.communication_s,
                recompute=shape.residency_of(stage).in_flight,
                values=kept[stage],
                num_whole_flops=sum(each.num_flops for each in report.replicated),
                collectives=report.collectives,
            )
            for (stage, _), mesh, report in zip(
                shape.placements, shape.meshes, reports, strict=True
            )
        )
        sent = sum(
            report.communication_bytes * len(mesh.device_ids)
            for report, mesh in zip(reports, shape.meshes, strict=True)
        )
        batch = cut_dims(split_module.operation)
        plan = Plan(
            num_stages=num_stages // shape.num_chunks,
            num_microbatches=shape.num_microbatches,
            schedule=shape.schedule,
            stages=stages,
            shardings=shardings_of(self.module),
            predicted=Predicted(
                step_time_s=self.seconds,
                peak_bytes_per_device=self.peak_bytes,
                communication_bytes=sent + self.step.sent_bytes,
                compute_s=self.objective,
                bubble_fraction=float(self.step.simulation.bubble_ratio),
                next_step_s=self.step.next_seconds + self.host_s,
            ),
            objective=self.objective,
            lower_bound=self.lower_bound,
            planning_time_s=planning_time_s,
            notes=(
                *notes,
                *sweep_notes(split_module),
                *call_notes(split_module),
                *rewriting_notes(split_module),
                *cast_notes(split_module),
                *residency_notes(shape),
                *rate_notes(reports, cluster),
                *kept_notes(kept),
                *replication_notes(reports),
                *folding_notes(reports),
            ),
            cluster=cluster,
            batch_arguments=tuple(batch),
            batch_dims=tuple(batch.values()),
            loop_cuts=shape.loop_cuts,
            num_chunks=shape.num_chunks,
            num_replicas=shape.num_replicas,
            num_slices=shape.num_slices,
            gather=shape.gather,
            cast_once=CASTS in split_module.operation.attributes,
            keep_price=between.price if between else 0.0,
            lanes=print_lanes(self.step.schedule),
        )
        check_bounds(plan)
        return plan


def call_notes(module: Module) -> list[Note]:
    """The number of calls planned as single ops, if any."""
    calls = [called(call) for call in calls_in(main_function(module.operation))]
    data: Data = {"count": len(calls), "functions": len(set(calls))}
    return [Note(NoteCode.CALLS, data)] if calls else []


def rewriting_notes(module: Module) -> list[Note]:
    """Products that became lookups, loops that were split, stacks read along two dims, if any."""
    counted = {
        NoteCode.LOOKUPS: LOOKUPS,
        NoteCode.FISSIONS: FISSIONS,
        NoteCode.ROW_CONFLICTS: ROW_CONFLICTS,
    }
    return [
        Note(code, {"count": count})
        for code, name in counted.items()
        if (count := get_int(module.operation, name))
    ]


def rate_notes(reports: Sequence[StageReport], cluster: Cluster) -> list[Note]:
    """The dtypes of products for which the cluster has no rate of their own, if any."""
    works = {
        work
        for report in reports
        for asked in report.asked.values()
        for each in asked
        for work, _ in each.work
        if work.product
    }
    device = cluster.device
    missing = sorted({work.dtype for work in works if not device.has_rate(work.dtype)})
    data: Data = {"device": device.name, "dtypes": ", ".join(missing)}
    return [Note(NoteCode.DEFAULT_RATE, data)] if missing else []


def folding_notes(reports: Sequence[StageReport]) -> list[Note]:
    """An upper bound on the cost of sharing shardings between equal layers, if they do."""
    tied = [report for report in reports if report.objective == report.folded_objective]
    if not tied:
        return []
    objective = sum(report.objective for report in tied)
    more = objective / max(sum(report.lower_bound for report in tied), 1e-300) - 1.0
    count = sum(report.num_folded for report in tied)
    return [Note(NoteCode.FOLDED, {"count": count, "cost": more})]


def replication_notes(reports: Sequence[StageReport]) -> list[Note]:
    """The ops that devices run whole, and their cost; cheap ones are omitted, unless they lack
    a rule."""
    step_s = sum(report.objective for report in reports) or 1.0
    num_flops = sum(report.num_flops for report in reports) or 1
    found: dict[tuple[str, str], Replicated] = {}
    for each in (each for report in reports for each in report.replicated):
        known = found.get((each.op, each.why), Replicated(each.op, each.why, 0, 0.0, 0))
        found[each.op, each.why] = Replicated(
            each.op,
            each.why,
            known.num_ops + each.num_ops,
            known.seconds + each.seconds,
            known.num_flops + each.num_flops,
        )
    notes = []
    for each in sorted(found.values(), key=lambda each: -each.seconds):
        time_share, flops_share = each.seconds / step_s, each.num_flops / num_flops
        if each.why == "rule" or max(time_share, flops_share) >= WORTH_A_NOTE:
            data: Data = {"op": each.op, "why": each.why, "count": each.num_ops}
            data |= {"seconds": each.seconds, "time_share": time_share, "flops_share": flops_share}
            notes.append(Note(NoteCode.REPLICATED, data))
    return notes


def says_more(error: InfeasibleError, other: InfeasibleError) -> bool:
    """Whether `error` has less missing memory than `other`."""
    if not isinstance(error, LimitError) or not isinstance(other, LimitError):
        return isinstance(error, LimitError)
    return error.missing_bytes < other.missing_bytes

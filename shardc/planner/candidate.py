"""A shape of the pipeline that was planned exactly, and the plan that it becomes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from shardc.analysis.program.arguments import cut_dims
from shardc.cluster import Cluster
from shardc.compiler import Shape, shard, shardings_of, work_of
from shardc.errors import InfeasibleError
from shardc.ir.attributes import FISSIONS, LOOKUPS, ROW_CONFLICTS, RUNS, get_int, get_str
from shardc.ir.calls import called, calls_in
from shardc.ir.context import Module
from shardc.ir.walk import main_function
from shardc.options import PlanOptions
from shardc.plan.decisions import Plan, StagePlan, check_bounds
from shardc.plan.predicted import Predicted, Replicated, StageReport
from shardc.planner.proposal import Crossing, Proposal, crossing
from shardc.schedule.registry import executable_schedule
from shardc.schedule.simulate import Simulation, simulate
from shardc.schedule.times import Times, durations
from shardc.solver.solve import LimitError

WORTH_A_NOTE = 0.01  # share of the step that ops must take, or of its FLOPs, to be named in a note


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
) -> "Candidate":
    """Solves the shardings of a shape and simulates its schedule.

    Args:
        outlined: the stage functions of the shape.
        cutoff_s: a step that takes longer is not wanted: none is shorter than a stage's part of it.
        time_limit_s, effort_s, gap: as of `shardc.solver.solve`, for each stage.
        ignored: names of shardings that the user asks for and that shall not hold.
    Raises:
        InfeasibleError: it does not fit.
    """
    shape = proposal.shape
    family = executable_schedule(shape.schedule)
    work = family.work(work_of(outlined, shape.num_microbatches))
    module, reports = shard(
        outlined,
        shape.meshes,
        cluster,
        stashes=family.in_flight(work),
        memory_limit_bytes=options.memory_limit_bytes or cluster.device.memory_bytes,
        time_limit_s=time_limit_s,
        effort_s=effort_s,
        seed=options.seed,
        gap=gap,
        equal_layers=options.equal_layers,
        cutoff_s=cutoff_s,
        ignored=ignored,
    )
    transfers = crossing(module, cluster)
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
    schedule = family.generate(work)
    simulation = simulate(
        schedule,
        family.graph(work, schedule),
        durations(work, times),
        lambda need: transfers.seconds.get((need.source, need.target), 0.0),
    )
    return Candidate(proposal, module, reports, simulation, transfers)


@dataclass(frozen=True)
class Candidate:
    """A shape with its shardings, and what they are predicted to take."""

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
        return float(self.simulation.makespan_s)

    @property
    def ideal_s(self) -> float:
        """Step time if all ops were split evenly over all devices and nothing were sent."""
        sizes = [len(mesh.device_ids) for mesh in self.shape.meshes]
        work = sum(r.ideal_s * size for r, size in zip(self.reports, sizes, strict=True))
        return work / sum(sizes)

    @property
    def gap(self) -> float:
        """The largest share of any stage's cost by which it may miss the optimum."""
        return max(1.0 - r.lower_bound / r.objective if r.objective else 0.0 for r in self.reports)

    def with_bounds_of(self, other: "Candidate") -> "Candidate":
        """The same with what `other`, the same shape, has proven of its stages, too."""
        reports = tuple(
            structs.replace(own, lower_bound=max(own.lower_bound, theirs.lower_bound))
            for own, theirs in zip(self.reports, other.reports, strict=True)
        )
        return replace(self, reports=reports)

    def plan(
        self, split_module: Module, cluster: Cluster, notes: Sequence[str], planning_time_s: float
    ) -> Plan:
        """All of it as data; `split_module` is what its stages were cut out of."""
        shape, reports = self.shape, self.reports
        cuts = (0, *shape.cuts)
        stages = tuple(
            StagePlan(
                mesh=mesh,
                layers=self.proposal.layers[stage],
                cut=cuts[stage],
                num_flops=reports[stage].num_flops,
                time_s=reports[stage].seconds.get("forward", 0.0)
                + reports[stage].seconds.get("backward", 0.0),
                peak_bytes=reports[stage].peak_bytes,
                memory=reports[stage].memory,
                objective=reports[stage].objective,
                lower_bound=reports[stage].lower_bound,
                num_folded=reports[stage].num_folded,
                folded_objective=reports[stage].folded_objective,
                num_whole_flops=sum(each.num_flops for each in reports[stage].replicated),
                collectives=reports[stage].collectives,
            )
            for stage, mesh in enumerate(shape.meshes)
        )
        sent = sum(
            report.communication_bytes * len(mesh.device_ids)
            for report, mesh in zip(reports, shape.meshes, strict=True)
        )
        batch = cut_dims(split_module.operation)
        plan = Plan(
            num_stages=len(stages),
            num_microbatches=shape.num_microbatches,
            schedule=shape.schedule,
            stages=stages,
            shardings=shardings_of(self.module),
            predicted=Predicted(
                step_time_s=self.seconds,
                peak_bytes_per_device=max(report.peak_bytes for report in reports),
                communication_bytes=sent + self.transfers.num_bytes * shape.num_microbatches,
                compute_s=max(report.objective for report in reports),
                bubble_fraction=float(self.simulation.bubble_ratio),
            ),
            objective=max(report.objective for report in reports),
            lower_bound=max(report.lower_bound for report in reports),
            planning_time_s=planning_time_s,
            notes=(
                *notes,
                *run_notes(split_module),
                *call_notes(split_module),
                *rewriting_notes(split_module),
                *replication_notes(reports),
                *folding_notes(reports),
            ),
            cluster=cluster,
            batch_arguments=tuple(batch),
            batch_dims=tuple(batch.values()),
            loop_cuts=shape.loop_cuts,
        )
        check_bounds(plan)
        return plan


def run_notes(module: Module) -> list[str]:
    """Why the microbatches are run through several times, if they are."""
    why = get_str(module.operation, RUNS)
    return [] if why is None else [why]


def call_notes(module: Module) -> list[str]:
    """How many calls were not looked into, if any."""
    calls = [called(call) for call in calls_in(main_function(module.operation))]
    if not calls:
        return []
    return [
        f"each of {len(calls)} calls is planned as one op, because with all calls inlined the"
        f" program would be too large; they run {len(set(calls))} functions"
    ]


def rewriting_notes(module: Module) -> list[str]:
    """Products that look rows up, loops that have become two, stacks read in two ways, if any."""
    lookups, fissions = (get_int(module.operation, name) for name in (LOOKUPS, FISSIONS))
    notes = []
    if lookups:
        notes.append(
            f"{lookups} products with one-hot matrices are done as lookups of rows and sums into"
            " rows"
        )
    if fissions:
        notes.append(
            f"{fissions} loop{'s' * (fissions > 1)} over layers became two: one makes the sums over"
            " the whole batch that the other waits for; what both need, both compute"
        )
    if conflicts := get_int(module.operation, ROW_CONFLICTS):
        notes.append(
            f"{conflicts} stack{'s' * (conflicts > 1)} of layers that ops read along two dims:"
            " stages may hold rows of other stages"
        )
    return notes


def folding_notes(reports: Sequence[StageReport]) -> list[str]:
    """What it costs at most that equal layers share their shardings, where they do."""
    tied = [report for report in reports if report.objective == report.folded_objective]
    if not tied:
        return []
    objective = sum(report.objective for report in tied)
    more = objective / max(sum(report.lower_bound for report in tied), 1e-300) - 1.0
    return [
        f"equal layers share their shardings ({sum(report.num_folded for report in tied)} ops and"
        f" values are like others), which costs at most {more:.2%} (proven)"
    ]


_WHY = {
    "rule": "for want of a sharding rule",
    "strategy": "for want of a strategy",
    "choice": "because splitting it costs more",
}


def replication_notes(reports: Sequence[StageReport]) -> list[str]:
    """What devices run whole and what that takes; little things are left out, unless there is no
    rule for them."""
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
            times = f" ({each.num_ops} times)" if each.num_ops > 1 else ""
            notes.append(
                f"replicated {_WHY[each.why]}: {each.op}{times},"
                f" {1e3 * each.seconds:.3g} ms per step ({time_share:.1%}),"
                f" {flops_share:.1%} of the FLOPs"
            )
    return notes


def says_more(error: InfeasibleError, other: InfeasibleError) -> bool:
    """Whether `error` tells of less memory that is missing."""
    if not isinstance(error, LimitError) or not isinstance(other, LimitError):
        return isinstance(error, LimitError)
    return (error.peak_bytes or error.least_bytes) < (other.peak_bytes or other.least_bytes)

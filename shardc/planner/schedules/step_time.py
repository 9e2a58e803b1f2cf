"""The step time of planned stages: their schedule, simulated with their times."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shardc.analysis.program.stage_table import result_values
from shardc.backend.extract import argument_specs, function_values
from shardc.cluster import Cluster
from shardc.cost.model import CostModel
from shardc.cutting import work_of
from shardc.ir.context import Module
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import Mesh
from shardc.plan.predicted import StageReport
from shardc.plan.program_graph import between_steps, program_graph
from shardc.plan.shape import PipelineShape
from shardc.plan.value_id import is_argument, value_id
from shardc.planner.budget import BUDGET
from shardc.planner.schedules.ports import ports
from shardc.schedule.family import Costs, ScheduleFamily, most_held
from shardc.schedule.next_step import next_step_s
from shardc.schedule.simulate import Simulation, Ways, simulate
from shardc.schedule.tasks import ONCE_PER_STEP, Need, Schedule, TaskGraph
from shardc.schedule.times import Edge, Times, Transfers, durations, edge_of
from shardc.schedule.work import Work


class Copies(NamedTuple):
    """The weights sent to second copies of stages in each step: bytes and seconds."""

    num_bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class StepTime:
    """A schedule with the predicted times of its programs.

    Attributes:
        graph: the dependences of the schedule's tasks.
        next_s: simulates what one more step adds (`shardc.schedule.next_step`): less than the
            makespan if device groups that end early begin the next step before the last one has
            ended. Plans say it; of schedules that are only compared nobody asks for it.
        copies: the weights sent to second copies of stages when the step begins.
        lower_bound_s: no order of these stages within the same memory has a shorter makespan; 0.0
            if nothing was proven, as for every family that does not search.
    """

    schedule: Schedule
    simulation: Simulation
    graph: TaskGraph
    next_s: Callable[[], float]
    copies: Copies = field(default_factory=Copies)
    lower_bound_s: float = 0.0

    @property
    def seconds(self) -> float:
        """Of the whole step; sending copies is assumed not to overlap with anything."""
        return self.copies.seconds + float(self.simulation.makespan_s)

    @property
    def next_seconds(self) -> float:
        """What one more step adds, with the same assumption."""
        return self.copies.seconds + self.next_s()

    @property
    def least_seconds(self) -> float:
        """A lower bound for any order; 0.0 if none is known."""
        return self.lower_bound_s and self.copies.seconds + self.lower_bound_s

    @property
    def sent_bytes(self) -> int:
        """Bytes that cross between device groups in a step, each message once."""
        sent = {
            (need.task, need.target): int(need.num_bytes)
            for needs in self.graph.needs.values()
            for need in needs
            if need.source != need.target
        }
        return sum(sent.values()) + self.copies.num_bytes


def step_time(
    module: Module,
    shape: PipelineShape,
    reports: Sequence[StageReport],
    cluster: Cluster,
    family: ScheduleFamily,
) -> StepTime:
    """Simulates the schedule of a shape, with transfers and stashes derived from its programs.

    A family whose order depends on times is also asked with those of the stages and transfers; that
    order is used only if it holds no more microbatches than memory was planned for.

    Args:
        module: the stage functions of the shape.
        reports: one per stage.
    """
    work = family.work(work_of(module, shape), shape.num_chunks, shape.num_slices)
    model = CostModel(cluster)
    times = tuple(
        stage_times(report, mesh, work, model.on(mesh))
        for report, mesh in zip(reports, shape.meshes, strict=True)
    )
    programs = _Programs(module, shape, family, work, times, model)
    first = programs.simulated(family.generate(work))
    planned = family.in_flight(work)
    costs = Costs(
        times,
        programs.transfers(first.graph),
        effort_s=BUDGET.order_effort_s,
        most_held=planned,
        barrier=True,
    )
    own = family.generate(work, costs)
    first = dataclasses.replace(first, lower_bound_s=programs.bound_s(costs))
    if own == first.schedule or any(
        more > most for more, most in zip(most_held(own, work), planned, strict=True)
    ):
        return first
    second = programs.simulated(own)
    better = min(first, second, key=lambda each: each.seconds)
    return dataclasses.replace(better, lower_bound_s=first.lower_bound_s)


@dataclass
class _Programs:
    """The programs of a step, with the time of each; `work` is that of the family."""

    module: Module
    shape: PipelineShape
    family: ScheduleFamily
    work: Work
    times: tuple[Times, ...]
    model: CostModel
    _sent_s: dict[tuple[int, int, int], float] = field(default_factory=dict)

    @functools.cached_property
    def meshes(self) -> dict[int, Mesh]:
        """Of each device group."""
        placed = self.family.place(self.work)[0]
        return dict(zip(placed, self.shape.own_meshes, strict=True))

    def send_s(self, need: Need) -> float:
        """Seconds to send a value from one device group to another."""
        key = need.source, need.target, int(need.num_bytes)
        if key not in self._sent_s:
            source, target, num_bytes = key
            meshes = self.meshes[source], self.meshes[target]
            self._sent_s[key] = self.model.transfer_s(*meshes, num_bytes)
        return self._sent_s[key]

    def simulated(self, schedule: Schedule) -> StepTime:
        """The step with this schedule."""
        programs = function_values(self.module)
        graph = program_graph(
            programs,
            schedule,
            self.family.graph(self.work, schedule),
            self.shape.meshes,
            result_values(self.module.operation),
        )
        cluster = self.model.cluster
        ways = Ways(
            overlap=cluster.device.software.transfers_overlap,
            link=ports(cluster, self.meshes),
            moves_overlap=False,  # a device runs one program after the other
        )
        seconds = durations(self.work, self.times)
        simulation = simulate(schedule, graph, seconds, self.send_s, **ways)
        arguments = argument_specs(self.module.operation)

        def next_s() -> float:
            between = between_steps(programs, arguments, schedule, graph)
            return float(
                next_step_s(schedule, graph, seconds, self.send_s, between=between, **ways)
            )

        return StepTime(schedule, simulation, graph, next_s, self.copies)

    @functools.cached_property
    def copies(self) -> Copies:
        """What second copies of stages are sent when the step begins."""
        return _copies(self.module, self.shape, self.model)

    def transfers(self, graph: TaskGraph) -> Transfers:
        """The seconds of what the tasks of microbatches send."""
        found: dict[Edge, float] = {}
        for need in (need for needs in graph.needs.values() for need in needs):
            if need.source != need.target and need.task.kind not in ONCE_PER_STEP:
                found[edge_of(need)] = self.send_s(need)
        return Transfers(tuple(found.items()))

    def bound_s(self, costs: Costs) -> float:
        """A lower bound for any order of these stages, with or without P in front and U behind; 0.0
        if none is known."""
        bound = self.family.bound(self.work, costs)
        if bound is None:
            return 0.0
        first = min(each.prologue_s for each in self.times[: self.shape.num_stages])
        last = min(each.update_s for each in self.times[: self.shape.num_stages])
        return float(bound + (first + last) / self.work.chunks)


def _copies(module: Module, shape: PipelineShape, model: CostModel) -> Copies:
    """The arguments that second copies read and stages on other devices own."""
    owners = [argument.stage for argument in argument_specs(module.operation)]
    sent: dict[tuple[int, int], dict[str, int]] = {}  # owner, copy -> bytes of each argument
    for each in function_values(module):
        if each.stage < shape.num_stages:
            continue
        for spec in each.args:
            owner = owners[value_id(spec.value).number] if is_argument(spec.value) else each.stage
            if shape.meshes[owner].device_ids != shape.meshes[each.stage].device_ids:
                sent.setdefault((owner, each.stage), {})[spec.value] = spec.num_bytes
    busy: dict[tuple[str, tuple[int, ...]], float] = {}  # of sending and of receiving devices
    for (owner, copy), values in sent.items():
        source, target = shape.meshes[owner], shape.meshes[copy]
        seconds = model.transfer_s(source, target, sum(values.values()))
        for end in (("sends", source.device_ids), ("receives", target.device_ids)):
            busy[end] = busy.get(end, 0.0) + seconds
    num_bytes = sum(sum(values.values()) for values in sent.values())
    return Copies(num_bytes, max(busy.values(), default=0.0))


def stage_times(report: StageReport, mesh: Mesh, work: Work, model: CostModel) -> Times:
    """Times of a whole device group, of which a chunk takes its share: those of its functions plus
    host time, slice by slice; part of the gradient reduction may be hidden behind the last
    backward."""
    software = model.device.software
    seconds = {
        kind: s + software.action_s * (work.slices if kind.per_microbatch else 1)
        for kind, s in report.seconds.items()
    }
    update = report.asked.get(FunctionKind.UPDATE)
    if software.gradient_overlap and update:
        sent_s = sum(each.times * model.sent_s(each.sent, mesh) for each in update)
        hidden_s = software.gradient_overlap * sent_s
        seconds[FunctionKind.UPDATE] -= min(hidden_s, seconds.get(FunctionKind.BACKWARD, 0.0))
    kinds = {kind: s * work.chunks for kind, s in seconds.items()}
    slices = {
        kind: tuple(
            (share * report.seconds[kind] + software.action_s) / seconds[kind] for share in shares
        )
        for kind, shares in report.slices.items()
        if seconds[kind]
    }
    return Times(
        forward_s=kinds.get(FunctionKind.FORWARD, 0.0),
        backward_s=kinds.get(FunctionKind.BACKWARD, 0.0),
        weight_s=kinds.get(FunctionKind.WEIGHT, 0.0),
        prologue_s=kinds.get(FunctionKind.BEFORE, 0.0),
        gather_s=kinds.get(FunctionKind.GATHER, 0.0),
        reduce_s=kinds.get(FunctionKind.REDUCE, 0.0),
        update_s=kinds.get(FunctionKind.UPDATE, 0.0) / max(work.update_rounds, 1),
        forward_slices=slices.get(FunctionKind.FORWARD, ()),
        backward_slices=slices.get(FunctionKind.BACKWARD, ()),
        weight_slices=slices.get(FunctionKind.WEIGHT, ()),
    )

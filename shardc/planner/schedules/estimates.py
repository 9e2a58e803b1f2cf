"""Estimates any schedule on a pipeline that is planned with one stage per device group."""

import contextlib
import functools
import gc
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import msgspec

from shardc.cluster import Cluster
from shardc.cost.model import CostModel
from shardc.cutting import work_of
from shardc.plan.predicted import JudgedSchedule
from shardc.planner.candidate import Candidate
from shardc.planner.promising import Promising
from shardc.planner.proposal import Proposal
from shardc.planner.schedules.cuts import Cut, no_slices
from shardc.planner.schedules.group_memory import GroupMemory
from shardc.planner.schedules.hoped_pipelines import passes_of
from shardc.planner.schedules.ports import ports
from shardc.planner.schedules.recut import Recut, Rule
from shardc.planner.schedules.simulated_rounds import Rounds, Simulated
from shardc.planner.schedules.step_time import stage_times
from shardc.planner.split_cache import Splits
from shardc.schedule.check import peaks
from shardc.schedule.family import Costs, ScheduleFamily
from shardc.schedule.registry import schedule_named
from shardc.schedule.simulate import lengths
from shardc.schedule.tasks import (
    BACKWARD,
    FORWARD,
    PROLOGUE,
    UPDATE,
    WEIGHT,
    WHOLE_BACKWARD,
    Need,
    TaskGraph,
)
from shardc.schedule.work import Work

SAME_STAGES = "chunks", "slices", "recompute"  # of schedules that run the same programs
ROUGH = Costs(time_limit_s=0, is_rough=True)
FAR_BEHIND = 1.1  # a schedule that takes so much longer by a glance is not looked at again
SLOWER = "not faster, so it was not asked whether sequences can be cut"


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Pauses Python's garbage collector. A simulation makes many objects and no cycles; full
    collections, each a walk over all modules, made it half as long again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Estimates:
    """Simulates schedules with the data of a planned pipeline.

    The stages of a schedule are cut as they would run, which gives their stashes, transfers and
    the time of their ops if all were split evenly. A program is assumed to take the same multiple
    of that time as the planned program of its device group, a stashed byte as much memory, and the
    host the same time per program. Updates are assumed to send each other the same bytes.

    Args:
        promising: the search that found the pipeline; None: slices are taken to last together as
            long as a microbatch.
        proved: whether slices may take nothing for granted that each step has to check.
    """

    def __init__(
        self,
        base: Candidate,
        cluster: Cluster,
        splits: Splits,
        promising: Promising | None = None,
        proved: bool = False,
    ) -> None:
        shape = base.shape
        self._proved = proved
        self._base, self._splits = base, splits
        self._model = CostModel(cluster)
        self._promising = promising
        self._action_s = cluster.device.software.action_s
        self.work = work_of(base.module, shape)
        self._recut = Recut(base, self.work, splits, self._model)
        self._times = [
            stage_times(report, mesh, self.work, self._model)
            for report, mesh in zip(base.reports, shape.meshes, strict=True)
        ]
        self._sent: dict[tuple[int, int, int], float] = {}
        self._ports = ports(cluster, dict(enumerate(shape.meshes)))
        # Round, sending and receiving group -> bytes that updates send in the planned pipeline.
        self._updates = {
            (task.microbatch, need.source, need.target): float(need.num_bytes)
            for task, needs in base.step.graph.needs.items()
            if task.kind == UPDATE
            for need in needs
            if need.task.kind == UPDATE and need.source != need.target
        }
        self._whole: dict[int, str] = {}  # slices -> why there are none
        self._memory = GroupMemory(base, self.work, self._recut)
        self.passes = passes_of(self._recut.planned)

    @_uncollected()
    def of(
        self,
        family: ScheduleFamily,
        chunks: int,
        below_s: float = math.inf,
        limit_bytes: float = math.inf,
        slices: int = 1,
    ) -> JudgedSchedule:
        """The step and the memory of a schedule, or why it cannot be used.

        Args:
            slices: token slices of each microbatch, where the family cuts them. They count as
            equally long; what a slice reads of earlier slices is not counted again. below_s,
            limit_bytes: a schedule with a longer step or more memory is useless: if even
                chunks of equal work exceed these, the program is not cut into chunks. Stages
                recompute more if only that makes the schedule useful.
        """
        work = self._work_of(family, chunks, slices)
        refused = family.refuses(work)
        if refused:
            return JudgedSchedule(family.name, chunks, refusal=refused[0])
        first, *leaner = self._recut.rules(chunks)
        found = least = self._under(first, family, work, below_s, limit_bytes)
        if slices == 1:
            while leaner and least.step_time_s < below_s and least.peak_bytes > limit_bytes:
                least = self._under(leaner.pop(0), family, work, below_s, limit_bytes)
            return least if _is_useful(least, below_s, limit_bytes) else found
        if found.refusal:
            return found
        useful = _is_useful(found, below_s, limit_bytes)
        why = self._unsliced(slices) if useful else SLOWER
        return msgspec.structs.replace(found, slices=slices, refusal=why)

    def _under(
        self, rule: Rule, family: ScheduleFamily, work: Work, below_s: float, limit_bytes: float
    ) -> JudgedSchedule:
        """The step and the memory of a schedule whose stages recompute the same."""
        chunks = work.chunks
        if not self._recut.has(chunks, rule) and chunks > 1:
            roughly = self._recut.roughly(chunks, rule)
            rough = self._judged(family, work, roughly, rule, below_s, limit_bytes)
            if not _is_useful(rough, below_s, limit_bytes):
                return rough
        cut = self._recut.of(family.name, chunks, rule)
        if isinstance(cut, str):
            return JudgedSchedule(family.name, chunks, refusal=cut)
        return self._judged(family, work, cut, rule, below_s, limit_bytes)

    def are_alike(self, one: JudgedSchedule, other: JudgedSchedule) -> bool:
        """Whether two schedules run the same tasks in the same order, as some families do in few
        microbatches."""
        if any(getattr(one, each) != getattr(other, each) for each in SAME_STAGES):
            return False
        if not math.isclose(one.step_time_s, other.step_time_s, rel_tol=1e-9):
            return False  # what follows takes longer
        first, second = schedule_named(one.name), schedule_named(other.name)
        work = self._work_of(first, one.chunks, one.slices)
        if work != self._work_of(second, one.chunks, one.slices):
            return False
        return not first.searches(work) and first.generate(work) == second.generate(work)

    def _work_of(self, family: ScheduleFamily, chunks: int, slices: int) -> Work:
        return replace(
            self.work,
            chunks=chunks,
            split_backward=family.split_backward,
            replicas=family.replicas,
            slices=slices,
        )

    def _unsliced(self, slices: int) -> str:
        """Why sequences cannot be cut into slices; "" if they can."""
        if slices not in self._whole:
            shape = self._base.shape
            staged, cluster = self._splits.staged(shape), self._model.cluster
            self._whole[slices] = no_slices(staged, shape, slices, self._proved, cluster)
        return self._whole[slices]

    def _judged(
        self,
        family: ScheduleFamily,
        work: Work,
        cut: Cut,
        rule: Rule,
        below_s: float,
        limit_bytes: float,
    ) -> JudgedSchedule:
        """As `_under`, for stages that are cut. A glance at few microbatches rules out what does
        not fit, and what takes far too long."""
        chunks = work.chunks
        if family.split_backward and not cut.splits:
            why = "no weight gradient can be computed separately from what a stage sends back"
            return JudgedSchedule(family.name, chunks, refusal=why)

        def judge(found: Simulated) -> JudgedSchedule:
            copied, copying_s = self._copies(found.graph, chunks)
            peak = self._memory.peak_bytes(found.held, copied, rule)
            step_s = found.makespan_s + self._base.host_s + copying_s
            return JudgedSchedule(family.name, chunks, step_s, int(peak), recompute=rule or "")

        rounds = Rounds(family, work, functools.partial(self._simulate, family, cut=cut))
        glance = rounds.glance()
        if glance is not None:
            rough = judge(glance)
            if rough.peak_bytes > limit_bytes or rough.step_time_s > FAR_BEHIND * below_s:
                return rough
        return judge(rounds.all())

    def _simulate(self, family: ScheduleFamily, work: Work, cut: Cut) -> Simulated:
        schedule = family.generate(work, ROUGH if family.searches(work) else None)
        graph = family.graph(work, schedule)
        seconds = self._seconds(cut, graph, work)
        if work.split_backward:
            graph = cut.without_empty(graph)
        graph = self._with_sent_by_updates(graph)

        def send_s(need: Need) -> float:
            if need.task.kind == UPDATE:
                return self._send_s(int(need.num_bytes), need.source, need.target)
            kind = FORWARD if need.task.kind == FORWARD else WHOLE_BACKWARD
            num_bytes = cut.sent.get((need.task.stage, kind), 0) // work.slices
            return self._send_s(num_bytes, need.source, need.target)

        buffered = self._memory.with_bytes(cut, graph, work.slices)
        _, makespan_s = lengths(
            schedule,
            buffered,
            lambda task: seconds[task.place(work.num_stages), task.kind],
            send_s,
            overlap=self._model.cluster.device.software.transfers_overlap,
            link=self._ports,
        )
        backward = WHOLE_BACKWARD if work.split_backward else BACKWARD
        busy: dict[int, float] = defaultdict(float)
        for (stage, replica), group in graph.groups.items():
            place = replica * work.num_stages + stage
            both_s = seconds[place, FORWARD] + seconds[place, backward]
            busy[group] += both_s * work.slices / work.replicas
        held = [float(most) for most in peaks(schedule, buffered)]
        return Simulated(float(makespan_s), held, graph, max(busy.values()))

    def _with_sent_by_updates(self, graph: TaskGraph) -> TaskGraph:
        """`graph`, in which an update waits for those of other groups only where the planned one
        does, and for as many bytes."""
        needs = dict(graph.needs)
        for task, own in graph.needs.items():
            if task.kind == UPDATE and task.microbatch:
                here = (need for need in own if need.source == need.target)
                sent = (
                    need._replace(num_bytes=self._updates[key])
                    for need in own
                    if (key := (task.microbatch, need.source, need.target)) in self._updates
                )
                needs[task] = (*here, *sent)
        return replace(graph, needs=needs)

    def _seconds(self, cut: Cut, graph: TaskGraph, work: Work) -> dict[tuple[int, str], float]:
        """Of each stage, or second copy, and kind of task, on its device group."""
        found = {}
        chunks, split = work.chunks, work.split_backward
        share = 1 / work.slices
        if work.slices > 1 and self._promising is not None:
            share *= self._promising.stretch(self._base.shape, work.slices)
        base = self._recut.planned
        for (stage, replica), group in graph.groups.items():
            place = replica * work.num_stages + stage
            times = self._times[group]
            for kind, of_kind, known_s in (
                (FORWARD, FORWARD, times.forward_s),
                (BACKWARD, BACKWARD if split else WHOLE_BACKWARD, times.backward_s),
                (WEIGHT, WEIGHT, times.backward_s),
            ):
                planned = group, FORWARD if kind == FORWARD else WHOLE_BACKWARD
                whole_s = base.seconds.get(planned, 0.0)
                own_s = cut.seconds.get((stage, of_kind), 0.0)
                busy_s = max(float(known_s) - self._action_s, 0.0)
                part = own_s / whole_s if whole_s else 1 / chunks
                takes_s = busy_s * part * share
                found[place, kind] = takes_s + self._action_s if takes_s else 0.0
            found[place, WHOLE_BACKWARD] = found[place, BACKWARD] + found[place, WEIGHT]
            found[place, PROLOGUE] = 0.0 if replica else float(times.prologue_s) / chunks
            found[place, UPDATE] = 0.0 if replica else float(times.update_s) / chunks
        return found

    def _copies(self, graph: TaskGraph, chunks: int) -> tuple[dict[int, float], float]:
        """By device group, the memory of second copies of stages besides their activations; and
        the seconds to send them weights and to return gradients."""
        found: dict[int, float] = {}
        busy: dict[int, float] = {}
        meshes = self._base.shape.meshes
        for (stage, replica), group in graph.groups.items():
            owner = graph.groups[stage, 0]
            if not replica or owner == group:
                continue
            memory = self._base.reports[owner].memory
            own = memory.parameters + memory.inputs + memory.gradients
            found[group] = found.get(group, 0.0) + own / chunks
            sent = own * len(meshes[owner].device_ids) / chunks
            seconds = self._model.transfer_s(meshes[owner], meshes[group], sent)
            busy[group] = busy.get(group, 0.0) + seconds
        return found, max(busy.values(), default=0.0)

    def _send_s(self, num_bytes: int, source: int, target: int) -> float:
        """Seconds to send bytes from one device group to another."""
        key = num_bytes, source, target
        if key not in self._sent:
            meshes = self._base.shape.meshes
            self._sent[key] = self._model.transfer_s(meshes[source], meshes[target], num_bytes)
        return self._sent[key]

    def proposal(self, judged: JudgedSchedule) -> Proposal | str:
        """The pipeline with a schedule, in the compiler's form; or why the program, which was not
        cut for a rough estimate, cannot be cut into its chunks."""
        rule = judged.recompute or None
        cut = self._recut.of(judged.name, judged.chunks, rule)
        if isinstance(cut, str):
            return cut
        return self._recut.proposal(judged.name, judged.chunks, judged.slices, rule)


def _is_useful(found: JudgedSchedule, below_s: float, limit_bytes: float) -> bool:
    if found.refusal:
        return False
    return found.step_time_s < below_s and found.peak_bytes <= limit_bytes

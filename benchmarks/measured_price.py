"""What measured runs ask of their devices, and their step times under any cluster, uncompiled.

`CostModel` prices calls of functions and transfers, and the schedule is simulated, as for any plan
of shardc's (`planner/schedules/step_time.py`).
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from measured_plan import Asks, Run, meshes_of

from shardc.cluster import Cluster
from shardc.cost.model import CostModel
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import Mesh
from shardc.plan.predicted import Asked, Collective, StageReport
from shardc.planner.schedules.step_time import stage_times
from shardc.schedule.registry import schedule_named
from shardc.schedule.simulate import lengths
from shardc.schedule.tasks import BACKWARD, FORWARD, Schedule, TaskGraph
from shardc.schedule.times import durations
from shardc.schedule.work import Work


class Features(msgspec.Struct, frozen=True):
    """A run: what is known of it, and what it asks for.

    Attributes:
        alike: equal for runs of one model, number of devices and batch.
        sizes: tensor, data, pipeline, chunks, microbatch.
        asked: of each stage, by kind of function.
        sent: (from, to, bytes) in each microbatch.
    """

    alike: tuple[int, ...]
    sizes: tuple[int, ...]
    num_devices: int
    num_microbatches: int
    schedule: str
    meshes: tuple[Mesh, ...]
    asked: tuple[dict[FunctionKind, tuple[Asked, ...]], ...]
    sent: tuple[tuple[int, int, int], ...]
    measured_s: float | None = None

    @property
    def work(self) -> Work:
        """What its schedule orders."""
        kinds = {kind for stage in self.asked for kind in stage}
        base = Work(
            len(self.meshes) // self.sizes[3],
            self.num_microbatches,
            prologue=FunctionKind.BEFORE in kinds,
            update_rounds=int(FunctionKind.UPDATE in kinds),
        )
        return schedule_named(self.schedule).work(base, self.sizes[3])

    def activations(self, kept: Sequence[int]) -> int:
        """Bytes that a device holds at most of what its stages keep, `kept`, for their backward."""
        most = 0
        for lane in schedule_named(self.schedule).generate(self.work).lanes:
            held = 0
            for task in lane:
                if task.kind == FORWARD:
                    held += kept[task.stage]
                    most = max(most, held)
                elif task.kind == BACKWARD:
                    held -= kept[task.stage]
        return most


def features(run: Run, asks: Asks, cluster: Cluster) -> Features:
    """A run with what its plan asks for."""
    return Features(
        run.alike,
        run.sizes,
        run.num_devices,
        run.num_microbatches,
        run.schedule,
        meshes_of(run, cluster),
        asks.asked,
        asks.sent,
        None if run.measured_ms is None else run.measured_ms / 1e3,
    )


def load(paths: Iterable[Path]) -> list[Features]:
    """The measured runs of files that `measured.py --features` wrote, each once."""
    found: dict[Any, Features] = {}
    for path in paths:
        for line in path.read_text().splitlines():
            run = msgspec.json.decode(line, type=Features)
            if run.measured_s is not None:
                found[run.alike, run.sizes] = run
    return list(found.values())


class Runs:
    """Runs, priced under any cluster.

    Equal calls of functions are priced once: middle stages of a pipeline ask for the same.

    Args:
        half_gradients: gradients are summed over data ranks in 16 bits, as Megatron's float16 does;
            shardc adds them up over the microbatches, and over devices, in float32.
    """

    def __init__(self, runs: Sequence[Features], half_gradients: bool = True) -> None:
        self.runs = list(runs)
        self.work = [run.work for run in runs]
        self.graphs: dict[tuple[str, Work], tuple[Schedule, TaskGraph]] = {}
        self.half_gradients = half_gradients
        self.number: dict[tuple[Asked, ...], int] = {}
        self.asked = [[self._all_of(asked) for asked in run.asked] for run in self.runs]

    def _all_of(
        self, asked: dict[FunctionKind, tuple[Asked, ...]]
    ) -> dict[FunctionKind, tuple[tuple[Asked, ...], int]]:
        found = {}
        for kind, each in asked.items():
            if kind == FunctionKind.UPDATE and self.half_gradients:
                each = tuple(
                    msgspec.structs.replace(one, sent=tuple(map(_halved, one.sent))) for one in each
                )
            found[kind] = each, self.number.setdefault(each, len(self.number))
        return found

    def predicted_s(self, cluster: Cluster) -> list[float]:
        """Seconds of each run."""
        models: dict[int, CostModel] = {}
        known: dict[Any, float] = {}
        return [self._seconds(i, cluster, models, known) for i in range(len(self.runs))]

    def _seconds(
        self, i: int, cluster: Cluster, models: dict[int, CostModel], known: dict[Any, float]
    ) -> float:
        run, work = self.runs[i], self.work[i]
        if run.num_devices not in models:
            models[run.num_devices] = CostModel(cluster.with_devices(run.num_devices))
        model = models[run.num_devices]
        links = tuple(model.links(run.meshes[0]).items())  # the meshes of a run are alike
        times = []
        for mesh, asked in zip(run.meshes, self.asked[i], strict=True):
            seconds = {}
            for kind, (each, number) in asked.items():
                key = number, mesh.axes, links
                if key not in known:
                    known[key] = model.call_s(each, mesh)
                seconds[kind] = known[key]
            calls = {kind: each for kind, (each, _) in asked.items()}
            report = StageReport(seconds, 0, 0, 0, 0.0, 0.0, asked=calls)
            times.append(stage_times(report, mesh, work, model))
        between: dict[tuple[int, int], float] = {}
        for a, b, num_bytes in run.sent:
            way = a % work.num_groups, b % work.num_groups
            sent_s = model.transfer_s(run.meshes[a], run.meshes[b], num_bytes)
            between[way] = max(between.get(way, 0.0), sent_s)
        _, makespan_s = lengths(
            *self._graph(run.schedule, work),
            durations(work, times),
            lambda need: between.get((need.source, need.target), 0.0),
            overlap=cluster.device.software.transfers_overlap,
        )
        return float(makespan_s) + cluster.device.software.step_s

    def _graph(self, name: str, work: Work) -> tuple[Schedule, TaskGraph]:
        if (name, work) not in self.graphs:
            family = schedule_named(name)
            schedule = family.generate(work)
            self.graphs[name, work] = schedule, family.graph(work, schedule)
        return self.graphs[name, work]


def _halved(each: Collective) -> Collective:
    if each.dtype != "float32" or each.kind not in ("all_reduce", "reduce_scatter"):
        return each
    return msgspec.structs.replace(each, dtype="bfloat16", num_bytes=each.num_bytes // 2)

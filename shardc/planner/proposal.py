"""A pipeline shape that is worth planning, before it is planned."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from shardc.analysis.stages.stage_cuts import Origin
from shardc.analysis.stages.stage_refusal import StageRefusal
from shardc.cluster import Cluster
from shardc.errors import ScheduleError
from shardc.options import PlanOptions
from shardc.plan.alternatives import Alternative
from shardc.plan.layout import Mesh
from shardc.plan.shape import RULES, PipelineShape
from shardc.plan.stages_spec import Recompute
from shardc.planner.prices.derived import shares
from shardc.planner.split_cache import Splits
from shardc.schedule.registry import schedule_named
from shardc.schedule.work import Work
from shardc.solver.pipeline.stages import Pipeline

PER_ROOT = 16  # initial guess of microbatches, per square root of the number of devices


@dataclass(frozen=True)
class Proposal:
    """A pipeline shape and its estimated step (0.0: unknown); `layers` per stage."""

    shape: PipelineShape
    step_time_s: float
    layers: tuple[tuple[int, ...], ...]

    def on(self, meshes: tuple[Mesh, ...]) -> "Proposal":
        """The same shape on other meshes of the same sizes."""
        return replace(self, shape=msgspec.structs.replace(self.shape, meshes=meshes))

    def from_device(self, first: int) -> "Proposal":
        """The same shape on devices that begin at `first` instead of 0."""
        return self.on(
            tuple(
                Mesh(mesh.axes, tuple(first + device for device in mesh.device_ids))
                for mesh in self.shape.meshes
            )
        )

    def judged(self, name: str, missing_bytes: int = 0) -> Alternative:
        """It as an alternative, before it is planned; `name` is its proposer."""
        shape = self.shape
        return Alternative(
            name,
            shape.num_microbatches,
            shape.schedule,
            tuple(mesh.shape for mesh in shape.own_meshes),
            tuple(map(len, self.layers)),
            self.step_time_s or None,
            missing_bytes=missing_bytes,
        )


def num_chunks(schedule: str, options: PlanOptions) -> int:
    """Stages per device group in a pipeline with a schedule.

    Raises:
        ScheduleError: SHARDC-242, it does not support the requested number.
    """
    asked = None if options.chunks == "auto" else options.chunks
    return schedule_named(schedule).num_chunks(asked)


def num_slices(schedule: str, options: PlanOptions) -> int:
    """Token slices of each microbatch in a pipeline with a schedule.

    Raises:
        ScheduleError: SHARDC-242, it cuts no microbatches and is asked to.
    """
    asked = None if options.slices == "auto" else options.slices
    return schedule_named(schedule).num_slices(asked)


def is_plain(schedule: str, options: PlanOptions) -> bool:
    """Whether each device group has one stage, of which there is one copy, and sequences are whole;
    raises as `num_chunks` and `num_slices`."""
    copies = schedule_named(schedule).replicas
    return num_chunks(schedule, options) * num_slices(schedule, options) * copies == 1


def meshes_of_stages(groups: Sequence[Mesh], schedule: str, chunks: int) -> tuple[Mesh, ...]:
    """The mesh of each stage, second copies included, for a schedule that puts `chunks` stages on
    each of `groups`."""
    family = schedule_named(schedule)
    work = Work(len(groups), family.replicas, chunks=chunks, replicas=family.replicas)
    return tuple(groups[group] for of_stage in family.place(work) for group in of_stage)


def with_copies(shape: PipelineShape) -> PipelineShape:
    """Adds a schedule's second copies to a shape without them: each on the mesh of the first stage
    of its device group."""
    family = schedule_named(shape.schedule)
    work = Work(
        len(shape.meshes) // shape.num_chunks,
        family.replicas,
        chunks=shape.num_chunks,
        replicas=family.replicas,
    )
    own, *copies = family.place(work)
    of_group: dict[int, Mesh] = {}
    for group, mesh in zip(own, shape.meshes, strict=True):
        of_group.setdefault(group, mesh)
    meshes = [*shape.meshes, *(of_group[group] for copy in copies for group in copy)]
    return msgspec.structs.replace(shape, meshes=tuple(meshes), num_replicas=family.replicas)


def held_under(rules: Sequence[Recompute], shape: PipelineShape) -> tuple[int, ...]:
    """Per stage, the microbatches in flight under the schedule of a shape; zeros if no stage
    recomputes all, which alone needs them."""
    if "full" not in rules:
        return (0,) * len(rules)
    family = schedule_named(shape.schedule)
    work = Work(len(rules) // shape.num_chunks, shape.num_microbatches)
    return family.in_flight(family.work(work, shape.num_chunks, shape.num_slices))


def with_schedule(
    proposal: Proposal, splits: Splits, schedule: str, options: PlanOptions
) -> Proposal:
    """A proposal with one stage per device group, adapted to another schedule. If that has several
    per group, the stages are cut again, with even work. A single group stays as it is.

    Raises:
        ScheduleError: SHARDC-242, there are fewer layers, or the schedule does not support the
            counts.
    """
    shape, chunks = proposal.shape, num_chunks(schedule, options)
    groups = len(shape.meshes)
    if groups == 1:
        return proposal
    family = schedule_named(schedule)
    rules = [each.recompute for each in shape.residency]
    if chunks > 1 and rules:  # all as the stage that keeps least
        rules = [max(rules, key=RULES.index)] * (groups * chunks)
    slices = num_slices(schedule, options)
    shape = msgspec.structs.replace(
        shape,
        schedule=schedule,
        meshes=meshes_of_stages(shape.meshes, schedule, chunks),
        num_chunks=chunks,
        num_replicas=family.replicas,
        num_slices=slices,
        residency=(),
    )
    shape = shape.recomputing(rules, held_under(rules, shape))
    if chunks == 1:
        return replace(proposal, shape=shape)
    even = splits.even_stages(shape.num_microbatches, groups * chunks)
    if isinstance(even, StageRefusal):
        raise too_few_layers(even.most, schedule, groups, chunks)
    loop_cuts, cuts = even
    cut = msgspec.structs.replace(shape, cuts=cuts, loop_cuts=loop_cuts)
    return Proposal(cut, 0.0, tuple((stage,) for stage in range(groups * chunks)))


def too_few_layers(most: int, schedule: str, groups: int, chunks: int) -> ScheduleError:
    """The refusal of a schedule with more stages than the `most` layers."""
    fewer, other = most // chunks, "a schedule with one stage per device group, such as 1f1b"
    return ScheduleError(
        f"'{schedule}' runs {chunks} stages on each of {groups} device groups, but the forward"
        f" pass has {most} layer{'s' * (most != 1)} (matrix products and convolutions)",
        help=f"ask for at most {fewer} stages, or take {other}" if fewer > 1 else f"take {other}",
        code="SHARDC-242",
    )


@dataclass(frozen=True)
class Found:
    """A shape and its stages.

    Attributes:
        limit_bytes: of a device, for which the stages were chosen; None: what it has.
    """

    key: "Key"
    pipeline: Pipeline
    limit_bytes: int | None = None


@dataclass(frozen=True, order=True)
class Key:
    """The parameters of a query: `size` devices per stage, 0 for any."""

    num_stages: int
    size: int
    num_microbatches: int
    schedule: str


def proposal_of(
    shape: PipelineShape, pipeline: Pipeline, splits: Splits, origin: Callable[[int], Origin]
) -> Proposal | None:
    """The stages of a pipeline in the compiler's form; None if they do not begin at layers,
    or the batch cannot be split with these cuts.

    Args:
        shape: everything but the cuts.
        origin: the first op of a layer.
    """
    cut = splits.shape_at(shape, [origin(first) for first, _, _ in pipeline.stages[1:]])
    if cut is None:
        return None
    layers = tuple(tuple(range(first, last + 1)) for first, last, _ in pipeline.stages)
    return Proposal(cut, pipeline.step_time_s, layers)


def by_use(counts: Sequence[int], cluster: Cluster, rows: int) -> list[int]:
    """Numbers of microbatches, best first: those that give rows to the most devices of a stage;
    among these, the usual ones for pipelines on this many devices.

    Args:
        rows: of the batch.
    """
    wanted = PER_ROOT * math.sqrt(cluster.num_devices)
    size = min(cluster.num_devices_per_node, max(cluster.num_devices // 2, 1))

    def key(count: int) -> tuple[int, float]:
        return -shares(rows, count, size), abs(math.log(count / wanted))

    return sorted(counts, key=key)


def distinct(found: Sequence[Found], most: int) -> list[Found]:
    """First those that differ in more than the number of microbatches; then the others."""
    seen: set[object] = set()
    first: list[Found] = []
    rest: list[Found] = []
    for each in found:
        key = each.key.schedule, tuple(size for *_, size in each.pipeline.stages)
        (rest if key in seen else first).append(each)
        seen.add(key)
    return list(itertools.islice((*first, *rest), most))

"""Shapes that need no estimate: one stage, or stages of even work."""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

import msgspec

from shardc.analysis.batch.batch_state import divisors
from shardc.analysis.stages.stage_refusal import StageRefusal
from shardc.cluster import Cluster
from shardc.cost.submeshes import mesh_of, mesh_views, place, submesh_sizes
from shardc.cutting import origins
from shardc.errors import PlanError
from shardc.ir.context import Module
from shardc.options import PlanOptions
from shardc.plan.layout import Mesh
from shardc.plan.shape import PipelineShape
from shardc.planner.allowed_request import state_bytes
from shardc.planner.attempts import Attempts, effort_of
from shardc.planner.budget import BUDGET
from shardc.planner.proposal import (
    Proposal,
    is_plain,
    meshes_of_stages,
    num_chunks,
    num_slices,
    too_few_layers,
)
from shardc.planner.split_cache import Splits
from shardc.schedule.registry import schedule_named
from shardc.schedule.work import Work
from shardc.solver.solve import LimitError


def whole_views(cluster: Cluster, options: PlanOptions) -> list[Mesh]:
    """All devices as one mesh, in every shape or the requested one; meshes whose last
    axis is a node, or everything, come first.

    Raises:
        PlanError: SHARDC-101, the requested mesh has more devices than there are.
    """
    asked = options.mesh
    if asked == "auto":
        per_node = cluster.num_devices_per_node
        views = mesh_views(cluster, 0, cluster.num_devices)
        return sorted(views, key=lambda view: view.shape[-1] != per_node)
    if math.prod(asked) > cluster.num_devices:
        raise PlanError(
            f"the mesh {'x'.join(map(str, asked))} needs {math.prod(asked)} devices and"
            f" cluster '{cluster.name}' has {cluster.num_devices}",
            help="use a smaller mesh or a larger cluster",
            code="SHARDC-101",
        )
    return [mesh_of(asked, range(math.prod(asked)), options.mesh_axes)]


def whole_proposals(
    count: int, views: Sequence[Mesh], schedule: str, options: PlanOptions
) -> list[Proposal]:
    """One stage in `count` microbatches on each view."""
    shapes = [PipelineShape(count, (), (view,), schedule, options.batch_args) for view in views]
    return [Proposal(shape, 0.0, ((),)) for shape in shapes]


def plan_plain(
    tried: Attempts, options: PlanOptions, schedule: str, can_split: Callable[[int], bool]
) -> None:
    """Plans plain shapes on all devices and, if none fits there, one stage on each island alone:
    prices of layers may overestimate what stages hold."""
    _plan_on(tried.cluster, 0, tried, options, schedule, can_split)
    if tried.best is not None or options.stages not in (1, "auto"):
        return
    size = 1 if options.mesh == "auto" else math.prod(options.mesh)
    for part, first in tried.cluster.parts:
        if size <= part.num_devices:
            _plan_on(part, first, tried, options, schedule, can_split)


def _plan_on(
    part: Cluster,
    first: int,
    tried: Attempts,
    options: PlanOptions,
    schedule: str,
    can_split: Callable[[int], bool],
) -> None:
    """Plans plain shapes on the part of the cluster that begins at device `first`, in the fewest
    microbatches that fit: in the first number on all meshes, then on those that need least."""
    count: int | None = 1 if options.microbatches == "auto" else options.microbatches
    least: dict[tuple[Mesh, ...], int] = {}
    while count is not None:
        proposals = _plain_proposals(tried.splits, part, options, count, schedule)
        effort, closest = effort_of(len(proposals) == 1), min(least.values(), default=0)
        for proposal in (each.from_device(first) for each in proposals):
            if tried.has_any and not tried.may_plan_another(BUDGET.unranked_ops):
                break
            meshes = proposal.shape.meshes
            if proposal in tried.judged or least.get(meshes, 0) > closest:
                continue
            found = tried.plan(proposal, effort, tried.best_s)
            if isinstance(found, LimitError):
                least[meshes] = found.least_bytes
        if tried.best is not None or options.microbatches != "auto":
            return
        if tried.has_any and not isinstance(tried.infeasible, LimitError):
            return
        larger = _counts_to_fit(tried.splits, part, options, count, least.values())
        count = next((more for more in larger if can_split(more)), None)


def _plain_proposals(
    splits: Splits, part: Cluster, options: PlanOptions, count: int, schedule: str
) -> list[Proposal]:
    """One stage on each view of a part of the cluster, or stages of even work if several are
    requested; none if the program or the schedule does not allow them."""
    family = schedule_named(schedule)
    if options.stages in (1, "auto"):
        one = schedule if is_plain(schedule, options) else "1f1b"
        return whole_proposals(count, whole_views(part, options), one, options)
    assert isinstance(options.stages, int)
    work = Work(options.stages, count, chunks=num_chunks(schedule, options))
    if count % family.replicas or family.refuses(work) is not None:
        return []
    even = even_proposals(splits, part, options, count, schedule)
    return [] if isinstance(even, StageRefusal) else even


def even_proposals(
    splits: Splits,
    cluster: Cluster,
    options: PlanOptions,
    num_microbatches: int,
    schedule: str,
) -> list[Proposal] | StageRefusal:
    """Stages of equal FLOPs on equal submeshes, one proposal per view of the submesh, with loops
    over layers cut where a stage begins, if possible; or why there are fewer stages.

    Raises:
        ScheduleError: SHARDC-242, the schedule does not support the number of chunks, or there are
            fewer layers than chunks.
    """
    assert isinstance(options.stages, int)
    count = options.stages
    if options.mesh != "auto":
        size = math.prod(options.mesh)
        views = [mesh_of(options.mesh, range(size), options.mesh_axes)]
    else:
        size = max(n for n in submesh_sizes(cluster) if n * count <= cluster.num_devices)
        views = mesh_views(cluster, 0, size)
    chunks = num_chunks(schedule, options)
    even = splits.even_stages(num_microbatches, count * chunks)
    if isinstance(even, StageRefusal):
        if chunks == 1 or even.most == 1:
            return even
        raise too_few_layers(even.most, schedule, count, chunks)
    loop_cuts, cuts = even
    module = splits.cut_at(num_microbatches, loop_cuts)
    firsts = place(cluster, [size] * count)
    proposals = []
    for view in views:
        meshes = [mesh_of(view.shape, range(d, d + size), options.mesh_axes) for d in firsts]
        shape = PipelineShape(
            num_microbatches,
            cuts,
            meshes_of_stages(meshes, schedule, chunks),
            schedule,
            options.batch_args,
            loop_cuts,
            chunks,
            num_replicas=schedule_named(schedule).replicas,
            num_slices=num_slices(schedule, options) if count > 1 else 1,
        )
        layers = tuple((stage,) for stage in range(count * chunks))
        proposals.append(_with_fewer_loop_cuts(module, splits, Proposal(shape, 0.0, layers)))
    return proposals


def evened(splits: Splits, proposal: Proposal) -> Proposal | None:
    """A pipeline with stages of equal FLOPs, cut inside layers, too; None if its stages are equal,
    or there is no such cut."""
    shape = proposal.shape
    even = splits.even_stages(shape.num_microbatches, shape.num_stages)
    if isinstance(even, StageRefusal):
        return None
    loop_cuts, cuts = even
    cut = msgspec.structs.replace(shape, cuts=cuts, loop_cuts=loop_cuts)
    other = Proposal(cut, 0.0, tuple((stage,) for stage in range(shape.num_stages)))
    other = _with_fewer_loop_cuts(splits.of(cut), splits, other)
    return None if other.shape == shape else other


def _with_fewer_loop_cuts(split_module: Module, splits: Splits, proposal: Proposal) -> Proposal:
    """The same stages with loops cut only where a stage begins, if that is possible."""
    begins = origins(split_module, proposal.shape.cuts)
    known = [each for each in begins if each is not None]
    if len(known) < len(begins):
        return proposal
    shape = splits.shape_at(proposal.shape, known)
    return proposal if shape is None else replace(proposal, shape=shape)


def _counts_to_fit(
    splits: Splits, part: Cluster, options: PlanOptions, count: int, least: Collection[int]
) -> Iterator[int]:
    """Rising numbers of microbatches that may make a step fit, and the largest one in any case.

    Args:
        part: the devices of the step.
        least: bytes that the shapes in `count` microbatches need at least; () if not known.
    """
    limit = options.memory_limit_bytes or part.device.memory_bytes
    state = state_bytes(splits.whole(count)) / part.num_devices
    if state >= limit:
        return
    # At best, everything but the state shrinks with the microbatches.
    over = (min(least, default=limit) - state) / (limit - state)
    larger = [n for n in divisors(splits.batch_parts) if count < n <= BUDGET.most_microbatches]
    for more in larger:
        if more == larger[-1] or more >= max(count * over, 2 * count):
            yield more

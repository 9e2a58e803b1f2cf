"""A shape of the pipeline that is worth planning, and what its stages send to each other."""

import math
from dataclasses import dataclass

from shardc.analysis.stages.layers import layer_positions
from shardc.backend.extract import function_values
from shardc.cluster import Cluster
from shardc.compiler import Shape
from shardc.cost.collectives import transfer_s
from shardc.cost.links import transfer_link
from shardc.cost.submeshes import mesh_of, mesh_views, place, submesh_sizes
from shardc.errors import PlanError
from shardc.ir.context import Module
from shardc.ir.shardings import meshes
from shardc.options import PlanOptions
from shardc.plan.executable import ValueSpec
from shardc.plan.layout import Mesh


@dataclass(frozen=True)
class Proposal:
    """A shape of the pipeline and what it may take (0.0: nothing is known); `layers` per stage."""

    shape: Shape
    step_time_s: float
    layers: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Crossing:
    """What stages send to each other.

    Attributes:
        num_bytes: per microbatch, over all boundaries.
        seconds: (from, to) -> seconds per microbatch.
        boundary_bytes: (from, to) -> bytes per microbatch.
    """

    num_bytes: int
    seconds: dict[tuple[int, int], float]
    boundary_bytes: dict[tuple[int, int], int]


def whole_views(cluster: Cluster, options: PlanOptions) -> list[Mesh]:
    """All devices as one mesh, in every way or in the one that was asked for; those whose last
    axis is a node, or all of it, come first.

    Raises:
        PlanError: SHARDC-101, the mesh that was asked for has more devices than there are.
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


def even_proposals(
    split_module: Module,
    cluster: Cluster,
    options: PlanOptions,
    num_microbatches: int,
    schedule: str,
    loop_cuts: tuple[int, ...],
) -> list[Proposal]:
    """Stages of equal FLOPs on equal submeshes, one proposal for each view of the submesh; loops
    over layers are cut at `loop_cuts` in the module."""
    assert isinstance(options.stages, int)
    count = options.stages
    if options.mesh != "auto":
        size = math.prod(options.mesh)
        views = [mesh_of(options.mesh, range(size), options.mesh_axes)]
    else:
        size = max(n for n in submesh_sizes(cluster) if n * count <= cluster.num_devices)
        views = mesh_views(cluster, 0, size)
    cuts = tuple(layer_positions(split_module.operation, exactly=count)[1:])
    firsts = place(cluster, [size] * count)
    return [
        Proposal(
            Shape(
                num_microbatches,
                cuts,
                tuple(mesh_of(view.shape, range(d, d + size), options.mesh_axes) for d in firsts),
                schedule,
                options.batch_args,
                loop_cuts,
            ),
            0.0,
            tuple((stage,) for stage in range(count)),
        )
        for view in views
    ]


def crossing(outlined: Module, cluster: Cluster) -> Crossing:
    """What the stages of an outlined module send to each other, and how long it takes."""
    placed = meshes(outlined.operation)
    values: list[tuple[int, str, tuple[ValueSpec, ...], tuple[ValueSpec, ...]]] = function_values(
        outlined.operation
    )
    home = {
        spec.value: stage
        for stage, _, _, results in values
        for spec in results
        if spec.per_microbatch
    }
    sent: dict[tuple[int, int], int] = {}
    seen: set[tuple[int, str]] = set()
    for stage, _, args, _ in values:
        for spec in args:
            source = home.get(spec.value, stage)
            if source != stage and (stage, spec.value) not in seen:
                seen.add((stage, spec.value))
                sent[source, stage] = sent.get((source, stage), 0) + spec.num_bytes
    seconds = {
        (a, b): transfer_s(transfer_link(cluster, placed[f"stage{a}"], placed[f"stage{b}"]), n)
        for (a, b), n in sent.items()
    }
    return Crossing(sum(sent.values()), seconds, sent)

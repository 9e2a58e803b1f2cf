"""The meshes of the stages of a hand-written plan, and their devices."""

import math
from collections.abc import Sequence

from shardc.cluster import Cluster
from shardc.cost.submeshes import mesh_of, mesh_views, place, submesh_sizes
from shardc.errors import InputError
from shardc.plan.layout import Mesh, ranges
from shardc.plan.stages_spec import StageSpec, StagesSpec
from shardc.schedule.registry import schedule_named
from shardc.schedule.work import Work


def meshes_of(spec: StagesSpec, cluster: Cluster) -> list[tuple[Mesh, ...]]:
    """The meshes of the stages, for every choice that the spec leaves open.

    Raises:
        InputError: SHARDC-206, 207, they do not fit the devices or each other; 240, 242, 248, the
            schedule does not exist, does not support the stages or chunks, or cannot be run.
    """
    stages = [spec.of_stage(number) for number in range(len(spec.stages))]
    groups = len(stages) // spec.chunks
    if groups * spec.chunks != len(stages):
        raise InputError(
            f"the hand-written plan has {len(stages)} stages in {spec.chunks} chunks",
            help=f"give a multiple of {spec.chunks} stages, or other chunks",
            code="SHARDC-206",
        )
    family = schedule_named(spec.schedule)
    group_of = family.place(family.work(Work(groups, spec.microbatches), spec.chunks, slices=1))[0]
    open_ones = [number for number, stage in enumerate(stages) if stage.axes is None]
    if not open_ones:
        return [_placed([stage.axes or () for stage in stages], stages, group_of, cluster)]
    if len(open_ones) < len(stages):
        raise InputError(
            f"stage {open_ones[0]} of the hand-written plan has no mesh, but others have one",
            help='give every stage a mesh, or all of them one: "mesh": [4, 2]',
            code="SHARDC-207",
        )
    fitting = [size for size in submesh_sizes(cluster) if size * groups <= cluster.num_devices]
    if not fitting:
        raise _too_many(groups, cluster)
    views = mesh_views(cluster, 0, max(fitting))
    return [_placed([view.axes] * len(stages), stages, group_of, cluster) for view in views]


def _placed(
    axes: Sequence[tuple[tuple[str, int], ...]],
    stages: Sequence[StageSpec],
    group_of: Sequence[int],
    cluster: Cluster,
) -> tuple[Mesh, ...]:
    """Places the stages on the given devices, or on consecutive ones.

    Args:
        group_of: the device group of each stage, numbered by the first stage of each group.
    """
    groups = max(group_of) + 1
    sizes = [math.prod(size for _, size in each) for each in axes]
    for number in range(groups, len(stages)):
        first = group_of[number]
        if sizes[number] != sizes[first]:
            raise InputError(
                f"stages {first} and {number} of the hand-written plan share devices, and one"
                f" has {sizes[first]}, the other {sizes[number]}",
                help="give the chunks of one device group meshes of the same size",
                code="SHARDC-207",
            )
    if sum(sizes[:groups]) > cluster.num_devices:
        raise _too_many(sum(sizes[:groups]), cluster)
    given = [stage.devices for stage in stages[:groups]]
    if all(each is None for each in given):
        firsts = place(cluster, sizes[:groups])
        given = [tuple(range(d, d + n)) for d, n in zip(firsts, sizes, strict=False)]
    elif any(each is None for each in given):
        raise InputError(
            f"stage {given.index(None)} of the hand-written plan has no devices, but others have",
            help="give the devices of all stages, or of none",
            code="SHARDC-207",
        )
    used: set[int] = set()
    for number, ids in enumerate(each or () for each in given):
        wrong = [d for d in ids if d in used or not 0 <= d < cluster.num_devices]
        if wrong or len(set(ids)) < len(ids):
            raise InputError(
                f"the devices {ranges(ids)} of stage {number} of the hand-written plan are not"
                f" {len(ids)} free ones of the {cluster.num_devices} of cluster '{cluster.name}'",
                help="give each device to one stage, numbered from 0",
                code="SHARDC-207",
            )
        used.update(ids)
    return tuple(
        mesh_of(
            [size for _, size in each], given[group_of[number]] or (), [name for name, _ in each]
        )
        for number, each in enumerate(axes)
    )


def _too_many(devices: int, cluster: Cluster) -> InputError:
    return InputError(
        f"the stages of the hand-written plan take {devices} devices, and cluster"
        f" '{cluster.name}' has {cluster.num_devices}",
        help="use fewer stages, smaller meshes or a larger cluster",
        code="SHARDC-207",
    )

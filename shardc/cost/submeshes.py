"""The parts of a cluster that stages may use, and their meshes."""

from collections.abc import Sequence

from shardc.cluster import Cluster
from shardc.errors import ClusterError
from shardc.plan.layout import Mesh

AXIS_NAMES = ("x", "y", "z", "w")


def submesh_sizes(cluster: Cluster) -> tuple[int, ...]:
    """Numbers of devices that one stage may have, ascending.

    1, 2, 4, ... and all devices inside a node, then whole nodes. Any multiset of them that adds up
    to the cluster can be placed (Alpa, OSDI 2022, theorem 1, for nodes of a power of two).
    """
    per_node = cluster.num_devices_per_node
    inside = [2**p for p in range(per_node.bit_length()) if 2**p < per_node]
    nodes = range(per_node, cluster.num_devices + 1, per_node)
    return (*inside, *nodes)


def place(cluster: Cluster, sizes: Sequence[int]) -> tuple[int, ...]:
    """First device of each stage; every stage is contiguous and inside a node or of whole nodes.

    Stages of equal size keep their order; otherwise larger stages come first, so that no small
    one breaks the alignment of a large one.

    Raises:
        ClusterError: SHARDC-101, the sizes do not fit.
    """
    if sum(sizes) > cluster.num_devices or min(sizes) < 1:
        raise ClusterError(
            f"stages of {', '.join(map(str, sizes))} devices do not fit the"
            f" {cluster.num_devices} devices of cluster '{cluster.name}'",
            help="use fewer or smaller stages",
            code="SHARDC-101",
        )
    if _aligned(cluster, sizes):
        order = list(range(len(sizes)))
    else:
        order = sorted(range(len(sizes)), key=lambda stage: -sizes[stage])
    if not _aligned(cluster, [sizes[stage] for stage in order]):
        raise ClusterError(
            f"stages of {', '.join(map(str, sizes))} devices cannot be placed without one of them"
            f" spanning nodes of {cluster.num_devices_per_node} devices",
            help="use sizes that divide a node, or whole nodes",
            code="SHARDC-101",
        )
    first = [0] * len(sizes)
    used = 0
    for stage in order:
        first[stage] = used
        used += sizes[stage]
    return tuple(first)


def _aligned(cluster: Cluster, sizes: Sequence[int]) -> bool:
    """Whether stages placed side by side in this order each stay in a node or use whole nodes."""
    per_node = cluster.num_devices_per_node
    used = 0
    for size in sizes:
        inside_node = used // per_node == (used + size - 1) // per_node
        whole_nodes = used % per_node == 0 and size % per_node == 0
        if not (inside_node or whole_nodes):
            return False
        used += size
    return True


def factorizations(number: int, max_factors: int) -> list[tuple[int, ...]]:
    """Ordered ways to write `number` as a product of up to `max_factors` factors above 1.

    >>> factorizations(8, 2)
    [(8,), (2, 4), (4, 2)]
    """
    if number == 1:
        return [()]
    if max_factors == 1:
        return [(number,)]
    found: list[tuple[int, ...]] = [(number,)]
    for factor in range(2, number // 2 + 1):
        if number % factor == 0:
            found += [(factor, *rest) for rest in factorizations(number // factor, max_factors - 1)]
    return found


def mesh_views(
    cluster: Cluster, first_device: int, num_devices: int, max_axes: int = 2
) -> list[Mesh]:
    """Every mesh of up to `max_axes` axes over contiguous devices, axes named x, y, ...

    The last axis joins neighbours, so it has the fastest links. One device gives a mesh with
    one axis x of size 1.

    Raises:
        ClusterError: SHARDC-101, the devices are not in the cluster.
    """
    if num_devices < 1 or first_device < 0 or first_device + num_devices > cluster.num_devices:
        raise ClusterError(
            f"devices {first_device} to {first_device + num_devices - 1} are not in cluster"
            f" '{cluster.name}' of {cluster.num_devices} devices",
            help="use a smaller mesh or a larger cluster",
            code="SHARDC-101",
        )
    device_ids = tuple(range(first_device, first_device + num_devices))
    shapes = factorizations(num_devices, max_axes) if num_devices > 1 else [(1,)]
    return [mesh_of(shape, device_ids) for shape in shapes]


def mesh_of(shape: Sequence[int], device_ids: Sequence[int], axes: Sequence[str] = ()) -> Mesh:
    """The mesh of that shape over those devices, axes named as given, or x, y, z, w.

    Raises:
        ClusterError: SHARDC-101, more than 4 axes, or a shape for another number of devices.
    """
    count = 1
    for size in shape:
        count *= size
    if len(shape) > len(AXIS_NAMES) or count != len(device_ids):
        raise ClusterError(
            f"a mesh of shape {'x'.join(map(str, shape))} cannot hold {len(device_ids)} devices",
            help=f"give up to {len(AXIS_NAMES)} axes whose product is {len(device_ids)}",
            code="SHARDC-101",
        )
    return Mesh(tuple(zip(axes or AXIS_NAMES, shape, strict=False)), tuple(device_ids))

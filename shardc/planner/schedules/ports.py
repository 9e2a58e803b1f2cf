"""The links that transfers between device groups share."""

import functools
from collections.abc import Mapping

from shardc.cluster import Cluster
from shardc.plan.layout import Mesh
from shardc.schedule.simulate import Link


def ports(cluster: Cluster, meshes: Mapping[int, Mesh]) -> Link:
    """What a transfer between two groups occupies: the way out of its sender, and the way into its
    receiver.

    A cluster gives the bandwidth of each device at each level, which includes its share of a
    network card. So groups of one node do not slow each other down, but values that leave a group
    through the same level take turns, as do values that enter it. Levels are full-duplex.

    Args:
        meshes: of each group.
    """

    @functools.cache
    def taken(source: int, target: int) -> tuple[tuple[str, int, int], ...]:
        level = outermost(cluster, meshes[source], meshes[target])
        return ("out of", source, level), ("into", target, level)

    return taken


def outermost(cluster: Cluster, source: Mesh, target: Mesh) -> int:
    """The outermost level of links between two meshes; -1 between islands."""
    home, first = cluster.home((*source.device_ids, *target.device_ids))
    if home is cluster and cluster.islands:
        return -1
    crossed = [
        i
        for i in range(len(home.levels))
        if {(device - first) // home.unit_size(i) for device in source.device_ids}
        != {(device - first) // home.unit_size(i) for device in target.device_ids}
    ]
    return max(crossed, default=0)

"""The links of each axis of a mesh, and between two meshes."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from shardc.cluster import Cluster, Island
from shardc.cluster.islands import crossing
from shardc.cost.protocols import Crossed, Line, gather_lines, reduce_lines
from shardc.errors import ClusterError
from shardc.plan.layout import Mesh


class Link(msgspec.Struct, frozen=True):
    """The link of one group of devices along a mesh axis, while all other groups communicate.

    Attributes:
        bandwidth_bytes_per_s: from one device to the next of the ring.
        latency_s: of one message, averaged over the hops of the ring.
        launch_s: fixed time of a collective.
        all_to_all_bandwidth_bytes_per_s: of one device that sends to all others of its group;
            less than the ring's if a group has several devices behind one slow link.
        gathers, reduces: what a library with several protocols takes beside `launch_s` for an
            all-gather or reduce-scatter, and for an all-reduce; (): rings over the above.
    """

    bandwidth_bytes_per_s: float
    latency_s: float
    all_to_all_bandwidth_bytes_per_s: float
    launch_s: float = 0.0
    gathers: tuple[Line, ...] = ()
    reduces: tuple[Line, ...] = ()


Links = Mapping[str, Link]


def check_fits(cluster: Cluster, mesh: Mesh) -> None:
    """ClusterError (SHARDC-101) unless the mesh uses devices of the cluster, each once."""
    ids = mesh.device_ids
    if int(np.prod(mesh.shape)) != len(ids) or len(set(ids)) != len(ids):
        raise ClusterError(
            f"a mesh of shape {mesh.shape} lists {len(set(ids))} different devices",
            help="list each device of the mesh once, row-major over its axes",
            code="SHARDC-101",
        )
    if max(ids) >= cluster.num_devices or min(ids) < 0:
        raise ClusterError(
            f"the mesh uses device {max(ids)}, but cluster '{cluster.name}' has"
            f" {cluster.num_devices} devices",
            help="use a smaller mesh or a larger cluster",
            code="SHARDC-101",
        )


def axis_links(cluster: Cluster, mesh: Mesh) -> dict[str, Link]:
    """The link of each axis of `mesh`.

    All groups along an axis run the same collective at once. At each level that a group crosses,
    the mesh devices inside one unit (a node, say) own their share of the unit's outgoing bandwidth,
    and the rings that leave the unit divide it: on 2 nodes of 8 devices, the axis of a (2, 8)
    mesh that crosses the network makes 8 rings per node, each with one device's share; the axis
    of a flat mesh of 16 makes one ring, which has all 8 shares. The slowest level determines the
    bandwidth.

    Raises:
        ClusterError: SHARDC-101, the mesh does not fit the cluster.
    """
    check_fits(cluster, mesh)
    home, first = cluster.home(mesh.device_ids)
    grid = np.array(mesh.device_ids).reshape(mesh.shape) - first
    links = {}
    for position, (axis, size) in enumerate(mesh.axes):
        groups = np.moveaxis(grid, position, -1).reshape(-1, size)
        links[axis] = _group_link(home, groups)
    return links


def _group_link(cluster: Island, groups: np.ndarray) -> Link:
    """Link of groups (one per row) that all communicate at once; an idle link if n = 1.

    The latency is the mean over the hops of a ring that leaves each unit once.
    Source: NCCL, src/graph/tuning.cc (steps inside nodes and between them).
    """
    n = groups.shape[1]
    all_to_all, latency_s, launch_s = float("inf"), 0.0, 0.0
    crossed: list[Crossed] = []
    for i, level in enumerate(cluster.levels):
        units = groups // cluster.unit_size(i)
        outer = groups // cluster.unit_size(i + 1)
        hops = _crossings(units) - _crossings(outer)
        latency_s += hops / n * level.latency_s
        parts = _parts(units, level.size)
        leaves = parts.inside < parts.in_outer
        if not leaves.any():
            continue
        most = int(parts.used.max())
        out = np.unique(parts.unit[leaves])  # the units that rings leave
        rings = np.bincount(np.searchsorted(out, parts.unit[leaves]))
        parts = parts.of(np.isin(parts.unit, out))
        unit = np.searchsorted(out, parts.unit)
        most_inside = np.zeros(len(out), np.int64)
        np.maximum.at(most_inside, unit, parts.inside)
        competes = (rings > 1) & (most_inside > 1)
        reached = level.bandwidth_bytes_per_s * level.reached(n)
        inside = np.bincount(unit, parts.inside)
        share = reached * np.where(competes, level.shared, 1.0) * inside
        # Each device inside sends 1/n of its data to each of the others at this level.
        messages_out = np.bincount(unit, parts.inside * (parts.in_outer - parts.inside))
        all_to_all = min(all_to_all, float((share * (n - 1) / messages_out).min()))
        launch_s = max(launch_s, level.launch_s)
        ring = float((share / rings).min())
        depth = most - 1 if i == 0 else (most - 1).bit_length()  # a chain, or a binary tree
        crossed.append(Crossed(level, ring, hops, depth))
    ring = min((at.ring_bytes_per_s for at in crossed), default=float("inf"))
    lines = gather_lines(n, crossed), reduce_lines(n, crossed)
    return Link(ring, latency_s, all_to_all, launch_s, *lines)


def _crossings(units: np.ndarray) -> int:
    """The most hops between units in the ring of any group; 0 if one unit holds each group."""
    used = np.diff(np.sort(units, axis=1), axis=1) > 0
    most = 1 + int(used.sum(axis=1).max())
    return most if most > 1 else 0


class _Parts(NamedTuple):
    """The part of each group in each unit that it uses, in no order.

    Attributes:
        unit: of each part.
        inside: devices of the part.
        in_outer: devices that its group has in the outer unit around it.
        used: units that its group uses there.
    """

    unit: np.ndarray
    inside: np.ndarray
    in_outer: np.ndarray
    used: np.ndarray

    def of(self, which: np.ndarray) -> "_Parts":
        """Only some of the parts."""
        return _Parts(*(each[which] for each in self))


def _parts(units: np.ndarray, size: int) -> _Parts:
    """The parts of groups whose devices lie in `units`; `size` of these make an outer unit."""
    most = int(units.max()) + 1
    keys = np.arange(len(units))[:, None] * most + units
    keys, inside = np.unique(keys, return_counts=True)
    group, unit = np.divmod(keys, most)
    outer = unit // size
    _, home = np.unique(group * most + outer, return_inverse=True)
    in_outer, used = np.bincount(home, inside).astype(np.int64), np.bincount(home)
    return _Parts(unit, inside, in_outer[home], used[home])


def transfer_link(cluster: Cluster, source: Mesh, target: Mesh) -> Link:
    """The link between two meshes, over which each byte of a value crosses once.

    The devices of the smaller mesh send or receive side by side, each with its own share of the
    outermost level that separates the meshes; the larger mesh gathers bytes that it needs in
    several places (Alpa, OSDI 2022, section 6: local all-gather).

    Raises:
        ClusterError: SHARDC-101, a mesh does not fit the cluster.
    """
    check_fits(cluster, source)
    check_fits(cluster, target)
    pairs = min(len(source.device_ids), len(target.device_ids))
    homes = [cluster.home(mesh.device_ids)[0] for mesh in (source, target)]
    if homes[0] != homes[1] and cluster not in homes:
        way = crossing(cluster.bridges, homes[0].name, homes[1].name)
        assert way is not None, "bridges join all islands of a cluster"
        return Link(way[0] * pairs, way[1], way[0] * pairs)
    bandwidth, latency_s = float("inf"), 0.0
    home, start = cluster.home((*source.device_ids, *target.device_ids))
    first, second = np.array(source.device_ids) - start, np.array(target.device_ids) - start
    for i, level in enumerate(home.levels):
        if set(first // home.unit_size(i)) != set(second // home.unit_size(i)):
            reached = level.bandwidth_bytes_per_s * level.transfer_efficiency
            bandwidth = min(bandwidth, reached * pairs)
            latency_s = max(latency_s, level.latency_s)
    return Link(bandwidth, latency_s, bandwidth)

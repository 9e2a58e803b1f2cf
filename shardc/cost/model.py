"""The cost model: everything the planner assumes about time, in one object.

Its parameters are data of the cluster; another cluster file, for example a calibrated one, is
another model. docs/costs.md describes the model on one page.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from shardc.cluster import Cluster, Device
from shardc.cost.arrivals import Arrival, arrival_s
from shardc.cost.collectives import all_reduce_over_s, collective_s, transfer_s
from shardc.cost.links import Link, Links, axis_links, transfer_link
from shardc.cost.roofline import op_time_s
from shardc.plan.layout import Mesh, TensorSharding
from shardc.plan.predicted import Asked, Collective
from shardc.plan.priced_work import Work


class Dispatch(NamedTuple):
    """The host's work in an iteration of a loop, or outside loops.

    The host dispatches ahead of the device and is hidden behind long kernels, not behind short
    ones: an iteration of a loop takes between the longer of the two and their sum, and so does the
    work outside loops. A lead is not carried from one to the other.

    Attributes:
        times: iterations in one call.
        device_s, host_s: of one iteration.
        exposed: part of the shorter, from 0 to 1.
    """

    times: float
    device_s: float
    host_s: float
    exposed: float

    def exposed_s(self, ratio: float = 1.0) -> float:
        """Seconds that the host adds to a call whose device takes `ratio` times as long."""
        device_s = ratio * self.device_s
        return self.times * (together_s(device_s, self.host_s, self.exposed) - device_s)


class CostModel:
    """Seconds of compute and communication on the devices of a cluster.

    Attributes:
        cluster: its parameters.
        device: the device that computes: the cluster's, or after `on` that of an island.
    """

    def __init__(self, cluster: Cluster, device: Device | None = None) -> None:
        self.cluster = cluster
        self.device = device or cluster.device
        self._between: dict[tuple[Mesh, Mesh], Link] = {}
        self._links: dict[Mesh, Links] = {}

    def on(self, mesh: Mesh) -> "CostModel":
        """The model for a mesh, at the pace of the island that holds it."""
        return CostModel(self.cluster, self.cluster.home(mesh.device_ids)[0].device)

    def op_s(self, work: Work) -> float:
        """Seconds of an op on one device."""
        return op_time_s(work, self.device)

    def links(self, mesh: Mesh) -> Links:
        """The link of each axis of `mesh`, from which `shardc.cost.reshard` prices reshards.

        Raises:
            ClusterError: SHARDC-101, the mesh does not fit the cluster.
        """
        if mesh not in self._links:
            self._links[mesh] = axis_links(self.cluster, mesh)
        return self._links[mesh]

    def sent_itemsizes(self, itemsize: int, sum_itemsize: int) -> tuple[int, int]:
        """Bytes in which an element, and an element of a partial sum, is sent.

        shardc sends 16-bit sums as float32; clusters with `half_sums` model other programs.
        """
        return itemsize, itemsize if self.device.software.half_sums else sum_itemsize

    def all_reduce_s(self, axes: Sequence[tuple[int, Link]], num_bytes: float) -> float:
        """Seconds of an all-reduce over axes of (size, link), of `num_bytes` on one device."""
        return all_reduce_over_s(axes, num_bytes)

    def call_s(self, asked: Sequence[Asked], mesh: Mesh) -> float:
        """Seconds of one call of a function, from the work it requires of a device of `mesh`."""
        device_s = sum(each.times * self._device_s(each, mesh) for each in asked)
        return device_s + self.host_s(asked, mesh)

    def start_s(self, asked: Sequence[Asked], mesh: Mesh) -> float:
        """Seconds of the device in a call that do not depend on its sizes: kernels and collectives
        that start."""
        started = [
            msgspec.structs.replace(
                each,
                work=tuple((Work(w.dtype, 0.0, 0, w.launches), n) for w, n in each.work),
                sent=tuple(msgspec.structs.replace(one, num_bytes=0) for one in each.sent),
            )
            for each in asked
        ]
        return sum(each.times * self._device_s(each, mesh) for each in started)

    def host_s(self, asked: Sequence[Asked], mesh: Mesh) -> float:
        """Seconds that the host adds to those of the device in one call."""
        return sum(each.exposed_s() for each in self.dispatches(asked, mesh))

    def dispatches(self, asked: Sequence[Asked], mesh: Mesh) -> tuple[Dispatch, ...]:
        """The host's work in one call; none if it takes no time."""
        software = self.device.software
        if not (software.dispatch_s or software.wait_s):
            return ()
        return tuple(
            Dispatch(
                each.times,
                self._device_s(each, mesh),
                sum(count * work.launches for work, count in each.work) * software.dispatch_s
                + sum(one.count * math.log2(mesh.num_shards(one.axes)) for one in each.sent)
                * software.wait_s,
                software.host_exposed,
            )
            for each in asked
        )

    def _device_s(self, asked: Asked, mesh: Mesh) -> float:
        busy_s = sum(count * self.op_s(work) for work, count in asked.work)
        return busy_s + self.sent_s(asked.sent, mesh)

    def sent_s(self, sent: Sequence[Collective], mesh: Mesh) -> float:
        """Seconds of collectives over axes of `mesh`."""
        links = self.links(mesh)
        return sum(
            each.count * collective_s(each, [(mesh.size(a), links[a]) for a in each.axes])
            for each in sent
            if each.count
        )

    def transfer_s(self, source: Mesh, target: Mesh, num_bytes: float) -> float:
        """Seconds to send a value of `num_bytes` (all of it) from one mesh to another.

        Raises:
            ClusterError: SHARDC-101, a mesh does not fit the cluster.
        """
        link = self._between.get((source, target))
        if link is None:
            link = self._between[source, target] = transfer_link(self.cluster, source, target)
        return transfer_s(link, num_bytes)

    def arrival_s(
        self, arrival: Arrival, mesh: Mesh, wanted: TensorSharding, itemsize: int
    ) -> float:
        """Seconds to bring an argument of `itemsize`-byte elements to its sharding on `mesh`."""
        return arrival_s(arrival, mesh, wanted, itemsize, self.cluster)


def together_s(one_s: float, other_s: float, exposed: float) -> float:
    """Seconds of two overlapping activities: (a^(1/e) + b^(1/e))^e, from their maximum (e = 0) to
    their sum (e = 1)."""
    longer, shorter = max(one_s, other_s), min(one_s, other_s)
    if shorter == 0.0 or exposed == 0.0:
        return longer
    return float(longer * (1.0 + (shorter / longer) ** (1.0 / exposed)) ** exposed)

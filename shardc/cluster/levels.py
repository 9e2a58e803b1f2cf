"""The levels of links of a cluster, and the ways in which a library sends over them."""

import bisect
import math
from typing import Literal

import msgspec

from shardc.cluster.devices import require_not_negative, require_positive, require_shares
from shardc.errors import ClusterError

Algorithm = Literal["ring", "tree", "switch"]


class Protocol(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way to run a collective: an algorithm and a wire protocol, as on one level of links.

    A group uses the fastest protocol that all levels it crosses have.

    Attributes:
        algorithm: "ring" runs all collectives. "tree" runs all-reduces: a chain inside a unit of
            the innermost level, a binary tree between the units of the others, up and down again.
        "switch" runs all-reduces inside one unit: the switch adds up, and every device sends and
            receives each byte once.
        name: of the wire protocol.
        start_s: fixed time of a collective.
        latency_s: of one step.
        efficiency: share of what rings reach of this level's bandwidth.
        most_bytes_per_s: limit per device; None: there is none.
        least_group: devices of the smallest group that uses it.
    """

    algorithm: Algorithm
    name: str
    latency_s: float
    start_s: float = 0.0
    efficiency: float = 1.0
    most_bytes_per_s: float | None = None
    least_group: int = 2

    def __post_init__(self) -> None:
        owner = f"protocol '{self.algorithm} {self.name}'"
        require_shares(owner, efficiency=self.efficiency)
        require_not_negative(owner, latency_s=self.latency_s, start_s=self.start_s)
        if self.most_bytes_per_s is not None:
            require_positive(owner, most_bytes_per_s=self.most_bytes_per_s)

    @property
    def key(self) -> tuple[Algorithm, str]:
        return self.algorithm, self.name


class Level(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One level of links: joins `size` equal units of the level below.

    Attributes:
        size: number of units (devices at the innermost level, then nodes, then racks).
        bandwidth_bytes_per_s: one way, per *device*; a node of 8 devices behind one 25 Gbit/s
            card has 25e9 / 8 bits / 8 devices.
        latency_s: of one message.
        efficiency: share of the bandwidth that a collective of many devices reaches.
        shared: factor if several rings leave one unit side by side, each with several
            devices in it; rings with one device per unit do not compete.
        groups: number of devices -> share of the bandwidth that rings of such a group reach, by
            logarithm between them; {}: `efficiency`.
        launch_s: fixed time of a collective.
        transfer_efficiency: share of the bandwidth that a transfer between stages reaches.
        protocols: of collectives; (): rings whose steps take `latency_s`.
        source: field name -> the source of its number.
    """

    name: str
    size: int
    bandwidth_bytes_per_s: float
    latency_s: float
    efficiency: float = 1.0
    shared: float = 1.0
    groups: dict[int, float] = {}
    launch_s: float = 0.0
    transfer_efficiency: float = 1.0
    protocols: tuple[Protocol, ...] = ()
    source: dict[str, str] = {}

    def __post_init__(self) -> None:
        owner = f"level '{self.name}'"
        require_positive(owner, size=self.size, bandwidth_bytes_per_s=self.bandwidth_bytes_per_s)
        require_shares(
            owner,
            efficiency=self.efficiency,
            shared=self.shared,
            transfer_efficiency=self.transfer_efficiency,
            **{f"groups[{size}]": share for size, share in self.groups.items()},
        )
        require_positive(owner, **{f"a size in groups ({size})": size for size in self.groups})
        require_not_negative(owner, latency_s=self.latency_s, launch_s=self.launch_s)
        keys = [each.key for each in self.protocols]
        twice = [" ".join(key) for key in keys if keys.count(key) > 1]
        if twice:
            raise ClusterError(
                f"{owner} has protocol '{twice[0]}' twice", help="give each protocol once"
            )

    def reached(self, size: int) -> float:
        """Share of the bandwidth that rings of a group of `size` devices reach."""
        if not self.groups:
            return self.efficiency
        known = sorted(self.groups)
        i = bisect.bisect_left(known, size)
        if i == 0 or i == len(known) or known[i] == size:
            return self.groups[known[min(i, len(known) - 1)]]
        below, above = known[i - 1], known[i]
        way = math.log(size / below) / math.log(above / below)
        return self.groups[below] + way * (self.groups[above] - self.groups[below])

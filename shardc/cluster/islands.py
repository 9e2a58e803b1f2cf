"""Islands of equal devices, the bridges between them, and the least that all islands have."""

import math
from collections.abc import Sequence

import msgspec

from shardc.cluster.devices import Device, Software, Timing, require_not_negative, require_positive
from shardc.cluster.levels import Level
from shardc.errors import ClusterError

MOST_DEVICES = 1 << 16  # of a cluster


class Island(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Equal devices, joined by levels of links from the inside out.

    Devices are numbered 0 .. num_devices - 1, inner levels first: with levels of sizes 8 and 2,
    devices 0-7 are node 0 and 8-15 node 1. No levels means a single device.
    """

    name: str
    device: Device
    levels: tuple[Level, ...] = ()

    def __post_init__(self) -> None:
        check_size(f"island '{self.name}'", self.num_devices)

    @property
    def num_devices(self) -> int:
        """Devices in all units."""
        return math.prod(level.size for level in self.levels)

    @property
    def num_devices_per_node(self) -> int:
        """Devices in a unit of the innermost level."""
        return self.levels[0].size if self.levels else 1

    def unit_size(self, level: int) -> int:
        """Devices in one of the units that `levels[level]` joins: 1 at level 0."""
        return math.prod(inner.size for inner in self.levels[:level])


def check_size(owner: str, num_devices: int) -> None:
    """Raises if there are more devices than shardc plans for.

    Raises:
        ClusterError: SHARDC-100.
    """
    if num_devices > MOST_DEVICES:
        raise ClusterError(
            f"{owner} has {num_devices:,} devices; shardc plans for at most {MOST_DEVICES:,}",
            help=f"describe at most {MOST_DEVICES:,} devices",
        )


class Bridge(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A link between two islands.

    Attributes:
        between: names of the islands.
        bandwidth_bytes_per_s: one way, per device of the smaller side of a transfer.
        latency_s: of one message.
        source: field name -> the source of its number.
    """

    between: tuple[str, str]
    bandwidth_bytes_per_s: float
    latency_s: float
    source: dict[str, str] = {}

    def __post_init__(self) -> None:
        owner = f"the bridge between {' and '.join(self.between)}"
        require_positive(owner, bandwidth_bytes_per_s=self.bandwidth_bytes_per_s)
        require_not_negative(owner, latency_s=self.latency_s)


def check_joined(islands: Sequence[Island], bridges: Sequence[Bridge]) -> None:
    """Raises unless islands have distinct names and bridges connect all of them.

    Raises:
        ClusterError: SHARDC-100.
    """
    names = [island.name for island in islands]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ClusterError(f"two islands are called '{twice[0]}'", help="give each its own name")
    for bridge in bridges:
        unknown = [name for name in bridge.between if name not in names]
        if unknown or bridge.between[0] == bridge.between[1]:
            raise ClusterError(
                f"a bridge is between '{bridge.between[0]}' and '{bridge.between[1]}'",
                help=f"join two of the islands {', '.join(names)}",
            )
    for name in names[1:]:
        if crossing(bridges, names[0], name) is None:
            raise ClusterError(
                f"no link joins the islands '{names[0]}' and '{name}'",
                help="add a bridge between them, or between each and another island",
            )


def crossing(bridges: Sequence[Bridge], source: str, target: str) -> tuple[float, float] | None:
    """(bytes/s per device, latency in seconds) of the widest path over bridges; None: no path."""
    best = {source: (math.inf, 0.0)}
    waiting = [source]
    while waiting:
        at = waiting.pop()
        for bridge in bridges:
            if at not in bridge.between:
                continue
            other = bridge.between[1 - bridge.between.index(at)]
            width = min(best[at][0], bridge.bandwidth_bytes_per_s)
            if width > best.get(other, (0.0, 0.0))[0]:
                best[other] = width, best[at][1] + bridge.latency_s
                waiting.append(other)
    return best.get(target)


def least_device(islands: Sequence[Island]) -> Device:
    """The least that a device of any island has; a program on all of them waits for the slowest."""
    devices = [island.device for island in islands]
    dtypes = sorted({dtype for device in devices for dtype in device.flops_per_s})
    return Device(
        name=" or ".join(dict.fromkeys(device.name for device in devices)),
        memory_bytes=min(device.memory_bytes for device in devices),
        flops_per_s={d: min(each.peak_flops_per_s(d) for each in devices) for d in dtypes},
        memory_bandwidth_bytes_per_s=min(d.memory_bandwidth_bytes_per_s for d in devices),
        host_bandwidth_bytes_per_s=min(d.host_bandwidth_bytes_per_s for d in devices),
        timing=_least([device.timing for device in devices]),
        software=_least([device.software for device in devices]),
        source={"memory_bytes": "the least of the islands", "flops_per_s": "the least"},
    )


BETTER_HIGH = frozenset(
    {
        "product_efficiency", "unaligned", "memory_efficiency", "gradient_overlap",
        "transfers_overlap", "half_sums",
    }
)  # fmt: skip


def _least[Part: (Timing, Software)](parts: Sequence[Part]) -> Part:
    numbers = {}
    for name in parts[0].__struct_fields__:
        if name != "source":
            worst = min if name in BETTER_HIGH else max
            numbers[name] = worst(getattr(part, name) for part in parts)
    return type(parts[0])(**numbers)


def least_levels(islands: Sequence[Island], bridges: Sequence[Bridge]) -> tuple[Level, ...]:
    """Two levels of links, no better than any links they represent: one for units inside a
    node of every island, one for all of them."""
    total = sum(island.num_devices for island in islands)
    unit = math.gcd(*(n for each in islands for n in (each.num_devices, each.num_devices_per_node)))
    inner = [island.levels[0] for island in islands if island.levels]
    outer = [level for island in islands for level in island.levels]
    outer += [Level("bridge", 2, b.bandwidth_bytes_per_s, b.latency_s) for b in bridges]
    found = [_least_level("node", unit, inner)] if unit > 1 else []
    return (*found, _least_level("islands", total // unit, outer))


def _least_groups(levels: Sequence[Level]) -> dict[int, float]:
    sizes = {size for level in levels for size in level.groups}
    return {size: min(level.reached(size) for level in levels) for size in sorted(sizes)}


def _least_level(name: str, size: int, levels: Sequence[Level]) -> Level:
    return Level(
        name=name,
        size=size,
        bandwidth_bytes_per_s=min(level.bandwidth_bytes_per_s for level in levels),
        latency_s=max(level.latency_s for level in levels),
        efficiency=min(level.efficiency for level in levels),
        shared=min(level.shared for level in levels),
        groups=_least_groups(levels),
        launch_s=max(level.launch_s for level in levels),
        transfer_efficiency=min(level.transfer_efficiency for level in levels),
    )

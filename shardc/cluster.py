"""The machine a program is planned for: devices, and the links between them."""

import math
import os
import re
import sys
from pathlib import Path
from typing import Any

import msgspec

from shardc.errors import ClusterError
from shardc.files import BAD_DATA, read_data, write_whole

BUILT_IN = Path(__file__).parent / "clusters"


def _require(owner: str, low: float, high: float, wanted: str, numbers: dict[str, float]) -> None:
    for name, number in numbers.items():
        if not low <= number <= high:
            raise ClusterError(f"{name} of {owner} is {number}", help=f"give a {name} {wanted}")


def _require_positive(owner: str, **numbers: float) -> None:
    _require(owner, sys.float_info.min, sys.float_info.max, "above 0", numbers)


def _require_not_negative(owner: str, **numbers: float) -> None:
    _require(owner, 0, sys.float_info.max, "of 0 or more", numbers)


def _require_shares(owner: str, **numbers: float) -> None:
    wanted = "above 0 and at most 1: a share of the peak"
    _require(owner, sys.float_info.min, 1, wanted, numbers)


class Timing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far a device stays behind its peaks; with the defaults it reaches them.

    Attributes:
        product_efficiency: share of the peak FLOP/s that a large product reaches.
        half_side: rows, or columns, of a product at which it reaches half of that.
        half_depth: elements that are summed up at which it reaches half of that.
        unaligned: share of that for products with a side or depth that is no multiple of 16 bytes.
        memory_efficiency: share of the memory bandwidth that a large kernel reaches.
        launch_s: from one kernel to the next.
        dispatch_s: of the host, for each kernel, ahead of the device.
        wait_s: of the host, for each further device of a collective's group: the last one counts.
        action_s: of the host, for each action of the schedule.
        step_s: of the host, for each step.
        gradient_overlap: share of the reduction of gradients that is hidden behind the backward.
        transfer_efficiency: share of the links' bandwidth that a transfer between stages reaches.
        transfers_overlap: a transfer between stages runs beside what its sender computes.
        half_sums: 16-bit partial sums travel between devices as they are, not as float32.
        source: field name -> where its number comes from.
    """

    product_efficiency: float = 1.0
    half_side: float = 0.0
    half_depth: float = 0.0
    unaligned: float = 1.0
    memory_efficiency: float = 1.0
    launch_s: float = 0.0
    dispatch_s: float = 0.0
    wait_s: float = 0.0
    action_s: float = 0.0
    step_s: float = 0.0
    gradient_overlap: float = 0.0
    transfer_efficiency: float = 1.0
    transfers_overlap: bool = True
    half_sums: bool = False
    source: dict[str, str] = {}

    def __post_init__(self) -> None:
        owner = "the device's timing"
        _require_shares(
            owner,
            product_efficiency=self.product_efficiency,
            unaligned=self.unaligned,
            memory_efficiency=self.memory_efficiency,
            transfer_efficiency=self.transfer_efficiency,
        )
        numbers = {name: getattr(self, name) for name in self.__struct_fields__ if name != "source"}
        _require_not_negative(owner, **numbers)
        if self.gradient_overlap > 1:
            raise ClusterError(
                f"gradient_overlap of {owner} is {self.gradient_overlap}",
                help="give a gradient_overlap from 0 to 1",
            )


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One device; all devices of a cluster are alike.

    Attributes:
        memory_bytes: what a program may use on one device.
        flops_per_s: peak FLOP/s by dtype name ("float32", "bfloat16", ...); "default" for the rest.
        memory_bandwidth_bytes_per_s: between the device and its own memory.
        timing: how far it stays behind these.
        source: field name -> where its number comes from.
    """

    name: str
    memory_bytes: int
    flops_per_s: dict[str, float]
    memory_bandwidth_bytes_per_s: float
    timing: Timing = Timing()
    source: dict[str, str] = {}

    def __post_init__(self) -> None:
        _require_positive(
            f"device '{self.name}'",
            memory_bytes=self.memory_bytes,
            memory_bandwidth_bytes_per_s=self.memory_bandwidth_bytes_per_s,
            **{f"flops_per_s['{dtype}']": peak for dtype, peak in self.flops_per_s.items()},
        )
        if "default" not in self.flops_per_s:
            raise ClusterError(
                f"flops_per_s of device '{self.name}' has no entry 'default'",
                help='add "default": the FLOP/s for every dtype that is not listed',
            )

    def peak_flops_per_s(self, dtype: str) -> float:
        """Peak FLOP/s for `dtype`, or the default one."""
        return self.flops_per_s.get(dtype, self.flops_per_s["default"])


class Level(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One level of links: `size` units of the level below, joined alike.

    Attributes:
        size: how many units it joins (devices at the innermost level, then nodes, then racks).
        bandwidth_bytes_per_s: one way, per *device*; a node of 8 devices behind one 25 Gbit/s
            card has 25e9 / 8 bits / 8 devices.
        latency_s: of one message.
        efficiency: share of the bandwidth that a collective of many devices reaches.
        shared: share of that where several rings leave one unit side by side.
        half_group: devices beyond the first of a group at which it reaches half of that.
        launch_s: of a collective, whatever it sends.
        source: field name -> where its number comes from.
    """

    name: str
    size: int
    bandwidth_bytes_per_s: float
    latency_s: float
    efficiency: float = 1.0
    shared: float = 1.0
    half_group: float = 0.0
    launch_s: float = 0.0
    source: dict[str, str] = {}

    def __post_init__(self) -> None:
        owner = f"level '{self.name}'"
        _require_positive(owner, size=self.size, bandwidth_bytes_per_s=self.bandwidth_bytes_per_s)
        _require_shares(owner, efficiency=self.efficiency, shared=self.shared)
        _require_not_negative(
            owner, latency_s=self.latency_s, half_group=self.half_group, launch_s=self.launch_s
        )

    def reached(self, size: int) -> float:
        """Share of the bandwidth that a collective of a group of `size` devices reaches."""
        others = size - 1
        return self.efficiency * (others / (others + self.half_group) if self.half_group else 1.0)


class Cluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Equal devices, joined by levels of links from the inside out.

    Devices are numbered 0 .. num_devices - 1, inner levels first: with levels of sizes 8 and 2,
    devices 0-7 are node 0 and 8-15 node 1. No levels means a single device.
    """

    name: str
    device: Device
    levels: tuple[Level, ...] = ()

    @property
    def num_devices(self) -> int:
        """Devices in the whole cluster."""
        return math.prod(level.size for level in self.levels)

    @property
    def num_devices_per_node(self) -> int:
        """Devices that the innermost level joins."""
        return self.levels[0].size if self.levels else 1

    def unit_size(self, level: int) -> int:
        """Devices in one of the units that `levels[level]` joins: 1 at level 0."""
        return math.prod(inner.size for inner in self.levels[:level])

    def with_devices(self, num_devices: int) -> "Cluster":
        """The same machine with the first `num_devices` devices, or with more outermost units.

        Raises:
            ClusterError: SHARDC-101, `num_devices` is not a whole number of the units it reaches.
        """
        if num_devices < 1:
            raise ClusterError(
                f"cluster '{self.name}' cannot have {num_devices} devices",
                help="ask for 1 device or more",
                code="SHARDC-101",
            )
        levels: list[Level] = []
        left = num_devices
        for i, level in enumerate(self.levels):
            outermost = i + 1 == len(self.levels)
            size = left if outermost or left <= level.size else level.size
            if left % size != 0:
                raise ClusterError(
                    f"{num_devices} devices are not whole units of {self.unit_size(i + 1)} devices"
                    f" in cluster '{self.name}'",
                    help=f"ask for a multiple of {self.unit_size(i + 1)} devices, or fewer",
                    code="SHARDC-101",
                )
            levels.append(msgspec.structs.replace(level, size=size))
            left //= size
            if left == 1:
                break
        if left != 1:
            raise ClusterError(
                f"cluster '{self.name}' has one device and no links, not {num_devices}",
                help="describe the links between its devices as levels",
                code="SHARDC-101",
            )
        return msgspec.structs.replace(self, levels=tuple(levels))

    def with_memory(self, memory_bytes: int) -> "Cluster":
        """The same machine with `memory_bytes` per device."""
        device = msgspec.structs.replace(self.device, memory_bytes=memory_bytes)
        return msgspec.structs.replace(self, device=device)

    @staticmethod
    def names() -> tuple[str, ...]:
        """Names of the built-in clusters; `load` knows others of their kinds, too."""
        return tuple(sorted(path.stem for path in BUILT_IN.glob("*.json")))

    @staticmethod
    def load(source: "str | Path") -> "Cluster":
        """Reads a built-in cluster by name, or a JSON file by path.

        `a100-8x48` is 48 nodes of 8 devices like those of the built-in clusters whose names begin
        with `a100`, `a100-384` as many devices in their usual nodes.

        Raises:
            ClusterError: SHARDC-100, there is no such cluster or the file does not describe one.
        """
        built_in = str(source) in Cluster.names()
        path = BUILT_IN / f"{source}.json" if built_in else Path(source)
        if not built_in and not path.exists() and (sized := _of_kind(str(source))) is not None:
            return sized
        try:
            return msgspec.json.decode(read_data(path), type=Cluster)
        except FileNotFoundError as error:
            raise ClusterError(
                f"there is no cluster file '{source}' and no built-in cluster of that name",
                where=source,
                help=f"give a JSON file, one of {', '.join(Cluster.names())}, or nodes of such"
                " a kind: h100-8x128",
            ) from error
        except BAD_DATA as error:
            raise ClusterError(
                f"'{source}' does not describe a cluster: {error}",
                where=source,
                help="give name, device and levels as the built-in clusters in shardc/clusters do",
            ) from error
        except ClusterError as error:
            error.where = source
            raise

    @staticmethod
    def parse(text: str) -> "Cluster":
        """A built-in cluster by name, a file by path, or the JSON text itself.

        Raises:
            ClusterError: SHARDC-100, as `load`.
        """
        if not text.lstrip().startswith("{"):
            return Cluster.load(text)
        try:
            return msgspec.json.decode(text, type=Cluster)
        except BAD_DATA as error:
            raise ClusterError(
                f"the text does not describe a cluster: {error}",
                help="give name, device and levels as the built-in clusters in shardc/clusters do",
            ) from error

    def save(self, path: "str | Path") -> None:
        """Writes the cluster as JSON that `load` reads."""
        write_whole(path, msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")

    @staticmethod
    def local() -> "Cluster":
        """The JAX devices of this job; CPU devices share the machine's memory evenly.

        A GPU is looked up among the built-in clusters by its name; one that is not known is
        described by its own memory and the numbers of an A100.
        """
        import jax

        devices = jax.devices()
        if devices[0].platform == "cpu":
            memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            cluster = Cluster.load("cpu8").with_memory(memory_bytes // len(devices))
        else:
            cluster = _gpu_cluster(devices[0])
        local = cluster.with_devices(len(devices))
        return msgspec.structs.replace(local, name="local")


_KINDS = {"v100": "alpa"}  # kind -> the built-in cluster, where it does not bear its name


def _of_kind(name: str) -> Cluster | None:
    """The cluster called `<kind>-<devices of a node>x<nodes>` or `<kind>-<devices>`; None if that
    is no such name.

    Raises:
        ClusterError: SHARDC-101, the devices are not whole nodes, or more than a node joins.
    """
    match = re.fullmatch(r"([a-z0-9]+)-(\d+)(?:x(\d+))?", name)
    if match is None:
        return None
    like = [
        each for each in Cluster.names() if each == f"{match[1]}-64" or each == _KINDS.get(match[1])
    ]
    if not like:
        return None
    base = Cluster.load(like[0])
    if match[3] is None:
        return msgspec.structs.replace(base.with_devices(int(match[2])), name=name)
    node, *outer = base.levels
    per_node, nodes = int(match[2]), int(match[3])
    if per_node > node.size or per_node < 1:
        raise ClusterError(
            f"'{name}' has nodes of {per_node} devices, and '{base.name}' has nodes of {node.size}",
            help=f"give nodes of 1 to {node.size} devices, or describe others in a file",
            code="SHARDC-101",
        )
    small = msgspec.structs.replace(node, size=per_node)
    cluster = msgspec.structs.replace(base, name=name, levels=(small, *outer))
    return msgspec.structs.replace(cluster.with_devices(per_node * nodes), name=name)


def _gpu_cluster(device: Any) -> Cluster:
    kinds = {"H200": "h200-64", "H100": "h100-64", "A100": "a100-64", "V100": "alpa"}
    name = next((kinds[kind] for kind in kinds if kind in device.device_kind), "a100-64")
    cluster = Cluster.load(name)
    stats = device.memory_stats() or {}
    return cluster.with_memory(stats.get("bytes_limit", cluster.device.memory_bytes))

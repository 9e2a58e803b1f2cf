"""The target machine of a plan: devices, and the links between them."""

import itertools
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from shardc.cluster.devices import Device
from shardc.cluster.islands import (
    Bridge,
    Island,
    check_joined,
    check_size,
    least_device,
    least_levels,
)
from shardc.cluster.levels import Level
from shardc.errors import ClusterError, writing
from shardc.files import BAD_DATA, as_path, read_data, write_whole

BUILT_IN = Path(__file__).parents[1] / "clusters"


class Cluster(Island, frozen=True, forbid_unknown_fields=True):
    """Equal devices joined by levels of links, or several islands of them, joined by bridges.

    Device ids are consecutive, island after island. Work over devices of several islands is priced
    by `device` and `levels`, which then hold the least that all islands have.

    Attributes:
        islands: () if all devices are equal.
        bridges: they connect all islands, directly or through other islands.
    """

    islands: tuple[Island, ...] = ()
    bridges: tuple[Bridge, ...] = ()

    def __post_init__(self) -> None:
        check_size(f"cluster '{self.name}'", self.num_devices)

    @staticmethod
    def of_islands(
        name: str, islands: Sequence[Island], bridges: Sequence[Bridge] = ()
    ) -> "Cluster":
        """The cluster of several islands.

        Raises:
            ClusterError: SHARDC-100, two have the same name, or bridges do not connect them.
        """
        if not islands:
            raise ClusterError(
                f"cluster '{name}' has no device and no islands",
                help="give a device and levels, or islands that have them",
            )
        check_joined(islands, bridges)
        device, levels = least_device(islands), least_levels(islands, bridges)
        return Cluster(name, device, levels, tuple(islands), tuple(bridges))

    def home(self, device_ids: Iterable[int]) -> tuple[Island, int]:
        """The island that holds all these devices, and its first device; if they are on several,
        or all devices are equal, the cluster itself and 0."""
        if not self.islands:
            return self, 0
        first, ids = 0, set(device_ids)
        for island in self.islands:
            behind = first + island.num_devices
            if all(first <= device < behind for device in ids):
                return island, first
            first = behind
        return self, 0

    @property
    def parts(self) -> "tuple[tuple[Cluster, int], ...]":
        """Each island as a cluster of its own, with its first device; () if all devices are
        equal."""
        behind = itertools.accumulate(island.num_devices for island in self.islands)
        return tuple(
            (Cluster(each.name, each.device, each.levels), end - each.num_devices)
            for each, end in zip(self.islands, behind, strict=True)
        )

    @property
    def least(self) -> "Cluster":
        """The same number of equal devices, each with the least that all islands have."""
        return Cluster(self.name, self.device, self.levels)

    def with_devices(self, num_devices: int) -> "Cluster":
        """The same machine with the first `num_devices` devices, or with more outermost units.

        Raises:
            ClusterError: SHARDC-101, `num_devices` is not a whole number of the units it reaches.
        """
        asked: object = num_devices
        if not isinstance(asked, int) or asked < 1:
            raise ClusterError(
                f"cluster '{self.name}' cannot have {asked!r} devices",
                help="give 1 device or more",
                code="SHARDC-101",
            )
        if self.islands:
            if num_devices == self.num_devices:
                return self
            raise ClusterError(
                f"cluster '{self.name}' has islands of {self.num_devices} devices, not"
                f" {num_devices}",
                help="change the levels of its islands",
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
                    help=f"give a multiple of {self.unit_size(i + 1)} devices, or fewer",
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
        """The same machine with this much memory per device."""
        device = msgspec.structs.replace(self.device, memory_bytes=memory_bytes)
        islands = tuple(
            msgspec.structs.replace(
                each, device=msgspec.structs.replace(each.device, memory_bytes=memory_bytes)
            )
            for each in self.islands
        )
        return msgspec.structs.replace(self, device=device, islands=islands)

    @staticmethod
    def names() -> tuple[str, ...]:
        """Names of the built-in clusters; `load` also knows other sizes of their kinds."""
        return tuple(sorted(path.stem for path in BUILT_IN.glob("*.json")))

    @staticmethod
    def load(source: "str | Path") -> "Cluster":
        """Reads a built-in cluster by name, or a JSON file by path.

        `a100-8x48` is 48 nodes of 8 devices like those of the built-in clusters whose names begin
        with `a100`; `a100-384` is 384 devices in nodes of the usual size;
        `v5p-4x4x8` is a torus of these axes.

        Raises:
            ClusterError: SHARDC-100, there is no such cluster or the file does not describe one.
        """
        built_in = str(source) in Cluster.names()
        try:
            path = BUILT_IN / f"{source}.json" if built_in else as_path(source)
            if not built_in and not path.exists() and (sized := _of_kind(str(source))) is not None:
                return sized
            return _decoded(read_data(path))
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
            ClusterError: SHARDC-100, as in `load`.
        """
        source: object = text
        if not isinstance(source, str) or not source.lstrip().startswith("{"):
            return Cluster.load(text)
        try:
            return _decoded(text)
        except BAD_DATA as error:
            raise ClusterError(
                f"the text does not describe a cluster: {error}",
                help="give name, device and levels as the built-in clusters in shardc/clusters do",
            ) from error

    def save(self, path: "str | Path") -> None:
        """Writes the cluster as JSON for `load`; InputError (SHARDC-180) if that fails."""
        with writing("the cluster", path):
            write_whole(path, msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")

    @staticmethod
    def local(devices_of_hosts: Sequence[int] = ()) -> "Cluster":
        """The JAX devices of this job, all taken to be like the first one.

        A GPU is looked up by name among the built-in clusters; an unknown one is described by
        its own memory and the numbers of an A100. CPU devices share the memory of this machine
        evenly.

        Args:
            devices_of_hosts: how many of them each host has; (): all are on this one. Hosts with
                different numbers are described as one machine, with the links inside it.
        """
        import jax

        hosts = list(devices_of_hosts) or [len(jax.devices())]
        first = jax.devices()[0]
        if first.platform == "cpu":
            memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            on_this_one = max(hosts) if len(hosts) > 1 else len(jax.devices())
            cluster = Cluster.load("cpu8").with_memory(memory_bytes // on_this_one)
        else:
            cluster = _gpu_cluster(first)
        if len(hosts) > 1 and len(set(hosts)) == 1:
            node, *outer = cluster.levels
            levels = (msgspec.structs.replace(node, size=hosts[0]), *(outer or [_NETWORK]))
            cluster = msgspec.structs.replace(cluster, levels=levels)
        return msgspec.structs.replace(cluster.with_devices(sum(hosts)), name="local")


_NETWORK = Level(
    "network",
    size=1,
    bandwidth_bytes_per_s=1.25e9,
    latency_s=50e-6,
    source={
        "size": "chosen: as many as the job has hosts",
        "bandwidth_bytes_per_s": "assumed: 10 Gbit/s",
        "latency_s": "assumed",
    },
)
"""Between hosts whose kind of device has no built-in cluster of several nodes."""


class _Described(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cluster as a file describes it; with islands, derived fields may be left out."""

    name: str
    device: Device | None = None
    levels: tuple[Level, ...] = ()
    islands: tuple[Island, ...] = ()
    bridges: tuple[Bridge, ...] = ()


def _decoded(text: bytes | str) -> Cluster:
    """The cluster in a JSON text.

    Raises:
        msgspec.MsgspecError: it does not describe a cluster.
        ClusterError: SHARDC-100, its parts are inconsistent.
    """
    found = msgspec.json.decode(text, type=_Described)
    if found.device is not None and not found.islands:
        return Cluster(found.name, found.device, found.levels, (), found.bridges)
    cluster = Cluster.of_islands(found.name, found.islands, found.bridges)
    if found.device not in (None, cluster.device) or found.levels not in ((), cluster.levels):
        raise ClusterError(
            f"cluster '{found.name}' has islands, and also a device or levels",
            help="leave out the device and the levels; each island has its own",
        )
    return cluster


_KINDS = {"v100": "alpa"}  # kind -> its built-in cluster, if the name does not begin with the kind


def _of_kind(name: str) -> Cluster | None:
    """The cluster called `<kind>-<devices of a node>x<nodes>`, `<kind>-<devices>`, or, of a kind
    whose links are a torus, `<kind>-<x>x<y>x<z>`; None if the name does not have this form.

    Raises:
        ClusterError: SHARDC-101, the devices are not whole nodes, or exceed the size of a node.
    """
    match = re.fullmatch(r"([a-z0-9]+)-(\d+)(?:x(\d+)(?:x(\d+))?)?", name)
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
    if match[4] is not None:
        sizes = [int(match[axis]) for axis in (2, 3, 4)]
        if [level.name for level in base.levels] != ["x", "y", "z"] or 0 in sizes:
            return None
        axes = zip(base.levels, sizes, strict=True)
        levels = tuple(msgspec.structs.replace(own, size=size) for own, size in axes if size > 1)
        return msgspec.structs.replace(base, name=name, levels=levels)
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

"""Clusters of several islands: read, refused, and seen as equal devices."""

from pathlib import Path

import msgspec
import pytest

from shardc.cluster import Bridge, Cluster, Device, Island, Level
from shardc.errors import ClusterError

FAST = Device("fast", 40, {"default": 10.0, "bfloat16": 100.0}, 8.0)
SLOW = Device("slow", 16, {"default": 12.0}, 9.0)
A = Island("a", FAST, (Level("node", 4, 50.0, 1e-6), Level("network", 2, 5.0, 1e-5)))
B = Island("b", SLOW, (Level("node", 2, 20.0, 2e-6),))
BRIDGE = Bridge(("a", "b"), 1.0, 1e-4)
MIXED = Cluster.of_islands("mixed", [A, B], [BRIDGE])


def test_all_devices_are_at_least_what_each_island_is_at_least() -> None:
    device = MIXED.device
    assert (MIXED.num_devices, device.memory_bytes) == (10, 16)
    assert device.flops_per_s == {"default": 10.0, "bfloat16": 12.0}
    assert device.memory_bandwidth_bytes_per_s == 8.0
    assert [(x.size, x.bandwidth_bytes_per_s, x.latency_s) for x in MIXED.levels] == [
        (2, 20.0, 2e-6),
        (5, 1.0, 1e-4),
    ]


def test_devices_have_their_island() -> None:
    assert MIXED.home([0, 7]) == (A, 0)
    assert MIXED.home([8, 9]) == (B, 8)
    assert MIXED.home([7, 8]) == (MIXED, 0)


def test_file_of_islands_needs_no_device_of_its_own(tmp_path) -> None:
    data = msgspec.to_builtins(MIXED)
    for name in ("device", "levels"):
        assert Cluster.parse(msgspec.json.encode(data).decode()) == MIXED
        del data[name]
    path = tmp_path / "c.json"
    path.write_bytes(msgspec.json.encode(data))
    assert Cluster.load(path) == MIXED


def test_islands_that_no_link_joins_are_refused() -> None:
    third = msgspec.structs.replace(B, name="c")
    with pytest.raises(ClusterError, match="no link joins the islands 'a' and 'c'") as caught:
        Cluster.of_islands("c", [A, B, third], [BRIDGE])
    assert caught.value.code == "SHARDC-100"
    over_b = Bridge(("c", "b"), 3.0, 1e-4)
    assert Cluster.of_islands("c", [A, B, third], [BRIDGE, over_b]).num_devices == 12


@pytest.mark.parametrize(
    ("islands", "bridges", "message"),
    [
        ([A, A], [BRIDGE], "two islands are called 'a'"),
        ([A, B], [Bridge(("a", "x"), 1.0, 0.0)], "a bridge is between 'a' and 'x'"),
        ([A, B], [Bridge(("a", "a"), 1.0, 0.0)], "a bridge is between 'a' and 'a'"),
        ([], [], "has no device and no islands"),
    ],
)
def test_islands_that_make_no_cluster_are_refused(islands, bridges, message) -> None:
    with pytest.raises(ClusterError, match=message):
        Cluster.of_islands("c", islands, bridges)


def test_bridge_without_bandwidth_is_refused() -> None:
    with pytest.raises(ClusterError, match="bandwidth_bytes_per_s of the bridge between a and b"):
        Bridge(("a", "b"), -1.0, 0.0)


def test_file_that_says_two_things_of_its_devices_is_refused() -> None:
    data = msgspec.to_builtins(MIXED)
    data["device"]["memory_bytes"] = 17
    with pytest.raises(ClusterError, match="has islands, and also a device or levels"):
        Cluster.parse(msgspec.json.encode(data).decode())


def test_a_limit_of_memory_holds_on_every_island() -> None:
    limited = MIXED.with_memory(7)
    assert [island.device.memory_bytes for island in limited.islands] == [7, 7]
    assert limited.device.memory_bytes == 7


def test_islands_have_the_devices_that_they_have() -> None:
    assert MIXED.with_devices(10) is MIXED
    with pytest.raises(ClusterError, match="islands of 10 devices") as caught:
        MIXED.with_devices(20)
    assert caught.value.code == "SHARDC-101"


def test_the_example_has_two_nodes_of_a100s_and_one_of_v100s() -> None:
    sites = Cluster.load(Path(__file__).parents[3] / "examples" / "two_sites.json")
    assert [(island.name, island.num_devices) for island in sites.islands] == [
        ("a100s", 16),
        ("v100s", 8),
    ]
    assert sites.device.memory_bytes == Cluster.load("alpa").device.memory_bytes

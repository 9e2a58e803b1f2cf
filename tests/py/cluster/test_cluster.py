"""Cluster descriptions: the built-in ones, files, and what is refused."""

import json
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.cluster import Bridge, Cluster, Device, Island, Level
from shardc.cluster.islands import MOST_DEVICES
from shardc.errors import ClusterError

GOOD = {
    "name": "two",
    "device": {
        "name": "d",
        "memory_bytes": 1024,
        "flops_per_s": {"default": 1e12},
        "memory_bandwidth_bytes_per_s": 1e11,
    },
    "levels": [{"name": "node", "size": 2, "bandwidth_bytes_per_s": 1e9, "latency_s": 1e-6}],
}


def refusal(tmp_path, change) -> ClusterError:
    data = json.loads(json.dumps(GOOD))
    change(data)
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ClusterError) as caught:
        Cluster.load(path)
    assert caught.value.code == "SHARDC-100"
    assert caught.value.where == path
    assert caught.value.help
    return caught.value


@pytest.mark.parametrize("name", Cluster.names())
def test_built_in_cluster_names_a_source_for_every_number(name):
    cluster = Cluster.load(name)
    assert cluster.name == name
    device = cluster.device
    for part in (device, device.timing, device.software, *cluster.levels):
        defaults = {
            f.name: {} if f.default_factory is dict else f.default
            for f in msgspec.structs.fields(part)
        }
        numbers = {
            name
            for name in set(defaults) - {"name", "source", "timing", "software"}
            if getattr(part, name) != defaults[name]
        }
        assert set(part.source) == numbers


def test_sizes_of_the_built_in_clusters():
    assert {name: Cluster.load(name).num_devices for name in Cluster.names()} == {
        "a100-64": 64,
        "a100-megatron": 3200,
        "selene": 4480,
        "alpa": 64,
        "alpa-megatron": 64,
        "cpu8": 8,
        "h100-64": 64,
        "h200-64": 64,
        "v5p-64": 64,
    }


def test_alpa_node_shares_25_gbit_per_s():
    alpa = Cluster.load("alpa")
    assert alpa.levels[1].bandwidth_bytes_per_s * 8 * alpa.num_devices_per_node == 25e9
    assert alpa.device.peak_flops_per_s("float16") == 125e12
    assert alpa.device.peak_flops_per_s("int32") == alpa.device.flops_per_s["default"]


def test_file_survives_save_and_load(tmp_path):
    cluster = Cluster.load("h100-64")
    cluster.save(tmp_path / "c.json")
    assert Cluster.load(tmp_path / "c.json") == cluster


@given(st.integers(1, 64))
def test_with_devices_has_that_many_or_is_refused(num_devices):
    alpa = Cluster.load("alpa")
    if num_devices > 8 and num_devices % 8:
        with pytest.raises(ClusterError, match="whole units of 8") as caught:
            alpa.with_devices(num_devices)
        assert caught.value.code == "SHARDC-101"
    else:
        assert alpa.with_devices(num_devices).num_devices == num_devices


def test_one_level_grows_to_any_number_of_devices():
    assert Cluster.load("cpu8").with_devices(12).num_devices == 12


def test_device_without_links_stays_alone():
    alone = Cluster("one", Device("d", 1, {"default": 1.0}, 1.0))
    assert (alone.num_devices, alone.num_devices_per_node) == (1, 1)
    assert alone.with_devices(1) == alone
    for count in (0, 2):
        with pytest.raises(ClusterError) as caught:
            alone.with_devices(count)
        assert caught.value.code == "SHARDC-101"


def test_local_cluster_is_the_jax_devices_of_this_job():
    local = Cluster.local()
    assert (local.name, local.num_devices) == ("local", 8)
    assert local.device.memory_bytes > 0


@pytest.mark.parametrize(
    ("hosts", "sizes"), [([4, 4], [4, 2]), ([2, 2, 2], [2, 3]), ([3, 5], [8]), ([8], [8])]
)
def test_local_cluster_has_a_level_between_equal_hosts(hosts, sizes):
    levels = Cluster.local(hosts).levels
    assert [level.size for level in levels] == sizes
    assert all(a.bandwidth_bytes_per_s > b.bandwidth_bytes_per_s for a, b in pairwise(levels))


def test_unknown_name_lists_the_built_in_ones():
    with pytest.raises(ClusterError, match="no built-in cluster") as caught:
        Cluster.load("alpaca")
    assert caught.value.code == "SHARDC-100"
    assert "alpa-megatron, cpu8" in str(caught.value.help)


def test_text_that_is_not_json_is_refused(tmp_path):
    path = tmp_path / "c.json"
    path.write_bytes(b"\xff{")
    with pytest.raises(ClusterError, match="does not describe a cluster"):
        Cluster.load(path)
    with pytest.raises(ClusterError, match="does not describe a cluster"):
        Cluster.load(tmp_path)


def test_wrong_type_is_named_with_its_place(tmp_path):
    error = refusal(tmp_path, lambda data: data["levels"][0].update(size="many"))
    assert "$.levels[0].size" in error.message


def test_unknown_field_is_refused(tmp_path):
    error = refusal(tmp_path, lambda data: data["device"].update(memory="1"))
    assert "memory" in error.message


@pytest.mark.parametrize("field", ["size", "bandwidth_bytes_per_s"])
def test_level_number_that_is_not_positive_is_refused(tmp_path, field):
    error = refusal(tmp_path, lambda data: data["levels"][0].update({field: 0}))
    assert error.message == f"{field} of level 'node' is 0" + ("" if field == "size" else ".0")


def test_negative_latency_is_refused(tmp_path):
    error = refusal(tmp_path, lambda data: data["levels"][0].update(latency_s=-1))
    assert "latency_s of level 'node'" in error.message


def test_rate_of_a_dtype_that_does_not_exist_is_refused(tmp_path):
    error = refusal(tmp_path, lambda data: data["device"]["flops_per_s"].update(bflot16=1e12))
    assert error.message == "flops_per_s of device 'd' has a rate for 'bflot16', which is no dtype"
    assert "bfloat16" in error.help


def test_a_lone_default_is_the_rate_of_every_dtype():
    assert Device("d", 1, {"default": 1e12}, 1e11).has_rate("bfloat16")
    listed = Device("d", 1, {"default": 1e12, "float32": 1e12}, 1e11)
    assert [listed.has_rate(dtype) for dtype in ("float32", "bfloat16")] == [True, False]


def test_device_without_default_flops_is_refused(tmp_path):
    error = refusal(tmp_path, lambda data: data["device"].update(flops_per_s={"float32": 1.0}))
    assert "'default'" in error.message


def test_device_without_memory_is_refused(tmp_path):
    error = refusal(tmp_path, lambda data: data["device"].update(memory_bytes=0))
    assert "memory_bytes of device 'd' is 0" in error.message


@pytest.mark.parametrize("share", [0, -0.5, 1.01, 7])
@pytest.mark.parametrize("field", ["product_efficiency", "memory_efficiency", "unaligned"])
def test_efficiency_that_is_no_share_is_refused(tmp_path, field, share):
    error = refusal(tmp_path, lambda data: data["device"].update(timing={field: share}))
    assert error.message == f"{field} of the device's timing is {float(share)}"
    error = refusal(tmp_path, lambda data: data["levels"][0].update(efficiency=share))
    assert error.message == f"efficiency of level 'node' is {float(share)}"


@pytest.mark.parametrize(
    ("part", "field"),
    [
        ("timing", "launch_s"),
        ("timing", "half_side"),
        ("software", "dispatch_s"),
        ("software", "action_s"),
    ],
)
def test_negative_time_is_refused(tmp_path, part, field):
    error = refusal(tmp_path, lambda data: data["device"].update({part: {field: -1}}))
    assert error.message == f"{field} of the device's {part} is -1.0"


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"latency_s": -1.0}, "latency_s of protocol 'ring LL' is -1.0"),
        ({"efficiency": 1.5}, "efficiency of protocol 'ring LL' is 1.5"),
        ({"most_bytes_per_s": 0.0}, "most_bytes_per_s of protocol 'ring LL' is 0.0"),
        ({"algorithm": "star"}, "Invalid enum value 'star'"),
    ],
)
def test_protocol_that_cannot_be_is_refused(tmp_path, change, wrong):
    protocol = {"algorithm": "ring", "name": "LL", "latency_s": 1e-6} | change
    error = refusal(tmp_path, lambda data: data["levels"][0].update(protocols=[protocol]))
    assert wrong in error.message


def test_protocol_that_is_there_twice_is_refused(tmp_path):
    two = [{"algorithm": "ring", "name": "LL", "latency_s": each} for each in (1e-6, 2e-6)]
    error = refusal(tmp_path, lambda data: data["levels"][0].update(protocols=two))
    assert error.message == "level 'node' has protocol 'ring LL' twice"


def test_groups_between_known_sizes_reach_what_lies_between(tmp_path):
    level = Level("node", 8, 1.0, 0.0, efficiency=0.5, groups={2: 0.2, 8: 0.6})
    assert [level.reached(n) for n in (2, 4, 8, 16)] == pytest.approx([0.2, 0.4, 0.6, 0.6])
    assert Level("node", 8, 1.0, 0.0, efficiency=0.5).reached(4) == 0.5
    error = refusal(tmp_path, lambda data: data["levels"][0].update(groups={2: 1.5}))
    assert error.message == "groups[2] of level 'node' is 1.5"


def test_more_than_all_of_the_reduction_cannot_be_hidden(tmp_path):
    error = refusal(tmp_path, lambda data: data["device"].update(software={"gradient_overlap": 2}))
    assert "gradient_overlap" in error.message


def test_python_cluster_is_checked_like_a_file():
    with pytest.raises(ClusterError, match="size of level 'l' is 0"):
        Level("l", 0, 1.0, 0.0)


@pytest.mark.parametrize(
    ("name", "levels", "base"),
    [
        ("h100-8x128", (8, 128), "h100-64"),
        ("a100-8x48", (8, 48), "a100-64"),
        ("a100-512", (8, 64), "a100-64"),
        ("a100-4", (4,), "a100-64"),
        ("h200-4x2", (4, 2), "h200-64"),
        ("v100-8x8", (8, 8), "alpa"),
        ("v5p-512", (4, 4, 32), "v5p-64"),
        ("v5p-4x8x8", (4, 8, 8), "v5p-64"),
        ("v5p-2x1x2", (2, 2), "v5p-64"),
    ],
)
def test_clusters_of_a_kind_have_any_number_of_nodes(name, levels, base):
    cluster, like = Cluster.load(name), Cluster.load(base)
    assert cluster.name == name
    assert tuple(level.size for level in cluster.levels) == levels
    assert cluster.device == like.device
    for own, other in zip(cluster.levels, like.levels, strict=False):
        assert own.bandwidth_bytes_per_s == other.bandwidth_bytes_per_s


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("h100-16x2", "SHARDC-101"),
        ("h100-0x2", "SHARDC-101"),
        ("h100-8x0", "SHARDC-101"),
        ("h100-12", "SHARDC-101"),
        ("best-8x2", "SHARDC-100"),
        ("h100-8by2", "SHARDC-100"),
        ("h100-8x2x2", "SHARDC-100"),
        ("v5p-4x0x4", "SHARDC-100"),
        ("h100-8x99999999999", "SHARDC-100"),
    ],
)
def test_clusters_that_no_kind_has_are_refused(name, code):
    with pytest.raises(ClusterError) as refused:
        Cluster.load(name)
    assert refused.value.code == code
    assert refused.value.help


def test_a_cluster_has_at_most_65536_devices(tmp_path):
    assert Cluster.load("h100-8x8192").num_devices == MOST_DEVICES
    error = refusal(tmp_path, lambda data: data["levels"][0].update(size=10**15))
    assert "shardc plans for at most 65,536" in error.message
    half = Island("a", Cluster.load("cpu8").device, (Level("node", MOST_DEVICES, 1e9, 1e-6),))
    other = msgspec.structs.replace(half, name="b")
    with pytest.raises(ClusterError, match="cluster 'two' has 131,072 devices"):
        Cluster.of_islands("two", [half, other], [Bridge(("a", "b"), 1e9, 1e-6)])


def test_a_missing_dtype_and_a_negative_bandwidth_are_refused(tmp_path):
    assert (
        "has no entry 'default'"
        in refusal(
            tmp_path, lambda data: data["device"].update(flops_per_s={"float32": 1e12})
        ).message
    )
    assert (
        "bandwidth_bytes_per_s of level 'node' is -1"
        in refusal(
            tmp_path, lambda data: data["levels"][0].update(bandwidth_bytes_per_s=-1.0)
        ).message
    )

"""Cluster descriptions: the built-in ones, files, and what is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.cluster import Cluster, Device, Level
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
    for part in (cluster.device, *cluster.levels):
        numbers = set(part.__struct_fields__) - {"name", "source"}
        assert set(part.source) == numbers


def test_sizes_of_the_built_in_clusters():
    assert {name: Cluster.load(name).num_devices for name in Cluster.names()} == {
        "a100-64": 64,
        "a100-8": 8,
        "alpa": 64,
        "cpu8": 8,
        "h100-64": 64,
        "h100-8": 8,
        "h200-64": 64,
        "h200-8": 8,
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


def test_unknown_name_lists_the_built_in_ones():
    with pytest.raises(ClusterError, match="no built-in cluster") as caught:
        Cluster.load("alpaca")
    assert caught.value.code == "SHARDC-100"
    assert "alpa, cpu8" in str(caught.value.help)


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


def test_device_without_default_flops_is_refused(tmp_path):
    error = refusal(tmp_path, lambda data: data["device"].update(flops_per_s={"float32": 1.0}))
    assert "'default'" in error.message


def test_device_without_memory_is_refused(tmp_path):
    error = refusal(tmp_path, lambda data: data["device"].update(memory_bytes=0))
    assert "memory_bytes of device 'd' is 0" in error.message


def test_python_cluster_is_checked_like_a_file():
    with pytest.raises(ClusterError, match="size of level 'l' is 0"):
        Level("l", 0, 1.0, 0.0)

"""Several processes calibrate as one: what they tell each other, and the levels of their links."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import msgspec
import pytest

from shardc.calibrate.fit import fit_device, fit_links
from shardc.calibrate.link_probes import KINDS, Joined, groups_of, measure_links
from shardc.calibrate.measured_cluster import described
from shardc.calibrate.timer import Sample, Timer
from shardc.calibrate.together import gathering, levels_of, slowest
from shardc.cluster import Cluster
from shardc.errors import ClusterError
from shardc.runtime.processes import peers
from tests.py.end_to_end.launched import launch

LEVELS = [Joined("node", 2, 1), Joined("network", 2, 2)]
COMMAND = Path(sys.executable).with_name("shardc")


def told(*others: Any) -> Callable[[Any], list[Any]]:
    """A gather in which the other ranks have said this."""
    return lambda own: [own, *others]


def test_alone_a_process_tells_itself():
    assert gathering()(7) == [7]


def test_the_slowest_process_counts_and_what_one_left_out_does_not():
    def memory(num_bytes: int, seconds: float) -> Sample:
        return Sample("memory", "float32", (num_bytes,), seconds, 0.0)

    slower, faster = (msgspec.to_builtins([memory(8, seconds)]) for seconds in (3.0, 0.5))
    assert slowest([memory(8, 1.0), memory(16, 2.0)], told(slower)) == [memory(8, 3.0)]
    assert slowest([memory(8, 1.0)], told(faster)) == [memory(8, 1.0)]


def devices_on(monkeypatch, hosts: str) -> list[Any]:
    """A device of a process for each letter, which names the host of that process."""
    monkeypatch.setattr(peers, "hosts_of_ranks", lambda: list(hosts))
    return [SimpleNamespace(process_index=rank) for rank in range(len(hosts))]


@pytest.mark.parametrize(
    ("hosts", "levels"),
    [
        ("a", []),
        ("aa", [("node", 2, 1)]),
        ("ab", [("network", 2, 1)]),
        ("aabbcc", [("node", 2, 1), ("network", 3, 2)]),
    ],
)
def test_links_inside_hosts_and_between_them_are_levels(monkeypatch, hosts, levels):
    assert levels_of(devices_on(monkeypatch, hosts)) == levels


@pytest.mark.parametrize("hosts", ["aab", "abab"])
def test_hosts_that_are_not_alike_are_refused(monkeypatch, hosts):
    with pytest.raises(ClusterError, match="the devices of the hosts") as caught:
        levels_of(devices_on(monkeypatch, hosts))
    assert caught.value.code == "SHARDC-101"


def test_groups_between_hosts_take_one_device_of_each():
    assert groups_of(range(8), 2, 1).tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert groups_of(range(8), 2, 2).tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert groups_of(range(8), 4, 2).tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]


@pytest.mark.slow
def test_each_level_is_measured_and_fitted_by_itself():
    timer = Timer(0.0, repeats=1)
    measure_links(timer, jax.devices()[:4], LEVELS, quick=True)
    measured = {(each.kind, each.level) for each in timer.samples}
    assert measured >= {(kind, level.name) for kind in KINDS for level in LEVELS}
    samples = [
        Sample(kind, "float32", (2, num_bytes), num_bytes / rate, 0.0, name)
        for kind in KINDS
        for num_bytes in (1 << 14, 1 << 20)
        for name, rate in (("node", 8e9), ("network", 1e9))
    ]
    links = {level: fit_links(samples, level.name) for level in LEVELS}
    computes = fit_device([Sample("memory", "float32", (8,), 1e-6, 0.0)], "d", 1 << 30)
    cluster = described(computes, links, 1e-4, jax.devices()[:4], "")
    node, network = cluster.levels
    assert (node.name, node.size, network.name, network.size) == ("node", 2, "network", 2)
    apart = node.bandwidth_bytes_per_s / network.bandwidth_bytes_per_s
    assert apart == pytest.approx(8, rel=0.3)
    assert cluster.num_devices == 4


@pytest.mark.slow
def test_a_job_measures_itself_as_one_cluster(tmp_path):
    path = tmp_path / "here.json"
    done = launch(2, 1, "calibrate", "--quick", "-o", path, limit=60, script=COMMAND)
    assert done.returncode == 0, done.stderr
    cluster = Cluster.load(path)
    assert cluster.num_devices == 2
    assert [level.name for level in cluster.levels] == ["node"]
    assert done.stdout.count("measurements in") == 1  # rank 0 alone speaks


@pytest.mark.slow
def test_a_job_is_measured_with_all_its_devices(tmp_path):
    path = tmp_path / "here.json"
    done = launch(2, 1, "calibrate", "--devices", "3", "-o", path, limit=10, script=COMMAND)
    assert done.returncode == 1 and not path.exists()
    assert "SHARDC-101" in done.stderr and "have 2 devices together" in done.stderr

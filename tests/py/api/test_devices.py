"""The order of devices, and the cluster that they are taken for."""

import types
import warnings

import jax
import pytest

from shardc.api import asked_devices
from shardc.api.asked_devices import resolve_devices
from shardc.errors import RequestWarning
from shardc.runtime.processes import peers

HOSTS = ["a", "b", "a", "b"]  # of four ranks, dealt out in turn


@pytest.fixture
def devices(monkeypatch):
    """Two devices of each rank, as JAX lists them."""
    found = [
        types.SimpleNamespace(id=2 * rank + i, process_index=rank, platform="cpu")
        for rank in range(4)
        for i in range(2)
    ]
    monkeypatch.setattr(jax, "devices", lambda: found)
    for module in (asked_devices, peers):
        monkeypatch.setattr(module, "hosts_of_ranks", lambda: HOSTS)
    return found


def test_devices_of_a_host_stand_together_and_the_cluster_has_a_level_of_hosts(devices):
    cluster, own = resolve_devices(None, None)
    assert [device.process_index for device in own] == [0, 0, 2, 2, 1, 1, 3, 3]
    assert [level.size for level in cluster.levels] == [4, 2]


def test_an_order_that_alternates_between_hosts_is_warned_of(devices):
    with pytest.warns(RequestWarning, match="alternates between hosts"):
        cluster, own = resolve_devices(None, devices)
    assert list(own) == devices and [level.size for level in cluster.levels] == [8]
    one_each = [devices[0], devices[2]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cluster, _ = resolve_devices(None, one_each)
    assert [level.size for level in cluster.levels] == [1, 2]

"""What processes know of each other: who can fetch arrays from whom, and how it is chosen."""

import types

import jax
import pytest

from shardc.errors import ClusterError
from shardc.runtime.processes import peers, xla_threads
from shardc.runtime.processes.peers import VARIABLE, Peer, can_fetch, transfer_server
from tests.py.runtime.processes.fake_job import on_all

HERE, THERE = "127.0.0.1:1", "10.0.0.7:1"


@pytest.mark.parametrize(
    ("known", "can"),
    [
        ([("a", HERE), ("a", HERE)], True),
        ([("a", HERE), ("b", HERE)], False),  # a loopback address leads nowhere else
        ([("a", HERE), ("a", "")], False),
        ([("a", THERE), ("b", THERE)], True),
        ([("a", THERE), ("b", HERE)], False),
        ([("a", THERE), ("a", HERE)], True),
    ],
)
def test_processes_fetch_where_all_of_them_can_be_reached(monkeypatch, known, can):
    monkeypatch.setattr(peers, "peers", lambda: tuple(Peer(*each) for each in known))
    assert can_fetch({0, 1}) == can


@pytest.mark.parametrize(
    ("choice", "platform", "address"),
    [
        ("auto", "cpu", "127.0.0.1:0"),
        ("auto", "gpu", None),
        ("collective", "cpu", None),
        ("direct", "gpu", "192.0.2.1:0"),
    ],
)
def test_a_server_is_opened_as_asked(monkeypatch, choice, platform, address):
    assert opened_at(monkeypatch, choice, platform) == ([] if address is None else [address])


@pytest.mark.parametrize(
    ("devices", "threads", "opens"), [(1, 1, True), (2, 2, False), (2, 3, True), (4, 2, False)]
)
def test_a_server_needs_a_thread_that_no_program_can_block(monkeypatch, devices, threads, opens):
    monkeypatch.setenv(xla_threads.VARIABLE, str(threads))
    assert bool(opened_at(monkeypatch, "auto", "cpu", devices)) == opens


def opened_at(monkeypatch, choice, platform, devices=1):
    """The addresses at which servers are opened."""
    transfer = pytest.importorskip("jax.experimental.transfer")
    opened = []
    device = types.SimpleNamespace(platform=platform, client=None)
    monkeypatch.setattr(jax, "local_devices", lambda: [device] * devices)
    monkeypatch.setattr(jax, "local_device_count", lambda: devices)
    monkeypatch.setattr(
        transfer, "start_transfer_server", lambda client, at, more: opened.append(at)
    )
    monkeypatch.setattr(peers, "_outer_address", lambda: "192.0.2.1")
    monkeypatch.setenv(VARIABLE, choice)
    transfer_server.__wrapped__()
    return opened


def test_a_choice_that_does_not_exist_is_refused(monkeypatch):
    monkeypatch.setenv(VARIABLE, "pigeons")
    with pytest.raises(ClusterError, match=VARIABLE) as caught:
        transfer_server.__wrapped__()
    assert caught.value.code == "SHARDC-101"


def test_every_rank_knows_the_host_and_the_address_of_each(monkeypatch):
    monkeypatch.setattr(peers, "transfer_server", lambda: None)
    monkeypatch.setattr(peers, "this_host", lambda: "somewhere")
    found = on_all(lambda job: peers.peers_of(job))
    assert found == [(Peer("somewhere", ""),) * 3] * 3

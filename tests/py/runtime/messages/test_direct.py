"""Messages that receivers fetch: as a copy would bring them, each byte once per process.

The ranks of a job are pairs of this process's devices here, each with a server of its own.
"""

import itertools

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from shardc.errors import ShardcError
from shardc.runtime.messages import direct
from shardc.runtime.messages.direct import DirectRoute, Offers
from shardc.runtime.transport import Move

transfer = pytest.importorskip("jax.experimental.transfer")

DEVICES = np.array(jax.devices())
RANKS = 4
WHOLE, ROWS, COLUMNS = PartitionSpec(), PartitionSpec("x"), PartitionSpec(None, "x")
LAYOUTS = {
    "2x2 from 0, both": NamedSharding(
        Mesh(DEVICES[:4].reshape(2, 2), ("x", "y")), PartitionSpec("x", "y")
    ),
    "4 from 4, rows": NamedSharding(Mesh(DEVICES[4:], ("x",)), ROWS),
    "4 from 4, columns": NamedSharding(Mesh(DEVICES[4:], ("x",)), COLUMNS),
    "one, whole": NamedSharding(Mesh(DEVICES[5:6], ("x",)), WHOLE),
    "8, rows": NamedSharding(Mesh(DEVICES, ("x",)), ROWS),
    "4 from 2, whole": NamedSharding(Mesh(DEVICES[2:6], ("x",)), WHOLE),
}


def rank_of(device):
    return device.id // (len(DEVICES) // RANKS)


class Server:
    """JAX's server; counts the bytes that are fetched from it."""

    def __init__(self):
        self.own = transfer.start_transfer_server(DEVICES[0].client, "127.0.0.1:0", ["127.0.0.1:0"])
        self.await_pull = self.own.await_pull
        self.fetched = 0

    def connect(self, address):
        connection = self.own.connect(address)

        class Counting:
            def pull(_, number, wanted):
                self.fetched += sum(np.prod(w.shape) * w.dtype.itemsize for w in wanted)
                return connection.pull(number, wanted)

        return Counting()


@pytest.fixture(scope="module")
def servers():
    return [Server() for _ in range(RANKS)]


@pytest.fixture
def offers(servers, monkeypatch):
    """One per rank. An array that a rank has put together is the dictionary of its pieces."""
    monkeypatch.setattr(direct, "assembled", lambda shape, sharding, pieces, dtype: pieces)
    addresses = [server.own.address() for server in servers]
    return [Offers(server, addresses, rank, rank_of) for rank, server in enumerate(servers)]


def ranks_of(*shardings):
    return sorted({rank_of(device) for each in shardings for device in each.device_set})


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(LAYOUTS, 2)))
def test_values_arrive_as_a_copy_would(source, target, offers):
    source, target = LAYOUTS[source], LAYOUTS[target]
    values = [
        np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32),
        np.arange(32, dtype=np.int32).reshape(8, 4),
    ]
    moves = [Move(source, target, value.shape, value.dtype.name) for value in values]
    routes = {rank: DirectRoute(moves, offers[rank]) for rank in ranks_of(source, target)}
    for factor in (1, 3):  # one step after the other
        given = [jax.device_put(factor * value, source) for value in values]
        for rank in ranks_of(source):
            routes[rank].send(given)
        for each in given:
            each.delete()  # as a program does that it is donated to
        got = [{}, {}]
        for rank in ranks_of(target):
            for pieces, own in zip(got, routes[rank].receive(), strict=True):
                pieces |= own
        for value, pieces in zip(values, got, strict=True):
            assert set(pieces) == set(target.device_set)
            for device, index in target.devices_indices_map(value.shape).items():
                assert pieces[device].devices() == {device}
                np.testing.assert_array_equal(pieces[device], factor * value[index])
    for rank in ranks_of(source):
        with pytest.raises(ShardcError) as caught:
            routes[rank].receive()
        assert caught.value.code == "SHARDC-266"


def test_each_rank_fetches_a_byte_once(offers, servers):
    source, target = LAYOUTS["2x2 from 0, both"], LAYOUTS["4 from 2, whole"]
    value = np.ones((8, 4), np.float32)
    routes = {
        rank: DirectRoute([Move(source, target, value.shape, "float32")], offers[rank])
        for rank in ranks_of(source, target)
    }
    for server in servers:
        server.fetched = 0
    for rank in ranks_of(source):
        routes[rank].send([jax.device_put(value, source)])
    for rank in ranks_of(target):
        routes[rank].receive()
    # Rank 1 has half of it; rank 2 has nothing, and two devices that need all.
    assert [server.fetched for server in servers] == [0, 64, 128, 0]


@pytest.mark.parametrize("dtype", ["bfloat16", "bool", "uint8", "float64"])
@pytest.mark.parametrize("shape", [(), (0, 4)])
def test_numbers_empty_arrays_and_other_types_arrive(dtype, shape, offers):
    source, target = LAYOUTS["one, whole"], NamedSharding(Mesh(DEVICES[:2], ("x",)), WHOLE)
    with jax.enable_x64(True):
        value = np.ones(shape, jax.numpy.dtype(dtype))
        sender, receiver = (
            DirectRoute([Move(source, target, shape, dtype)], offers[rank]) for rank in (2, 0)
        )
        sender.send([jax.device_put(value, source)])
        (got,) = receiver.receive()
    for device in DEVICES[:2]:
        assert got[device].dtype == value.dtype
        np.testing.assert_array_equal(got[device], value)


def test_routes_of_two_ranks_are_numbered_alike_and_apart_from_others(offers):
    numbers = [offers[rank].number(*pair) for rank in (0, 1) for pair in [(0, 1), (0, 1), (1, 0)]]
    assert numbers[:3] == numbers[3:] and len(set(numbers[:2])) == 2
    assert offers[0].number(0, 2) not in numbers
    assert all(number < 1 << 62 for number in numbers)


def test_an_offer_outlives_the_python_objects(offers):
    source, target = LAYOUTS["one, whole"], NamedSharding(Mesh(DEVICES[:1], ("x",)), WHOLE)
    move = Move(source, target, (1 << 16,), "float32")
    sender, receiver = (DirectRoute([move], offers[rank]) for rank in (2, 0))
    for number in range(20):
        sender.send([jax.device_put(np.full(1 << 16, number, np.float32), source)])
    for number in range(20):
        ((piece,),) = (got.values() for got in receiver.receive())
        np.testing.assert_array_equal(piece, number)

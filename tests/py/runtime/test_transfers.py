"""Any sharding to any other, on the same devices or others, bit for bit and without the host."""

import itertools

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from shardc.runtime.transfers import Transfers

DEVICES = jax.devices()


def shardings(first: int, count: int) -> list[NamedSharding]:
    """Whole, rows, columns, both, and swapped, on a mesh of `count` devices from `first`."""
    rows = 2 if count % 2 == 0 else 1
    mesh = Mesh(np.array(DEVICES[first : first + count]).reshape(rows, -1), ("a", "b"))
    specs = [(), ("a",), (None, "b"), ("a", "b"), (("a", "b"),)]
    return [NamedSharding(mesh, PartitionSpec(*spec)) for spec in specs]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "target"),
    [
        pytest.param((0, 4), (4, 4), id="other devices"),
        pytest.param((0, 4), (0, 4), id="same devices"),
        pytest.param((0, 4), (4, 2), id="to fewer"),
        pytest.param((0, 2), (4, 4), id="to more"),
        pytest.param((0, 2), (5, 3), id="that do not divide"),
        pytest.param((0, 4), (2, 4), id="that overlap"),
        pytest.param((0, 1), (0, 4), id="from one of them"),
        pytest.param((0, 4), (3, 1), id="to one of them"),
    ],
)
def test_transfers_keep_every_value_and_never_wait(source, target, monkeypatch):
    value = np.arange(12 * 24, dtype=np.float32).reshape(12, 24)
    transfers = Transfers()
    waited: list[str] = []
    array = type(jax.numpy.zeros(()))
    original = array._value.fget
    with monkeypatch.context() as patch:
        moved = []
        patch.setattr(array, "_value", property(lambda x: waited.append("_value") or original(x)))
        for start, end in itertools.product(shardings(*source), shardings(*target)):
            given = jax.device_put(value, start)
            moved.append((given, end, transfers.find(start, end, value.shape, "float32")(given)))
        assert waited == []
    for given, end, result in moved:
        assert result.sharding.is_equivalent_to(end, 2)
        np.testing.assert_array_equal(result, value)
        before = {s.data.unsafe_buffer_pointer() for s in given.addressable_shards}
        assert before.isdisjoint(s.data.unsafe_buffer_pointer() for s in result.addressable_shards)


def test_a_transfer_between_equal_meshes_is_a_plain_copy():
    transfers = Transfers()
    for start, end in zip(shardings(0, 4), shardings(4, 4), strict=True):
        assert transfers.find(start, end, (12, 24), "float32").is_copy


def test_a_batch_on_its_one_device_is_cut_into_microbatches_by_one_copy():
    value = jax.device_put(np.arange(24, dtype=np.float32).reshape(8, 3), DEVICES[2])
    target = shardings(2, 1)[0]
    cut = Transfers().reshape(value, (4, 2, 3), target)
    assert cut.sharding == target
    np.testing.assert_array_equal(cut, np.asarray(value).reshape(4, 2, 3))
    assert cut.unsafe_buffer_pointer() != value.unsafe_buffer_pointer()


def test_scalars_and_empty_arrays_can_be_moved():
    transfers = Transfers()
    for value in (np.float32(3), np.zeros((0, 4), np.float32)):
        start, end = shardings(0, 4)[0], shardings(4, 2)[0]
        result = transfers.find(start, end, value.shape, "float32")(jax.device_put(value, start))
        np.testing.assert_array_equal(result, value)


def test_transfers_and_their_reshards_are_kept():
    transfers = Transfers()
    start, end = shardings(0, 4)[1], shardings(4, 2)[2]
    assert transfers.find(start, end, (12, 24), "float32") is transfers.find(
        start, end, (12, 24), "float32"
    )

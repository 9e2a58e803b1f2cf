"""orbax with the handler of shardc: large arrays in chunks, small ones in groups."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import shardc
from shardc.runtime.processes import orbax_arrays
from tests.py.api.state.scanned_step import initial, laid_out, planned

CHUNK_BYTES = 1 << 10


@pytest.fixture
def read(monkeypatch):
    """The arrays that were read by chunks."""
    found = []
    by_chunks = orbax_arrays.read_by_chunks

    async def counted(store, place, dtype):
        found.append(store)
        return await by_chunks(store, place, dtype)

    monkeypatch.setattr(orbax_arrays, "read_by_chunks", counted)
    monkeypatch.setattr(orbax_arrays, "CHUNK_BYTES", CHUNK_BYTES)
    monkeypatch.setattr(orbax_arrays, "GROUP_BYTES", CHUNK_BYTES)
    handlers = ocp.type_handlers
    own = handlers.get_type_handler(jax.Array)
    shardc.use_orbax()
    yield found
    handlers.register_type_handler(jax.Array, own, override=True)


def test_a_state_is_restored_into_another_plan(read, tmp_path):
    with ocp.CheckpointManager(tmp_path) as manager:
        manager.save(0, args=ocp.args.StandardSave(laid_out(planned(1, "fsdp"))))
        manager.wait_until_finished()
        wanted = planned(2, "tensor").abstract_state()
        restored = manager.restore(0, args=ocp.args.StandardRestore(wanted))
    assert [store.shape for store in read] == [(4, 32, 32)] * 2
    assert all(np.prod(store.chunk_layout.read_chunk.shape) <= CHUNK_BYTES // 4 for store in read)
    for got, value, want in zip(*map(jax.tree.leaves, (restored, initial(), wanted)), strict=True):
        assert got.sharding.is_equivalent_to(want.sharding, got.ndim)
        np.testing.assert_array_equal(got, value)


@pytest.mark.parametrize("spec", [P(), P(None, "b"), P("b", "a"), P("a", None, "b")], ids=str)
def test_any_layout_and_dtype_is_read_from_any_chunks(read, tmp_path, spec):
    mesh = jax.make_mesh((4, 2), ("a", "b"))
    values = np.random.default_rng(0).normal(size=(24, 40, 6)).astype(np.float32)
    saved = jax.device_put(values, NamedSharding(mesh, P(None, ("a", "b"))))
    with ocp.CheckpointManager(tmp_path) as manager:
        manager.save(0, args=ocp.args.StandardSave({"x": saved}))
        manager.wait_until_finished()
        place = NamedSharding(mesh, spec)
        into = {"x": jax.ShapeDtypeStruct(values.shape, jnp.bfloat16, sharding=place)}
        got = manager.restore(0, args=ocp.args.StandardRestore(into))["x"]
    assert len(read) == 1 and got.sharding == place
    np.testing.assert_array_equal(got, values.astype(jnp.bfloat16))
    into["x"] = jax.ShapeDtypeStruct((24, 40, 8), jnp.float32, sharding=place)
    with ocp.CheckpointManager(tmp_path) as manager, pytest.raises(ValueError, match="not compat"):
        manager.restore(0, args=ocp.args.StandardRestore(into))


def test_keys_numbers_and_what_is_restored_without_a_layout(read, tmp_path):
    state = {"key": jax.random.key(3), "x": jnp.arange(4), "n": 5}
    into = jax.tree.map(lambda leaf: leaf if isinstance(leaf, int) else typed(leaf), state)
    with ocp.CheckpointManager(tmp_path) as manager:
        manager.save(0, args=ocp.args.StandardSave(state))
        manager.wait_until_finished()
        for got in (
            manager.restore(0, args=ocp.args.StandardRestore(into)),
            manager.restore(0, args=ocp.args.StandardRestore()),
        ):
            assert got["key"] == state["key"] and got["n"] == 5
            np.testing.assert_array_equal(got["x"], state["x"])
    assert read == []


def typed(leaf):
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)


def test_a_commit_that_fails_ends_the_job(monkeypatch):
    """The others wait for it in orbax, where nothing interrupts them."""

    class Full:
        def result(self, timeout):
            raise ValueError("OUT_OF_RANGE: File too large")

    said = []
    watch = SimpleNamespace(fail=said.append)
    monkeypatch.setattr(orbax_arrays, "this_job", lambda: SimpleNamespace(rank=3, watch=watch))
    with pytest.raises(shardc.ShardcError) as caught:
        orbax_arrays._Commit(Full()).result()
    assert caught.value.code == "SHARDC-284" and said == [str(caught.value)]
    assert "rank 3 cannot write its part of a checkpoint: OUT_OF_RANGE: File too" in said[0]

"""A state of several stages on one mesh: ordinary functions of JAX take it."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import shardc
from tests.py.api.state.scanned_step import initial, laid_out, planned


def placed(value, first, *shape, names=("x", "y"), spec=()):
    count = int(np.prod(shape))
    devices = np.array(jax.devices()[first : first + count]).reshape(shape)
    return jax.device_put(value, NamedSharding(Mesh(devices, names), PartitionSpec(*spec)))


def bytes_by_device(tree):
    shards = [shard for leaf in jax.tree.leaves(tree) for shard in leaf.addressable_shards]
    return [sum(s.data.nbytes for s in shards if s.device == d) for d in jax.devices()]


def test_what_mixes_stages_takes_a_view():
    state = laid_out(planned(4, "data"))
    with pytest.raises(ValueError, match="incompatible devices"):
        optax.tree.norm(state["p"])
    viewed = shardc.view(state)
    norm = np.sqrt(sum(np.sum(np.square(value)) for value in initial()["p"].values()))
    np.testing.assert_allclose(optax.tree.norm(viewed["p"]), norm, rtol=1e-6)
    loss = jax.jit(lambda p: jnp.sum(p["w"][0] @ p["head"]))(viewed["p"])
    expected = np.sum(initial()["p"]["w"][0] @ initial()["p"]["head"])
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    for got, want in zip(jax.tree.leaves(viewed), jax.tree.leaves(initial()), strict=True):
        np.testing.assert_array_equal(got, want)


def test_arrays_on_all_devices_are_not_copied():
    state = laid_out(planned(4, "data"))
    assert shardc.view(state)["p"]["w"] is state["p"]["w"]
    whole = laid_out(planned(1, "fsdp"))
    assert shardc.view(whole) is whole


def test_what_moves_is_split_over_all_devices():
    stages = [
        placed(np.ones((64, 32), np.float32), 0, 2, 2, spec=("x", "y")),
        placed(np.ones((64, 32), np.float32), 4, 2, 2, spec=(None, ("x", "y"))),
        placed(np.ones((128, 8), np.float32), 4, 2, 2, spec=("x",)),
    ]
    viewed = shardc.view(stages)
    assert [leaf.sharding.mesh.axis_names for leaf in viewed] == [("stage", "x", "y")] * 3
    assert set(bytes_by_device(viewed)) == {sum(leaf.nbytes for leaf in stages) // 8}
    assert viewed[0].sharding.spec[0][0] == "x"  # as it was, and in parts of these parts


def test_stages_on_unlike_meshes_and_small_or_odd_arrays_mix_too():
    tree = {
        "big": placed(np.ones((64, 32), np.float32), 0, 4, 1, spec=("x",)),
        "wide": placed(np.ones((32, 64), np.float32), 4, 2, 2, spec=("x",)),
        "odd": placed(np.ones((7, 301), np.float32), 4, 2, 2),
        "key": placed(jax.random.key(3), 4, 2, 2),
        "count": jax.device_put(np.int32(5), jax.devices()[6]),
        "lr": 0.5,
        "free": jnp.ones(3),
    }
    viewed = shardc.view(tree)
    placed_leaves = [viewed[name] for name in ("big", "wide", "odd", "count")]
    assert {leaf.sharding.mesh for leaf in placed_leaves} == {viewed["big"].sharding.mesh}
    assert (viewed["lr"], viewed["free"] is tree["free"]) == (0.5, True)
    total = jax.jit(lambda t: sum(jnp.sum(t[n]) for n in ("big", "wide", "odd", "count", "free")))(
        viewed
    )
    assert total == 64 * 32 * 2 + 7 * 301 + 5 + 3
    assert jax.random.bits(viewed["key"]) == jax.random.bits(jax.random.key(3))


def test_inside_a_transformation_a_view_is_the_tree():
    assert jax.jit(lambda tree: shardc.view(tree)["a"] * 2)({"a": jnp.ones(2)}).tolist() == [2, 2]

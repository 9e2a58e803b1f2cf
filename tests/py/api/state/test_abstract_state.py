"""Where the state of a plan lies, and how orbax and `reallocate` bring it there."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

import shardc
from shardc.runtime.messages.between import CellProgram
from shardc.runtime.transport import Move
from tests.py.api.state.scanned_step import batch, initial, laid_out, planned

PLANS = [(1, "fsdp"), (2, "tensor"), (4, "data")]
PAIRS = [(PLANS[i], PLANS[j]) for i, j in ((0, 1), (1, 2), (2, 0))]


def assert_lies(state, abstract):
    for (path, got), want, value in zip(
        jax.tree.leaves_with_path(state),
        jax.tree.leaves(abstract),
        jax.tree.leaves(initial()),
        strict=True,
    ):
        assert got.sharding.is_equivalent_to(want.sharding, got.ndim), path
        np.testing.assert_array_equal(got, value)


def test_shardings_asked_for_are_those_of_the_state_and_stacked_rows_lie_on_all_stages():
    whole = planned(1, "fsdp").abstract_state()
    assert whole["p"]["w"].sharding.shard_shape((4, 32, 32)) == (4, 16, 32)
    stages = planned(4, "data").abstract_state()
    assert stages["m"]["w"].sharding.shard_shape((4, 32, 32)) == (1, 32, 32)
    assert len(stages["m"]["w"].sharding.device_set) == 8
    assert len(stages["p"]["head"].sharding.device_set) == 2
    assert (stages["n"].shape, stages["n"].dtype) == ((), np.int32)


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=str)
def test_a_state_moves_to_another_plan_and_each_byte_a_device_lacks_is_sent_once(source, target):
    a, b = planned(*source), planned(*target)
    state = laid_out(a)
    assert_lies(shardc.reallocate(state, a, b), b.abstract_state())
    sent = lacking = 0
    for name, wanted in b.abstract_state()["p"].items():
        sent += sent_bytes(state["p"][name], wanted.sharding)
        lacking += lacking_bytes(state["p"][name], wanted.sharding)
    assert 0 < lacking <= sent <= 1.05 * lacking


def sent_bytes(value, target):
    """Of all collective permutes of the compiled program, but those from a device to itself."""
    program = CellProgram((Move(value.sharding, target, value.shape, value.dtype.name),))
    total = 0
    for line in program.text().splitlines():
        if found := re.search(r"= (\w+)\[([\d,]*)\]\S* collective-permute(?:-start)?\(", line):
            sizes = [int(n) for n in found[2].split(",") if n]
            pairs = re.findall(r"{(\d+),(\d+)}", line[line.index("source_target_pairs") :])
            size = int(np.prod(sizes)) * value.dtype.itemsize
            total += size * sum(one != other for one, other in pairs)
    return total


def lacking_bytes(value, target):
    """Counted element by element."""
    number = np.arange(value.size).reshape(value.shape)
    had = {
        d: set(number[i].flat) for d, i in value.sharding.devices_indices_map(value.shape).items()
    }
    wanted = target.devices_indices_map(value.shape)
    missing = sum(len(set(number[i].flat) - had.get(d, set())) for d, i in wanted.items())
    return missing * value.dtype.itemsize


def test_reallocate_frees_what_is_donated_keeps_what_stays_and_takes_numbers():
    a, b = planned(1, "fsdp"), planned(2, "tensor")
    state = laid_out(a)
    moved = shardc.reallocate(state, a, b, donate=True)
    assert state["p"]["w"].is_deleted()
    same = shardc.reallocate(moved, None, b.abstract_state())
    assert all(x is y for x, y in zip(jax.tree.leaves(moved), jax.tree.leaves(same), strict=True))
    assert_lies(shardc.reallocate(initial(), b, a), a.abstract_state())


def test_reallocate_refuses_the_state_of_another_model():
    plan = planned(1, "fsdp")
    with pytest.raises(shardc.ShardcError, match=r"the state is .* and that of plan_b is"):
        shardc.reallocate(initial()["p"], None, plan)
    state = initial()
    state["p"]["head"] = state["p"]["head"][:, 1:]
    with pytest.raises(shardc.ShardcError, match=r"state\['p'\]\['head'\] is float32\[32, 3\]"):
        shardc.reallocate(state, plan, plan)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_orbax_restores_a_state_into_other_plans(tmp_path, is_async):
    options = ocp.CheckpointManagerOptions(enable_async_checkpointing=is_async)
    with ocp.CheckpointManager(tmp_path, options=options) as manager:
        for number, (source, target) in enumerate(PAIRS):
            manager.save(number, args=ocp.args.StandardSave(laid_out(planned(*source))))
            manager.wait_until_finished()
            wanted = planned(*target).abstract_state()
            assert_lies(manager.restore(number, args=ocp.args.StandardRestore(wanted)), wanted)


def test_a_resumed_run_is_the_same_bit_for_bit(tmp_path):
    plan = planned(2, "tensor")
    run = plan.compile()
    assert run.abstract_state() == plan.abstract_state()
    state, _ = run(initial(), batch(0))
    with ocp.CheckpointManager(tmp_path) as manager:
        manager.save(1, args=ocp.args.StandardSave(state))
        state, want = run(state, batch(1))
        manager.wait_until_finished()
        again = manager.restore(1, args=ocp.args.StandardRestore(plan.abstract_state()))
    again, loss = run(again, batch(1))
    for x, y in zip(jax.tree.leaves((state, want)), jax.tree.leaves((again, loss)), strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def test_without_donation_the_state_is_what_comes_again_and_keys_lie_whole():
    def draw(params, key, x):
        return params, jnp.sum(x @ params["w"] + jax.random.normal(key, (8, 4)))

    f = shardc.jit(draw, stages=1, microbatches=1)
    with pytest.raises(shardc.ShardcError) as caught:
        f.abstract_state()
    assert caught.value.code == "SHARDC-188"
    args = {"w": jnp.eye(4)}, jax.random.key(0), jnp.ones((8, 4))
    plan = f.lower(*args).plan()
    assert plan.abstract_state()["w"].shape == (4, 4)
    key = plan.abstract_state(argnums=1)
    assert key.dtype == args[1].dtype and key.shape == ()
    moved = shardc.reallocate(args[1], None, key)
    assert jax.random.key_data(moved).tolist() == jax.random.key_data(args[1]).tolist()
    params, x = plan.abstract_state(argnums=(0, -1))
    assert (params["w"].shape, x.shape) == ((4, 4), (8, 4))
    with pytest.raises(shardc.ShardcError, match="argnums=3 names a missing argument"):
        plan.abstract_state(argnums=3)
    loss = shardc.jit(lambda x: jnp.sum(x), stages=1, microbatches=1).lower(args[2]).plan()
    with pytest.raises(shardc.ShardcError, match="there is no state"):
        loss.abstract_state()


def test_an_array_that_is_several_leaves_is_donated_once():
    mesh = jax.make_mesh((2,), ("x",), devices=jax.devices()[2:4])
    weights, numbers = jnp.arange(8.0), np.arange(8.0)
    layout = [
        jax.ShapeDtypeStruct((8,), weights.dtype, sharding=jax.NamedSharding(mesh, spec))
        for spec in (jax.P("x"), jax.P(), jax.P("x"))
    ]
    moved = shardc.reallocate([weights] * 3, None, layout, donate=True)
    assert weights.is_deleted()
    for leaf, wanted in zip(moved, layout, strict=True):
        assert leaf.sharding == wanted.sharding
        np.testing.assert_array_equal(leaf, numbers)

"""A scanned network is cut into stages like an unrolled one, and its stacks stay one array each."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding

import shardc
from shardc.analysis.program.counted_loop import trip_count
from shardc.ir.context import parse
from shardc.ir.walk import walk

WIDTH, BATCH = 32, 16
OPTIMIZER = optax.adamw(1e-3)


def train_step(state: Any, batch: Any) -> Any:
    def loss_fn(params: Any) -> Any:
        def layer(h: Any, w: Any) -> Any:
            return h + jnp.tanh(h @ w["up"]) @ w["down"], None

        h, _ = jax.lax.scan(jax.checkpoint(layer), batch["x"], params["layers"])
        return jnp.mean((h @ params["out"] - batch["y"]) ** 2)

    loss, grads = jax.value_and_grad(loss_fn)(state["params"])
    updates, opt = OPTIMIZER.update(grads, state["opt"], state["params"])
    return {"params": optax.apply_updates(state["params"], updates), "opt": opt}, loss


def initial(layers: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(rng.normal(size=shape) / np.sqrt(shape[-2]), jnp.float32)

    params = {
        "layers": {
            "up": normal(layers, WIDTH, 2 * WIDTH),
            "down": normal(layers, 2 * WIDTH, WIDTH),
        },
        "out": normal(WIDTH, 8),
    }
    batch = {"x": normal(BATCH, WIDTH), "y": normal(BATCH, 8)}
    return {"params": params, "opt": OPTIMIZER.init(params)}, batch


def run(layers: int, microbatches: int, schedule: str = "1f1b") -> tuple[Any, Any, Any]:
    """Three steps; the state, the step and the batch. Numbers are compared on the way."""
    state, batch = initial(layers)
    step = shardc.jit(
        train_step,
        donate_argnums=0,
        stages=2,
        microbatches=microbatches,
        schedule=schedule,
        time_limit_s=20,
    )
    expected = jax.tree.map(jnp.copy, state)
    for _ in range(3):
        state, loss = step(state, batch)
        expected, wanted = jax.jit(train_step)(expected, batch)
        np.testing.assert_allclose(loss, wanted, rtol=1e-5)
    for own, other in zip(jax.tree.leaves(state), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-5)
    return state, step, batch


def trips(planned: Any, stage: int, kind: str) -> list[int | None]:
    """How often the loops run that a stage has in its program of this kind."""
    (program,) = (p for p in planned.executable.programs if (p.stage, p.kind) == (stage, kind))
    module = parse(program.module)
    with module.context:
        loops = [op for op in walk(module.operation) if op.name == "stablehlo.while"]
        return [trip_count(op) for op in loops]


def test_each_stage_loops_over_its_layers_and_updates_its_rows_in_place() -> None:
    state, step, batch = run(layers=4, microbatches=2)
    planned = step.lower(state, batch).plan()
    assert planned.plan.loop_cuts == (2,)
    for stage in range(2):
        assert trips(planned, stage, "forward") == trips(planned, stage, "backward") == [2]

    def pointers(array: jax.Array) -> dict[int, int]:
        return {s.device.id: s.data.unsafe_buffer_pointer() for s in array.addressable_shards}

    state, _ = step(state, batch)  # NumPy may hold views of the state that `run` compared
    old = state["params"]["layers"]["up"]
    assert isinstance(old.sharding, NamedSharding)
    assert dict(old.sharding.mesh.shape)["stage"] == 2
    assert old.sharding.spec[0] == "stage"
    before = pointers(old)
    state, _ = step(state, batch)
    assert old.is_deleted()
    assert pointers(state["params"]["layers"]["up"]) == before
    layers = {**state["params"]["layers"], "up": old}
    with pytest.raises(shardc.ShardcError, match="is gone"):
        step({**state, "params": {**state["params"], "layers": layers}}, batch)


@pytest.mark.parametrize("schedule", ["zb-h1", "dualpipe"])
def test_input_and_weight_gradients_of_layers_have_loops_of_their_own(schedule: str) -> None:
    state, step, batch = run(layers=4, microbatches=4, schedule=schedule)
    planned = step.lower(state, batch).plan()
    assert planned.plan.schedule == schedule
    assert trips(planned, 1, "backward") == trips(planned, 1, "weight") == [2]


def test_stages_may_have_different_numbers_of_layers() -> None:
    state, _, _ = run(layers=3, microbatches=1)
    assert state["params"]["layers"]["up"].shape == (3, WIDTH, 2 * WIDTH)


def layers_sharing_weights(state: Any, batch: Any) -> Any:
    def loss_of(w: Any) -> Any:
        h, _ = jax.lax.scan(lambda h, _: (jnp.tanh(h @ w), None), batch["x"], length=4)
        return jnp.mean((h[:, :8] - batch["y"]) ** 2)

    loss, gradient = jax.value_and_grad(loss_of)(state)
    return state - 0.1 * gradient, loss


def decode(state: Any, batch: Any) -> Any:
    """Four tokens one after the other, into a cache that every token reads as a whole."""

    def token(i: Any, carry: Any) -> Any:
        cache, h, found = carry
        cache = jax.lax.dynamic_update_index_in_dim(cache, h, i, 1)
        scores = jnp.where(jnp.arange(4) <= i, jnp.einsum("bd,btd->bt", h, cache), -jnp.inf)
        h = jnp.tanh(jnp.einsum("bt,btd->bd", jax.nn.softmax(scores), cache) @ batch["w"])
        return cache, h, found.at[:, i].set(jnp.argmax(h, axis=-1))

    found = jnp.zeros((BATCH, 4), jnp.int32)
    cache, h, found = jax.lax.fori_loop(0, 4, token, (state["cache"], batch["x"], found))
    return {"cache": cache}, (h, found)


@pytest.mark.parametrize(
    ("fun", "kinds"), [(layers_sharing_weights, ("forward", "backward")), (decode, ("forward",))]
)
def test_iterations_that_read_no_rows_are_shared_out_too(fun: Any, kinds: Any) -> None:
    _, batch = initial(4)
    weights = jnp.asarray(np.random.default_rng(1).normal(size=(WIDTH, WIDTH)) / 4, jnp.float32)
    state = weights if fun is layers_sharing_weights else {"cache": jnp.zeros((BATCH, 4, WIDTH))}
    batch = batch if fun is layers_sharing_weights else {"x": batch["x"], "w": weights}
    step = shardc.jit(fun, stages=2, microbatches=2, schedule="1f1b", time_limit_s=20)
    planned = step.lower(state, batch).plan()
    for kind in kinds:
        assert [trips(planned, stage, kind) for stage in range(2)] == [[2], [2]]
    for _ in range(2):
        expected = jax.jit(fun)(state, batch)
        got = step(state, batch)
        for own, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-6)
        state = got[0]

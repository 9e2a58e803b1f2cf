"""States as flax, equinox and optax make them: one plan, one compilation, the types of jax.jit."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from flax.training.train_state import TrainState

import shardc

X = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
Case = tuple[Callable[..., Any], Any]


def flax_train_state() -> Case:
    """`TrainState.create` counts from a Python 0."""
    model = nn.Dense(8)
    params = model.init(jax.random.key(0), X)
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-2))

    def step(state: Any, x: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda p: jnp.mean(state.apply_fn(p, x) ** 2))(
            state.params
        )
        return state.apply_gradients(grads=grads), loss

    return step, state


def nnx_optimizer() -> Case:
    model = nnx.Linear(8, 8, rngs=nnx.Rngs(0))
    graph, state = nnx.split((model, nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)))

    def step(state: Any, x: Any) -> Any:
        model, optimizer = nnx.merge(graph, state)
        loss, grads = nnx.value_and_grad(lambda m: jnp.mean(m(x) ** 2))(model)
        optimizer.update(model, grads)
        return nnx.state((model, optimizer)), loss

    return step, state


def equinox_module() -> Case:
    model = eqx.nn.MLP(8, 8, 8, 1, key=jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_array)
    optimizer = optax.sgd(1e-2, momentum=0.9)

    def step(state: Any, x: Any) -> Any:
        params, opt = state
        loss, grads = jax.value_and_grad(
            lambda p: jnp.mean(jax.vmap(eqx.combine(p, static))(x) ** 2)
        )(params)
        updates, opt = optimizer.update(grads, opt, params)
        return (eqx.apply_updates(params, updates), opt), loss

    return step, (params, optimizer.init(params))


def optax_hyperparameters() -> Case:
    """A learning rate and a loss scale that start as Python numbers."""
    optimizer = optax.inject_hyperparams(optax.adam)(learning_rate=1e-2)
    params = {"w": jnp.eye(8)}

    def step(state: Any, x: Any) -> Any:
        params, opt, scale = state
        loss, grads = jax.value_and_grad(lambda p: jnp.mean((x @ p["w"]) ** 2) * scale)(params)
        updates, opt = optimizer.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt, scale * 1.5), loss

    return step, (params, optimizer.init(params), 2.0)


def becomes_strong() -> Case:
    """A Python 0 goes in, an int32 that is not weak comes back: `jax.jit` compiles twice."""

    def step(state: Any, x: Any) -> Any:
        loss, grad = jax.value_and_grad(lambda w: jnp.mean((x @ w) ** 2))(state["w"])
        return {"w": state["w"] - grad, "step": state["step"] + jnp.int32(1)}, loss

    return step, {"w": jnp.eye(8), "step": 0}


CASES = [
    flax_train_state,
    nnx_optimizer,
    equinox_module,
    optax_hyperparameters,
    becomes_strong,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_state_is_planned_and_compiled_once(
    case: Callable[[], Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))
    step, state = case()
    want = state
    f, g = shardc.jit(step, stages=1, microbatches=1), jax.jit(step)
    for _ in range(3):
        (state, loss), (want, want_loss) = f(state, X), g(want, X)
        assert jax.tree.structure(state) == jax.tree.structure(want)
        for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(want), strict=True):
            assert (one.dtype, one.aval.weak_type) == (other.dtype, other.aval.weak_type)
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(loss, want_loss, rtol=1e-5)
    assert len(f._compiled) == 1
    assert len(os.listdir(tmp_path)) == 1

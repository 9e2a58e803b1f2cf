"""A stack of LSTMs trains slice by slice with the numbers of `jax.jit`."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from tests.py.table import CLUSTER

WIDTH = 4


def lstm(weights: Any, x: jax.Array) -> Any:
    inward, back = weights

    def cell(state: Any, each: jax.Array) -> Any:
        h, c = state
        i, f, o, g = jnp.split(each @ inward + h @ back, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros_like(x[:, 0])
    return x + jnp.swapaxes(jax.lax.scan(cell, (zeros, zeros), jnp.swapaxes(x, 0, 1))[1], 0, 1)


def step(state: Any, tokens: jax.Array, layer_of: Any = lstm) -> Any:
    def loss_of(state: Any) -> Any:
        x = state["table"][tokens[:, :-1]]
        for layer in state["layers"]:
            x = layer_of(layer, x)
        return jnp.mean((x - state["table"][tokens[:, 1:]]) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(state)
    return jax.tree.map(lambda p, g: p - 0.1 * g, state, gradients), loss


def equals_jit(step: Any, **options: Any) -> None:
    draw = np.random.default_rng(0)
    layers = [tuple(draw.normal(size=(2, WIDTH, 4 * WIDTH))) for _ in range(4)]
    args = {"table": draw.normal(size=(7, WIDTH)), "layers": layers}, draw.integers(0, 7, (4, 7))
    with jax.enable_x64(True):
        expected = jax.tree.leaves(jax.jit(step)(*args))
        run = shardc.jit(
            step, cluster=CLUSTER, mesh=(1,), stages=2, microbatches=2, time_limit_s=10, **options
        )
        got = jax.tree.leaves(run(*args))
    assert (run.plan.schedule, run.plan.unmet) == (options["schedule"], ())
    for ours, theirs in zip(got, expected, strict=True):
        limit = 1e-9 * np.max(np.abs(theirs))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=limit)


@pytest.mark.parametrize(("schedule", "slices"), [("terapipe", 2), ("seq1f1b", 3)])
def test_stacked_lstms_run_slice_by_slice(schedule: str, slices: int) -> None:
    equals_jit(step, schedule=schedule, slices=slices)


def test_a_stage_boundary_inside_a_recomputed_recurrence() -> None:
    """A barrier of `jax.checkpoint` holds rows of the loop, and values beside them."""
    again = functools.partial(step, layer_of=jax.checkpoint(lstm))
    equals_jit(again, schedule="1f1b")

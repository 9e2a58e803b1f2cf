"""A small step with a stacked leaf, and plans for it: so many stages, and one kind of sharding."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

import shardc

LAYERS, WIDTH, OUT, ROWS = 4, 32, 4, 16
KINDS = {
    "data": ({"data": 2}, {}),
    "fsdp": ({"data": 2}, {"state.*.w": P(None, "data"), "state.*.head": P("data")}),
    "tensor": ({"model": 2}, {"state.*.w": P(None, None, "model"), "state.*.head": P("model")}),
}


def step(state, x):
    """Scanned layers and a head, with momentum and a step count."""

    def loss(p):
        h, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, p["w"])
        return jnp.mean((h @ p["head"]) ** 2)

    value, gradients = jax.value_and_grad(loss)(state["p"])
    moved = jax.tree.map(lambda m, g: 0.9 * m + g, state["m"], gradients)
    new = jax.tree.map(lambda p, m: p - 0.1 * m, state["p"], moved)
    return {"p": new, "m": moved, "n": state["n"] + 1}, value


def initial():
    random = np.random.default_rng(0)
    p = {
        "w": random.normal(0, 0.3, (LAYERS, WIDTH, WIDTH)).astype(np.float32),
        "head": random.normal(0, 0.3, (WIDTH, OUT)).astype(np.float32),
    }
    m = {name: random.normal(0, 0.1, value.shape).astype(np.float32) for name, value in p.items()}
    return {"p": p, "m": m, "n": np.int32(5)}


def batch(number):
    return np.random.default_rng(number).normal(size=(ROWS, WIDTH)).astype(np.float32)


@functools.cache
def planned(stages, kind, devices=None):
    """A plan of `stages` stages with two devices each, by default the first ones."""
    mesh, shardings = KINDS[kind]
    return (
        shardc.jit(
            step,
            donate_argnums=0,
            stages=stages,
            microbatches=4 if stages > 1 else 1,
            mesh=mesh,
            shardings=shardings,
            devices=devices or jax.devices()[: 2 * stages],
        )
        .lower(initial(), batch(0))
        .plan()
    )


def laid_out(plan):
    """The initial state where the plan wants it."""
    return jax.tree.map(
        lambda x, a: jax.device_put(x, a.sharding), initial(), plan.abstract_state()
    )

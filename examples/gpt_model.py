"""A GPT in plain JAX, with its training step: nothing here knows about parallelism.

params = init(jax.random.key(0), Sizes())
optimizer = optax.adamw(1e-3)
state = {"params": params, "optimizer": optimizer.init(params)}
step = jax.jit(make_train_step(optimizer), donate_argnums=0)
state, loss = step(state, batch)  # batch: {"tokens": int32[B, T], "targets": int32[B, T]}
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

Params = dict[str, Any]
Batch = dict[str, jax.Array]
State = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """How large the model is."""

    vocabulary: int = 128
    length: int = 32
    width: int = 64
    heads: int = 4
    hidden: int = 256
    layers: int = 4


def init(key: jax.Array, sizes: Sizes) -> Params:
    """Random float32 parameters; one matrix embeds the tokens and reads them out (tied)."""
    head = sizes.width // sizes.heads
    keys = iter(jax.random.split(key, 2 + 6 * sizes.layers))

    def normal(*shape: int, scale: float = 0.02) -> jax.Array:
        return scale * jax.random.normal(next(keys), shape, jnp.float32)

    def norm() -> Params:
        return {"scale": jnp.ones(sizes.width), "bias": jnp.zeros(sizes.width)}

    def block() -> Params:
        return {
            "norm1": norm(),
            "query": normal(sizes.width, sizes.heads, head),
            "key": normal(sizes.width, sizes.heads, head),
            "value": normal(sizes.width, sizes.heads, head),
            "out": normal(sizes.heads, head, sizes.width),
            "norm2": norm(),
            "up": normal(sizes.width, sizes.hidden),
            "up_bias": jnp.zeros(sizes.hidden),
            "down": normal(sizes.hidden, sizes.width),
            "down_bias": jnp.zeros(sizes.width),
        }

    return {
        "embedding": normal(sizes.vocabulary, sizes.width),
        "positions": normal(sizes.length, sizes.width),
        "blocks": [block() for _ in range(sizes.layers)],
        "norm": norm(),
    }


def layer_norm(params: Params, x: jax.Array) -> jax.Array:
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.var(x, axis=-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * params["scale"] + params["bias"]


def attention(params: Params, x: jax.Array) -> jax.Array:
    """Causal self-attention; x is [batch, time, width]."""
    query = jnp.einsum("btd,dhk->bthk", x, params["query"])
    key = jnp.einsum("bsd,dhk->bshk", x, params["key"])
    value = jnp.einsum("bsd,dhk->bshk", x, params["value"])
    scores = jnp.einsum("bthk,bshk->bhts", query, key) / query.shape[-1] ** 0.5
    causal = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, jnp.finfo(scores.dtype).min))
    mixed = jnp.einsum("bhts,bshk->bthk", weights, value)
    return jnp.einsum("bthk,hkd->btd", mixed, params["out"])


def mlp(params: Params, x: jax.Array) -> jax.Array:
    hidden = jax.nn.gelu(x @ params["up"] + params["up_bias"])
    return hidden @ params["down"] + params["down_bias"]


def block(params: Params, x: jax.Array) -> jax.Array:
    x = x + attention(params, layer_norm(params["norm1"], x))
    return x + mlp(params, layer_norm(params["norm2"], x))


def embed(params: Params, tokens: jax.Array) -> jax.Array:
    return params["embedding"][tokens] + params["positions"]


def unembed(params: Params, x: jax.Array) -> jax.Array:
    """Logits over the vocabulary, by the same matrix that embeds."""
    return layer_norm(params["norm"], x) @ params["embedding"].T


def forward(params: Params, tokens: jax.Array) -> jax.Array:
    x = embed(params, tokens)
    for block_params in params["blocks"]:
        x = block(block_params, x)
    return unembed(params, x)


def loss_fn(params: Params, batch: Batch) -> jax.Array:
    """Mean cross-entropy of the next token."""
    logits = forward(params, batch["tokens"])
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"])
    return jnp.mean(losses)


def make_train_step(
    optimizer: optax.GradientTransformation,
    loss_fn: Callable[[Params, Batch], jax.Array] = loss_fn,
) -> Callable[[State, Batch], tuple[State, jax.Array]]:
    """The usual step: gradients of the loss, then the optimizer."""

    def train_step(state: State, batch: Batch) -> tuple[State, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_fn)(state["params"], batch)
        updates, optimizer_state = optimizer.update(gradients, state["optimizer"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, "optimizer": optimizer_state}, loss

    return train_step

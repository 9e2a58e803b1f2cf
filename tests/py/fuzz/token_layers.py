"""Layers over [rows, tokens, width] in which no token sees a later one: token slices cut them."""

from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.py.fuzz.layers import Layer


def _masked(random: Random) -> tuple[str, Callable[[Any], Any]]:
    """A causal mask over scores [.., queries, keys], and what it is called."""
    what = random.choice(["inf", "lowest", "finite", "added", "added inf", "tril", "distances"])
    number = random.choice([-1e9, -1e10, -1e30])

    def mask(scores: Any) -> Any:
        query, key = (lax.iota(jnp.int32, scores.shape[-1])[d] for d in ((..., None), (None, ...)))
        zero = jnp.zeros((), scores.dtype)
        match what:
            case "inf":
                return jnp.where(query >= key, scores, -jnp.inf)
            case "lowest":
                return jnp.where(query >= key, scores, jnp.finfo(scores.dtype).min)
            case "finite":
                return jnp.where(query < key, number, scores)
            case "added":
                return scores + jnp.where(query >= key, zero, number)
            case "added inf":
                return scores + jnp.where(query >= key, zero, -jnp.inf)
            case "tril":
                return jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, number)
            case _:
                far = (key - query).astype(scores.dtype) / 4
                return scores + far + jnp.where(query >= key, zero, number)

    return f"{what} {number:g}", mask


def attention(random: Random, rows: int) -> Layer:
    """Under a causal mask, with one head or two, in the layer's type or another."""
    name, mask = _masked(random)
    heads, inside = random.choice([1, 2]), random.choice(["same", "same", "float32"])
    again, scaled = random.random() < 0.3, random.random() < 0.5

    def apply(h: Any, w: Any, y: Any) -> Any:
        def mix(h: Any, query: Any, value: Any) -> Any:
            kind = h.dtype if inside == "same" else jnp.dtype(inside)
            split = (*h.shape[:-1], heads, h.shape[-1] // heads)
            q, k, v = (jnp.reshape(each, split) for each in (h @ query, h, h @ value))
            scores = jnp.einsum("bqhd,bkhd->bhqk", q.astype(kind), k.astype(kind))
            weights = jax.nn.softmax(mask(scores / 2 if scaled else scores))
            return jnp.einsum("bhqk,bkhd->bqhd", weights.astype(h.dtype), v).reshape(h.shape)

        return h + (jax.checkpoint(mix) if again else mix)(h, w[0], w[1])

    return Layer(f"attention {name}, {heads} heads, {inside}, again {again}", 2, apply)


def linear_attention(random: Random, rows: int) -> Layer:
    """Scores that are zero for later keys, without a softmax."""
    normed = random.random() < 0.5

    def apply(h: Any, w: Any, y: Any) -> Any:
        seen = jnp.tril(jnp.ones((h.shape[1],) * 2, h.dtype))
        q, k = (jnp.exp(jnp.tanh(each)) for each in (h @ w[0], h))
        weights = jnp.einsum("bqd,bkd->bqk", q, k) * seen
        if normed:
            weights = weights / jnp.sum(weights, -1, keepdims=True)
        return h + jnp.einsum("bqk,bkd->bqd", weights, h @ w[1]) / h.shape[1]

    return Layer(f"linear attention, normed {normed}", 2, apply)


def running(random: Random, rows: int) -> Layer:
    """Running sums or maxima over the tokens, run again in the backward pass or not."""
    what = random.choice(["sum", "max", "product"])
    again = random.random() < 0.3

    def apply(h: Any, w: Any, y: Any) -> Any:
        def along(h: Any, weight: Any) -> Any:
            made = jnp.tanh(h @ weight)
            if what == "max":
                return lax.cummax(lax.stop_gradient(made), axis=1) + made
            if what == "product":
                return lax.stop_gradient(lax.cumprod(1 + made / 8, axis=1)) * made
            return jnp.cumsum(made, axis=1) / h.shape[1]

        return h + (jax.checkpoint(along) if again else along)(h, w[0])

    return Layer(f"running {what}, again {again}", 1, apply)


def recurrence(random: Random, rows: int) -> Layer:
    """A scan over the tokens."""
    what = random.choice(["tanh", "gated", "decay"])

    def apply(h: Any, w: Any, y: Any) -> Any:
        def tick(state: Any, each: Any) -> Any:
            if what == "tanh":
                state = jnp.tanh(state @ w[0] + each)
            elif what == "gated":
                gate = jax.nn.sigmoid(each @ w[1])
                state = gate * state + (1 - gate) * jnp.tanh(each @ w[0] + state)
            else:
                state = 0.5 * state + each @ w[0]
            return state, jnp.sin(state)

        made = lax.scan(tick, jnp.zeros_like(h[:, 0]), jnp.swapaxes(h, 0, 1))[1]
        return h + jnp.swapaxes(made, 0, 1)

    return Layer(f"recurrence, {what}", 2, apply)

"""Recurrences over the tokens go on from slice to slice, and only in the order of the slices."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from shardc.errors import StageError
from shardc.ir.pass_manager import run_passes
from shardc.passes.slice_tokens import SliceTokens
from tests.py.passes.test_slice_tokens import (
    TOKENS,
    WIDTH,
    arguments,
    attention,
    infinite,
    results_stay_the_same,
    staged,
    step_of,
)


def scanned(cell: Any, state: Any, x: jax.Array, **options: Any) -> Any:
    """What the cell makes of each token, and its last state."""
    last, made = jax.lax.scan(cell, state, jnp.swapaxes(x, 0, 1), **options)
    return jnp.swapaxes(made, 0, 1), last


def simple(w: jax.Array, x: jax.Array) -> Any:
    def cell(h: jax.Array, each: jax.Array) -> Any:
        return jnp.tanh(h @ w + each), h

    return x + scanned(cell, jnp.zeros_like(x[:, 0]), x)[0]


def lstm(w: jax.Array, x: jax.Array) -> Any:
    """Two states, under a checkpoint, and nothing that goes past them."""

    @jax.checkpoint
    def cell(state: Any, each: jax.Array) -> Any:
        h, c = state
        c = jax.nn.sigmoid(each @ w - h) * c + jax.nn.sigmoid(h @ w) * jnp.tanh(each + h)
        h = jnp.cos(c @ w) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros_like(x[:, 0])
    return scanned(cell, (zeros, zeros), x)[0]


def linear_attention(w: jax.Array, x: jax.Array) -> Any:
    """A state of keys times values, among attention with a mask."""

    def cell(state: jax.Array, each: jax.Array) -> Any:
        state = 0.9 * state + each[:, :, None] * (each @ w)[:, None, :]
        return state, jnp.einsum("bd,bde->be", each, state)

    zeros = jnp.zeros((len(x), WIDTH, WIDTH), x.dtype)
    return attention(infinite)(w, x + 0.1 * scanned(cell, zeros, x)[0])


def by_position(w: jax.Array, x: jax.Array) -> Any:
    """A cell that knows how far it has come."""

    def cell(state: Any, each: jax.Array) -> Any:
        h, i = state
        return (jnp.tanh(h @ w + each) / (1 + i), i + 1), h * jnp.cos(0.1 * i)

    return x + scanned(cell, (jnp.zeros_like(x[:, 0]), 0), x)[0]


def head_by_head(w: jax.Array, x: jax.Array) -> Any:
    """As many heads as tokens, one after the other."""

    def head(each: Any) -> jax.Array:
        scores = infinite(jnp.einsum("bqd,bkd->bqk", *each[:2]))
        return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores), each[2])

    heads = jnp.moveaxis((x @ w)[..., None] * jnp.arange(1.0, TOKENS + 1), -1, 0)
    made = jax.lax.map(head, (heads, heads / 2, jnp.tanh(heads)))
    return x + jnp.moveaxis(made, 0, -1).sum(-1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "microbatches", "slices"),
    [
        (simple, 2, 2),
        (lstm, 1, 6),
        (linear_attention, 1, 2),
        (by_position, 1, 3),
        (head_by_head, 1, 2),
    ],
)
def test_states_go_on_from_slice_to_slice(layer: Any, microbatches: int, slices: int) -> None:
    results_stay_the_same(layer, microbatches, slices)


def from_the_last(w: jax.Array, x: jax.Array) -> Any:
    def cell(h: jax.Array, each: jax.Array) -> Any:
        return jnp.tanh(h @ w + each), h

    return x + scanned(cell, jnp.zeros_like(x[:, 0]), x, reverse=True)[0]


def both_ways(w: jax.Array, x: jax.Array) -> Any:
    return from_the_last(w, simple(w, x))


def of_all(w: jax.Array, x: jax.Array) -> Any:
    """Every token meets the last state."""

    def cell(h: jax.Array, each: jax.Array) -> Any:
        return jnp.tanh(h @ w + each), h

    made, last = scanned(cell, jnp.zeros_like(x[:, 0]), x)
    return made + last[:, None]


def of_all_in_the_cell(w: jax.Array, x: jax.Array) -> Any:
    def cell(h: jax.Array, each: jax.Array) -> Any:
        return jnp.tanh(h @ w + each + x.max(axis=1)), h

    return x + scanned(cell, jnp.zeros_like(x[:, 0]), x)[0]


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (from_the_last, "'stablehlo.while' begins at the last token"),
        (both_ways, "'stablehlo.while' begins at the last token"),
        (of_all, "'stablehlo.while' gives what it has come to after the last token"),
        (of_all_in_the_cell, "needs all tokens at once"),
    ],
)
def test_a_recurrence_that_looks_ahead_is_refused(layer: Any, said: str) -> None:
    with jax.enable_x64(True):
        module = staged(step_of(layer), arguments())
    with pytest.raises(StageError, match=said):
        run_passes(module, [SliceTokens(2)])

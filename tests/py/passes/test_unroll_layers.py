"""Layers in a loop are cut into token slices like layers that are written out."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.py.passes.test_slice_tokens import arguments, attention, lowest, step_stays_the_same


def scanned_step_of(layer: Any) -> Any:
    """Gradient descent on a table and two loops of two layers."""

    def loss_of(state: Any, tokens: jax.Array) -> Any:
        table, first, second = state
        x, _ = jax.lax.scan(lambda x, w: (layer(w, x), None), table[tokens[:, :-1]], first)
        x, _ = jax.lax.scan(jax.checkpoint(lambda x, w: (layer(w, x), None)), x, second)
        return jnp.mean((x - table[tokens[:, 1:]]) ** 2)

    def step(state: Any, tokens: jax.Array) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(state, tokens)
        return jax.tree.map(lambda p, g: p - 0.1 * g, state, gradients), loss

    return step


def scanned_arguments() -> Any:
    """As the others, with twice the layers."""
    (table, *layers), tokens = arguments()
    return [table, *(np.stack([w, w.T]) for w in layers)], tokens


@pytest.mark.slow
def test_layers_in_a_loop_are_cut_one_by_one() -> None:
    """One loop keeps what its backward needs, squares among it; the other makes it again."""
    step = scanned_step_of(attention(lowest))
    step_stays_the_same(step, scanned_arguments, microbatches=2, slices=3)

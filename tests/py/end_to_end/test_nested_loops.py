"""Loops in loops in loops, as a search through a tree has them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shardc

WIDTH, ACTIONS, SIMULATIONS, DEPTH = 8, 4, 3, 2


def search(params: Any, roots: Any) -> Any:
    """Runs down a tree per row of the batch, and adds what it finds to the tree."""
    batch = jnp.arange(roots.shape[0])
    nodes = jnp.zeros((len(batch), SIMULATIONS + 1, WIDTH)).at[:, 0].set(roots @ params["in"])
    scores = jnp.zeros((len(batch), SIMULATIONS + 1, ACTIONS))

    def mixed(times: Any) -> Any:
        """The same for all of the batch: loops that only hand on a parameter."""

        def outer(carry: Any) -> Any:
            def inner(carry: Any) -> Any:
                return carry[0] + 1, params["step"]

            start = 0, jnp.zeros((WIDTH, WIDTH))
            return carry[0] + 1, carry[1] + lax.while_loop(lambda c: c[0] < times, inner, start)[1]

        start = 0, jnp.zeros((WIDTH, WIDTH))
        return lax.while_loop(lambda c: c[0] < DEPTH, outer, start)[1]

    def simulate(carry: Any) -> Any:
        number, nodes, scores = carry

        def down(carry: Any) -> Any:
            depth, node, _ = carry

            def compare(carry: Any) -> Any:
                action, best, chosen = carry
                score = scores[batch, node, action]
                return (
                    action + 1,
                    jnp.maximum(best, score),
                    jnp.where(score > best, action, chosen),
                )

            start = 0, jnp.full(len(batch), -jnp.inf), jnp.zeros(len(batch), int)
            chosen = lax.while_loop(lambda c: c[0] < ACTIONS, compare, start)[2]
            return depth + 1, jnp.minimum(node + chosen, number), chosen

        start = 0, jnp.zeros(len(batch), int), jnp.zeros(len(batch), int)
        _, node, action = lax.while_loop(lambda c: c[0] < DEPTH, down, start)
        made = jnp.tanh(nodes[batch, node] @ mixed(number + 1))
        nodes = nodes.at[:, number + 1].set(made)
        scores = scores.at[batch, node, action].add((made @ params["out"])[:, 0])
        return number + 1, nodes, scores

    start = 0, nodes, scores
    return params, lax.while_loop(lambda c: c[0] < SIMULATIONS, simulate, start)[1:]


@pytest.mark.parametrize(
    "shape", [{"stages": 2, "microbatches": 2}, {"stages": 1, "microbatches": 2}, {}], ids=str
)
def test_a_search_through_a_tree_equals_that_of_one_device(shape: dict[str, Any]) -> None:
    random = np.random.default_rng(0)
    sizes = {"in": (6, WIDTH), "step": (WIDTH, WIDTH), "out": (WIDTH, 1)}
    with jax.enable_x64(True):
        params = {name: random.normal(size=size) for name, size in sizes.items()}
        roots = random.normal(size=(8, 6))
        expected = jax.jit(search)(params, roots)
        got = shardc.jit(search, time_limit_s=5, **shape)(params, roots)
        for own, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-12, atol=1e-14)

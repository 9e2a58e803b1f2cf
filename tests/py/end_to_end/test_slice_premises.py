"""A step on token slices raises where what they take for granted does not hold."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.errors import CheckError
from tests.py.table import CLUSTER

TOKENS, WIDTH = 6, 4
SEEN = np.tril(np.ones((TOKENS, TOKENS), bool))


def step(state: Any, x: jax.Array) -> Any:
    """Two layers of attention under a mask of -1e9, in a list or stacked, and the loss of each
    token."""

    def loss_of(state: Any) -> Any:
        def layer(h: jax.Array, w: Any) -> Any:
            scores = jnp.einsum("btd,bsd->bts", h @ w["query"], h @ w["key"])
            weights = jax.nn.softmax(jnp.where(SEEN, scores, -1e9))
            return h + weights @ (h @ w["value"]), None

        if isinstance(state, dict):
            h, _ = jax.lax.scan(layer, x, state)
        else:
            h = functools.reduce(lambda h, w: layer(h, w)[0], state, x)
        return jnp.mean(h**2), jnp.mean(h**2, 2)

    (loss, by_token), gradients = jax.value_and_grad(loss_of, has_aux=True)(state)
    return jax.tree.map(lambda p, g: p - 0.01 * g, state, gradients), loss, by_token


def arguments() -> Any:
    draw = np.random.default_rng(0)
    layers = [
        {name: draw.normal(size=(WIDTH, WIDTH)) / 2 for name in ("query", "key", "value")}
        for _ in range(2)
    ]
    return layers, draw.normal(size=(4, TOKENS, WIDTH))


@pytest.mark.parametrize(
    ("lowering", "stacked"), [("local", False), ("xla", False), ("local", True)]
)
def test_a_step_raises_where_what_slices_take_for_granted_does_not_hold(
    lowering: str, stacked: bool
) -> None:
    with jax.enable_x64(True):
        state, x = arguments()
        if stacked:
            state = jax.tree.map(lambda *layers: np.stack(layers), *state)
        run = shardc.jit(
            step,
            cluster=CLUSTER,
            mesh=(2,),
            stages=2,
            microbatches=2,
            schedule="terapipe",
            slices=2,
            time_limit_s=10,
            lowering=lowering,
        )
        compiled = run.lower(state, x).compile()
        assert compiled.plan.num_slices == 2

        def equals_jit(state: Any, x: Any) -> None:
            for ours, theirs in zip(
                jax.tree.leaves(compiled(state, x)),
                jax.tree.leaves(jax.jit(step)(state, x)),
                strict=True,
            ):
                np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)

        equals_jit(state, x)
        # Scores below the mask: a token that is hidden weighs more than those that are seen.
        large = jax.tree.map_with_path(
            lambda path, w: w if path[-1].key == "value" else 3e4 * w, state
        )
        # 0 times infinity: what a token that comes later has is nan in all tokens on one device.
        last = x.copy()
        last[0, -1, 0] = np.inf
        one = x.copy()
        one[3, 0, 1] = np.nan
        for broken in ((large, x), (state, last), (state, one)):
            with pytest.raises(CheckError, match="has a number that is nan or above") as caught:
                compiled(*broken)
            assert caught.value.code == "SHARDC-271"
            assert f"{__name__.split('.')[-1]}.py:" in str(caught.value)
            assert "slices=1" in str(caught.value.help)
            kept = compiled.unreturned_results
            assert jax.tree.structure(kept) == jax.tree.structure((state, 0.0, 0.0))
        equals_jit(state, x)
        assert compiled.unreturned_results is None

"""Steps without a loss whose results all feed the next step: one token after another."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from tests.py.table import CLUSTER

ROWS, LENGTH, WIDTH, WORDS, LAYERS = 8, 4, 16, 12, 2


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32) / 4


def decode(state: Any, weights: Any) -> tuple[Any, jax.Array]:
    """The next token of each row; keys and values so far are state, as are token and position."""
    at = state["position"]
    x = weights["words"][state["token"]]
    seen = jnp.arange(LENGTH)[:, None] <= at
    cache = []
    for layer, old in zip(weights["layers"], state["cache"], strict=True):
        new = jax.lax.dynamic_update_slice(old, (x @ layer["key"])[:, None], (0, at, 0))
        scores = jnp.where(seen[:, 0], jnp.einsum("bd,btd->bt", x, new), -1e9)
        x = x + jnp.tanh(jnp.einsum("bt,btd->bd", jax.nn.softmax(scores), new) @ layer["out"])
        cache.append(new)
    token = jnp.argmax(x @ weights["head"], -1).astype(jnp.int32)
    return {"token": token, "position": at + 1, "cache": cache}, token


WEIGHTS = {
    "words": random(WORDS, WIDTH),
    "head": random(WIDTH, WORDS),
    "layers": [{"key": random(WIDTH, WIDTH), "out": random(WIDTH, WIDTH)} for _ in range(LAYERS)],
}


def start() -> dict[str, Any]:
    return {
        "token": jnp.arange(ROWS, dtype=jnp.int32),
        "position": jnp.int32(0),
        "cache": [jnp.zeros((ROWS, LENGTH, WIDTH)) for _ in range(LAYERS)],
    }


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 1), (1, 2), (2, 2)])
def test_tokens_are_those_of_one_device(stages: int, microbatches: int) -> None:
    """All of the step is forward, and the rows of its state are the batch."""
    step = shardc.jit(
        decode,
        stages=stages,
        microbatches=microbatches,
        mesh=(2,),
        cluster=CLUSTER,
        donate_argnums=0,
    )
    plan = step.lower(start(), WEIGHTS).plan().plan
    assert (plan.num_stages, plan.num_microbatches) == (stages, microbatches)
    assert not any(
        "run through" in str(note) for note in plan.notes
    )  # for sums over rows of weights
    state, wanted = start(), start()
    for _ in range(LENGTH):
        state, token = step(state, WEIGHTS)
        wanted, want = jax.jit(decode)(wanted, WEIGHTS)
        np.testing.assert_array_equal(token, want)
    for cache, want in zip(state["cache"], wanted["cache"], strict=True):
        np.testing.assert_allclose(cache, want, rtol=1e-5, atol=1e-6)

"""Steps without a loss, most of whose results feed the next step: one token after another."""

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


def attend(weights: Any, cache: Any, x: jax.Array, at: jax.Array) -> tuple[jax.Array, Any]:
    """The next hidden values of each row, which depend on all that the caches need."""
    made = []
    for layer, old in zip(weights["layers"], cache, strict=True):
        new = jax.lax.dynamic_update_slice(old, (x @ layer["key"])[:, None], (0, at, 0))
        scores = jax.nn.softmax(jnp.einsum("bd,btd->bt", x, new))
        x = x + jnp.tanh(jnp.einsum("bt,btd->bd", scores, new) @ layer["out"])
        made.append(new)
    return x, made


@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (2, 4)])
def test_caches_that_a_step_returns_make_no_backward(stages: int, microbatches: int) -> None:
    options = {"stages": stages, "microbatches": microbatches, "mesh": (2,)}
    step = shardc.jit(attend, cluster=CLUSTER, donate_argnums=1, **options)

    def args() -> tuple[Any, ...]:
        cache = [jnp.asarray(random(ROWS, LENGTH, WIDTH)) for _ in range(LAYERS)]
        return WEIGHTS, cache, random(ROWS, WIDTH), jnp.int32(1)

    plan = step.lower(*args()).plan().plan
    assert plan.account is not None
    assert {each.action[1] for each in plan.account.timeline}.isdisjoint("BWX")
    for stage in plan.stages:
        assert stage.memory.stash == stage.memory.gradients == 0
        assert (stage.memory.results > 0) == (microbatches > 1)
    for got, want in zip(
        jax.tree.leaves(step(*args())), jax.tree.leaves(attend(*args())), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)

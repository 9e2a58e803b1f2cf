"""What the planner makes of requests that leave something to it."""

from typing import Any

import jax
import jax.numpy as jnp

import shardc
from tests.py.table import CLUSTER


def step(weights: Any, x: Any) -> Any:
    """Four equal layers with statistics over the batch, so that it cannot be cut."""

    def loss(weights: Any) -> Any:
        h = x
        for w in weights:
            h = jnp.tanh(h @ w)
            h = (h - h.mean(0)) / jnp.sqrt(h.var(0) + 1e-5)
        return jnp.mean(h**2 * jnp.arange(16.0))

    value, gradients = jax.value_and_grad(loss)(weights)
    return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)], value


def test_stages_that_are_asked_for_share_the_work_of_one_microbatch() -> None:
    weights = [jnp.eye(16) + i for i in range(4)]
    lowered = shardc.jit(step, stages=2, cluster=CLUSTER).lower(weights, jnp.ones((8, 16)))
    plan = lowered.plan().plan
    assert (plan.num_stages, plan.num_microbatches) == (2, 1)
    flops = [stage.num_flops for stage in plan.stages]
    assert min(flops) >= 0.25 * sum(flops)

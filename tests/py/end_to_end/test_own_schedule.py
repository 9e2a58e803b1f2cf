"""Schedules beside gpipe and 1f1b that need no other programs run with the same numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.schedule.family import Costs, Lanes
from shardc.schedule.tasks import Task
from shardc.schedule.work import Work


def one_at_a_time(work: Work, costs: Costs) -> Lanes:
    return [
        [Task(stage, kind, k) for k in work.microbatches() for kind in "FB"]
        for stage in range(work.num_stages)
    ]


@pytest.mark.parametrize("name", ["eager-1f1b", "there-and-back"])
def test_values_equal_the_unsharded_program(name: str) -> None:
    def step(weights, x, t):  # type: ignore[no-untyped-def]  # arrays in and out
        def loss_of(weights):  # type: ignore[no-untyped-def]
            hidden = jnp.tanh(x @ weights[0])
            return jnp.mean((jnp.tanh(hidden @ weights[1]) - t) ** 2)

        loss, gradients = jax.value_and_grad(loss_of)(weights)
        return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)], loss

    shardc.register_schedule("there-and-back", one_at_a_time)
    draw = np.random.default_rng(0)
    weights = [draw.normal(size=(16, 16)).astype(np.float32) for _ in range(2)]
    x, t = (draw.normal(size=(16, 16)).astype(np.float32) for _ in range(2))
    planned = shardc.jit(step, stages=2, microbatches=4, schedule=name, time_limit_s=10)
    ours, theirs = planned(weights, x, t), jax.jit(step)(weights, x, t)
    assert planned.plan.schedule == name
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)

"""The host's time for an action of a pipeline, for `shardc calibrate`."""

import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardc.api.jit import jit

MICROBATCHES, WIDTH = 8, 8
WARM_UP, STEPS = 3, 10


def action_seconds(devices: Sequence[jax.Device]) -> float:
    """Seconds per action of two stages on the first and the last device, which compute next to
    nothing; 0 if there is one device, or none of them in this process.

    Of CPU devices the time of all threads, which share the cores with those that compute;
    elsewhere that of the thread which dispatches. In a job all processes call this.
    """
    if len(devices) == 1:
        return 0.0
    ends = (devices[0], devices[-1])
    asked: Any = {"stages": 2, "microbatches": MICROBATCHES, "schedule": "1f1b", "mesh": {"x": 1}}
    step = jit(_step, devices=ends, **asked)
    weights: Any = [np.ones((WIDTH, WIDTH), np.float32)] * 2
    batch = np.ones((MICROBATCHES, WIDTH), np.float32)
    compiled = step.lower(weights, batch).plan().compile()
    clock = time.process_time if devices[0].platform == "cpu" else time.thread_time
    for turn in range(WARM_UP + STEPS):
        if turn == WARM_UP:
            start_s = clock()
        weights, _ = compiled(weights, batch)
        jax.block_until_ready([each.data for leaf in weights for each in leaf.addressable_shards])
    actions = len(compiled.interpreter.last_trace)
    return (clock() - start_s) / (STEPS * actions) if actions else 0.0


def _step(weights: Any, batch: Any) -> Any:
    def loss_of(weights: Any) -> jax.Array:
        first, second = weights
        return jnp.mean(jnp.tanh(batch @ first) @ second)

    loss, gradients = jax.value_and_grad(loss_of)(weights)
    return jax.tree.map(lambda w, g: w - 0.01 * g, weights, gradients), loss

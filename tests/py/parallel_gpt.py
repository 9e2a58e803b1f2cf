"""A GPT whose state outweighs its activations, planned under a tight memory limit."""

import functools

import jax
import numpy as np
import optax

import shardc
from examples import gpt_model
from shardc.api.stages import Compiled, Planned
from tests.py.programs import Program
from tests.py.table import CLUSTER

SIZES = gpt_model.Sizes(length=8)
STAGES, MICROBATCHES = 2, 4
BATCH = 16
LIMIT_BYTES = 900_000  # per device; an eighth of parameters and adam's state is 312,000


def program() -> Program:
    """The training step with adamw, and arguments."""
    params = gpt_model.init(jax.random.key(0), SIZES)
    optimizer = optax.adamw(1e-3)
    state = {"params": params, "optimizer": optimizer.init(params)}
    tokens = np.random.default_rng(1).integers(0, SIZES.vocabulary, (BATCH, SIZES.length + 1))
    tokens = tokens.astype(np.int32)
    batch = {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}
    state = jax.tree.map(np.asarray, state)
    return Program(gpt_model.make_train_step(optimizer), (state, batch))


@functools.cache
def tight_plan() -> Planned:
    """Two stages of four devices, four microbatches, 1F1B, little memory."""
    built = program()
    step = shardc.jit(
        built.step,
        donate_argnums=built.donate_argnums,
        cluster=CLUSTER,
        stages=STAGES,
        microbatches=MICROBATCHES,
        schedule="1f1b",
        mesh=(2, 2),
        memory_limit_bytes=LIMIT_BYTES,
    )
    planned: Planned = step.lower(*built.args).plan()
    return planned


@functools.cache
def tight_gpt() -> Compiled:
    """The same, compiled."""
    return tight_plan().compile()

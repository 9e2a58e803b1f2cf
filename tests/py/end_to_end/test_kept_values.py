"""What `jax.checkpoint` computes again is kept instead; the numbers stay those of jax.jit."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import shardc
from examples import gpt_model
from shardc.ir.context import parse
from shardc.plan.stages_spec import Recompute, StageSpec, StagesSpec
from tests.py.programs import Program
from tests.py.scanned_gpt import scanned_gpt

STEPS = 3
SIZES = gpt_model.Sizes(vocabulary=32, length=8, width=16, hidden=32, layers=4)


def unrolled_gpt() -> Program:
    """Each block of it is checkpointed."""

    def loss_fn(params: Any, batch: Any) -> jax.Array:
        x = gpt_model.embed(params, batch["tokens"])
        for each in params["blocks"]:
            x = jax.checkpoint(gpt_model.block)(each, x)
        logits = gpt_model.unembed(params, x)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"])
        return jnp.mean(losses)

    params = jax.tree.map(
        lambda leaf: np.asarray(leaf, np.float64), gpt_model.init(jax.random.key(0), SIZES)
    )
    optimizer = optax.sgd(0.1, momentum=0.9)
    state = {"params": params, "optimizer": jax.jit(optimizer.init)(params)}
    tokens = np.random.default_rng(1).integers(0, SIZES.vocabulary, (16, SIZES.length + 1))
    tokens = tokens.astype(np.int32)
    batch = {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}
    return Program(gpt_model.make_train_step(optimizer, loss_fn), (state, batch))


@functools.cache
def program(kind: str) -> Program:
    return unrolled_gpt() if kind == "unrolled" else scanned_gpt(dtype=jnp.float64)


@functools.cache
def wanted(kind: str) -> tuple[Any, list[Any]]:
    """The state after `STEPS` steps of `jax.jit`, and the loss of each."""
    built = program(kind)
    state, batch = built.args
    step, losses = jax.jit(built.step), []
    for _ in range(STEPS):
        state, loss = step(state, batch)
        losses.append(loss)
    return jax.tree.map(np.asarray, state), losses


def by_hand(recompute: Recompute, stages: int, schedule: str) -> StagesSpec:
    own = StageSpec(4 // stages, (8 // stages,), recompute=recompute)
    return StagesSpec(1, (own,) * stages, microbatches=4, schedule=schedule)


def products(planned: Any, kind: str) -> int:
    """Matrix products in the programs of a kind, over all stages; a loop's body counts once."""
    texts = [str(parse(p.module)) for p in planned.executable.programs if p.kind == kind]
    return sum(text.count("stablehlo.dot_general") for text in texts)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["scanned", "unrolled"])
@pytest.mark.parametrize(
    ("stages", "schedule"), [(1, "gpipe"), (2, "gpipe"), (2, "1f1b"), (2, "zb-h1")]
)
def test_numbers_equal_one_device(kind: str, stages: int, schedule: str) -> None:
    with jax.enable_x64(True):
        built = program(kind)
        reference, losses = wanted(kind)
        for recompute in ("none", "selective"):
            spec = by_hand(recompute, stages, schedule)
            step = shardc.jit(built.step, donate_argnums=0, plan=spec)
            state = jax.tree.map(lambda leaf: jnp.array(np.asarray(leaf)), built.args[0])
            for wanted_loss in losses:
                state, loss = step(state, built.args[1])
                np.testing.assert_allclose(loss, wanted_loss, rtol=1e-9)
            for own, other in zip(jax.tree.leaves(state), jax.tree.leaves(reference), strict=True):
                largest = float(np.max(np.abs(other)))
                np.testing.assert_allclose(own, other, rtol=0, atol=1e-9 * largest)
            if recompute == "none":  # whether others are worth it depends on the device
                assert all(stage.values for stage in step.plan.stages)

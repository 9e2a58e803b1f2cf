"""Scanned networks hold gradients and kept values once; their numbers are those of `jax.jit`."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.api.stages import Compiled
from tests.py.compiled_step import compiled_peak_bytes
from tests.py.scanned_gpt import scanned_gpt
from tests.py.table import CLUSTER


@functools.cache
def compiled(stages: int, mesh: tuple[int, ...], axis: int) -> tuple[Compiled, Any]:
    """A scanned GPT whose parameters outweigh its activations, and its program."""
    program = scanned_gpt(axis=axis, width=64, batch=8)
    step = shardc.jit(
        program.step,
        donate_argnums=0,
        cluster=CLUSTER,
        devices=jax.devices(),
        stages=stages,
        mesh=mesh,
        microbatches=4,
        schedule="1f1b",
    )
    return step.lower(*program.args).compile(), program


@pytest.mark.parametrize("axis", [0, 1])
def test_no_second_copy_of_parameters_or_gradients_is_made(axis: int) -> None:
    step, program = compiled(2, (1,), axis)
    layers = jax.tree.leaves(program.args[0]["params"]["layers"])
    of_a_stage = sum(leaf.nbytes for leaf in layers) // 2
    for each in step.programs:
        if each.program.kind in ("forward", "backward"):
            assert each.call.memory_analysis().temp_size_in_bytes < of_a_stage


@pytest.mark.parametrize("axis", [0, 1])
def test_the_peak_is_as_predicted(axis: int) -> None:
    step, _ = compiled(2, (1,), axis)
    planned = [stage.peak_bytes for stage in step.plan.stages]
    np.testing.assert_allclose(planned, compiled_peak_bytes(step), rtol=0.1)


@pytest.mark.parametrize("mesh", [(1,), (2,)])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_a_loop_keeps_of_a_microbatch_is_held_once(
    mesh: tuple[int, ...], checkpoint: bool
) -> None:
    """It is the largest part here, and the loop writes it where the backward pass will read it."""

    def layer(hidden: jax.Array, weight: jax.Array) -> tuple[jax.Array, None]:
        return jnp.tanh(jnp.tanh(hidden @ weight) @ weight.T), None

    def train_step(weights: jax.Array, batch: jax.Array) -> tuple[jax.Array, jax.Array]:
        def loss(weights: jax.Array) -> jax.Array:
            body = jax.checkpoint(layer) if checkpoint else layer
            return jnp.mean(jax.lax.scan(body, batch, weights)[0] ** 2)

        value, gradient = jax.value_and_grad(loss)(weights)
        return weights - 0.1 * gradient, value

    options: dict[str, Any] = {"stages": 2, "microbatches": 4, "mesh": mesh, "schedule": "1f1b"}
    step = shardc.jit(train_step, donate_argnums=0, cluster=CLUSTER, **options)
    compiled = step.lower(jnp.ones((16, 128, 128)), jnp.ones((256, 128))).compile()
    planned = [stage.peak_bytes for stage in compiled.plan.stages]
    np.testing.assert_allclose(planned, compiled_peak_bytes(compiled), rtol=0.12)


@pytest.mark.parametrize(("stages", "mesh", "axis"), [(2, (2,), 0), (4, (1,), 1)])
def test_numbers_are_those_of_the_whole_step_in_float64(
    stages: int, mesh: tuple[int, ...], axis: int
) -> None:
    with jax.enable_x64(True):
        program = scanned_gpt(axis=axis, dtype=jnp.float64)
        step = shardc.jit(
            program.step,
            donate_argnums=0,
            cluster=CLUSTER,
            devices=jax.devices(),
            stages=stages,
            mesh=mesh,
            microbatches=4,
            schedule="1f1b",
        )
        assert step.lower(*program.args).plan().plan.loop_cuts
        state, tokens = jax.tree.map(jnp.asarray, program.args)
        expected, reference = jax.tree.map(jnp.copy, state), jax.jit(program.step)
        for _ in range(3):
            state, loss = step(state, tokens)
            expected, wanted = reference(expected, tokens)
        for own, other in zip(
            jax.tree.leaves((state, loss)), jax.tree.leaves((expected, wanted)), strict=True
        ):
            limit = 1e-9 * max(float(np.max(np.abs(other))), 1e-30)
            np.testing.assert_allclose(own, other, rtol=0, atol=limit)

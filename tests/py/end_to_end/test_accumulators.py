"""Scanned networks hold each gradient once, and their numbers are those of `jax.jit`."""

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

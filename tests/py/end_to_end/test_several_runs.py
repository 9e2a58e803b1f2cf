"""Steps with several runs of the microbatches, through `shardc.jit` under any strategies."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest

import shardc
from shardc.passes import plan_shardings
from tests.py.fuzz.random_solver import random_solver
from tests.py.passes.test_split_step_kinds import (
    SEVERAL_RUNS_OF,
    balanced_experts,
    loss_in_bfloat16,
)
from tests.py.table import CLUSTER

KINDS = [kind for kind in SEVERAL_RUNS_OF if kind is not loss_in_bfloat16]


@pytest.mark.slow
@pytest.mark.parametrize(("stages", "microbatches", "seed"), [(1, 4, 1), (2, 4, 2)])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_results(kind: Callable[..., Any], stages: int, microbatches: int, seed: int) -> None:
    args, _ = SEVERAL_RUNS_OF[kind]
    with jax.enable_x64(True), mock.patch.object(plan_shardings, "solve_once", random_solver(seed)):
        compiled = shardc.jit(
            kind, stages=stages, microbatches=microbatches, cluster=CLUSTER, mesh=(2, 2)
        ).lower(*args)
        plan = compiled.plan().plan
        assert (plan.num_stages, plan.num_microbatches) == (stages, microbatches)
        assert any("are run through" in str(note) for note in plan.notes)
        got, wanted = compiled.compile()(*args), jax.jit(kind)(*args)
        for have, want in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-10, atol=1e-12)


def test_microbatches_that_memory_needs_are_found() -> None:
    """In one microbatch the experts do not fit; without being asked the planner takes more."""
    w, x, y = SEVERAL_RUNS_OF[balanced_experts][0]
    args = w, np.tile(x, (64, 1)), np.tile(y, (64, 1))

    def plan(**options: Any) -> Any:
        step = shardc.jit(balanced_experts, stages=1, cluster=CLUSTER, mesh=(2,), **options)
        return step.lower(*args).plan().plan

    whole = plan()
    assert whole.num_microbatches == 1
    small = plan(memory_limit_bytes=whole.stages[0].peak_bytes * 2 // 3)
    assert small.num_microbatches > 1
    assert small.predicted.step_time_s > whole.predicted.step_time_s


def test_sums_that_wait_for_sums() -> None:
    """The gradient that a sharpness-aware step goes along waits for the load of the experts."""

    def step(w: Any, x: Any, y: Any) -> Any:
        def moved(w: Any) -> Any:
            return balanced_experts(w, x, y)[0]

        first = jax.tree.map(lambda old, new: old - new, w, moved(w))
        return moved(jax.tree.map(lambda p, g: p + g / np.sqrt(2), w, first))

    args = SEVERAL_RUNS_OF[balanced_experts][0]
    with jax.enable_x64(True):
        lowered = shardc.jit(step, stages=1, microbatches=2, cluster=CLUSTER, mesh=(2,)).lower(
            *args
        )
        plan = lowered.plan().plan
        assert plan.num_microbatches == 2
        assert any("run through 4 times" in str(note) for note in plan.notes)
        got, wanted = lowered.compile()(*args), jax.jit(step)(*args)
        for have, want in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-10, atol=1e-12)


def test_no_pipeline_is_begun_with_a_run_through_the_batch_unless_it_is_asked_for() -> None:
    args, _ = SEVERAL_RUNS_OF[balanced_experts]

    def shape(**options: Any) -> tuple[int, int]:
        plan = shardc.jit(balanced_experts, cluster=CLUSTER, **options).lower(*args).plan().plan
        return plan.num_stages, plan.num_microbatches

    assert shape(stages=2) == (2, 1)
    assert shape(stages=2, microbatches=4) == (2, 4)


def test_no_pipeline_behind_most_of_the_work() -> None:
    """Every layer waits for a sum over what the one before gives: four runs of more and more layers
    before the last one, which would all come before a pipeline begins."""

    def step(weights: Any, x: Any) -> Any:
        for w in weights:
            x = np.tanh(1) * (x / jax.numpy.mean(x**2)) @ w
        return x

    args = [np.eye(8) + np.ones((8, 8)) / 9] * 5, np.arange(64.0).reshape(8, 8) / 64

    def plan(stages: int) -> Any:
        asked = shardc.jit(step, stages=stages, microbatches=2, cluster=CLUSTER)
        return asked.lower(*args).plan().plan

    with jax.enable_x64(True):
        whole = plan(1)
        assert (whole.num_stages, whole.num_microbatches, whole.unmet) == (1, 2, ())
        with pytest.warns(shardc.RequestWarning, match="before the pipeline, are"):
            staged = plan(2)
        assert (staged.num_stages, staged.num_microbatches) == (2, 1)

"""Steps whose microbatches are run through twice, through `shardc.jit` under any strategies."""

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
    TWO_RUNS_OF,
    balanced_experts,
    loss_in_bfloat16,
)
from tests.py.table import CLUSTER

KINDS = [kind for kind in TWO_RUNS_OF if kind is not loss_in_bfloat16]


@pytest.mark.slow
@pytest.mark.parametrize(("stages", "microbatches", "seed"), [(1, 2, 0), (1, 4, 1), (2, 4, 2)])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_results(kind: Callable[..., Any], stages: int, microbatches: int, seed: int) -> None:
    args, _ = TWO_RUNS_OF[kind]
    with jax.enable_x64(True), mock.patch.object(plan_shardings, "solve", random_solver(seed)):
        compiled = shardc.jit(
            kind, stages=stages, microbatches=microbatches, cluster=CLUSTER, mesh=(2, 2)
        ).lower(*args)
        plan = compiled.plan().plan
        assert (plan.num_stages, plan.num_microbatches) == (stages, microbatches)
        assert any("run through twice" in note for note in plan.notes)
        got, wanted = compiled.compile()(*args), jax.jit(kind)(*args)
        for have, want in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-10, atol=1e-12)


def test_microbatches_that_memory_needs_are_found() -> None:
    """In one microbatch the experts do not fit; without being asked the planner takes more."""
    w, x, y = TWO_RUNS_OF[balanced_experts][0]
    args = w, np.tile(x, (64, 1)), np.tile(y, (64, 1))

    def plan(**options: Any) -> Any:
        step = shardc.jit(balanced_experts, stages=1, cluster=CLUSTER, mesh=(2,), **options)
        return step.lower(*args).plan().plan

    whole = plan()
    assert whole.num_microbatches == 1
    small = plan(memory_limit_bytes=whole.stages[0].peak_bytes * 2 // 3)
    assert small.num_microbatches > 1
    assert small.predicted.step_time_s > whole.predicted.step_time_s


def test_two_sums_in_a_row_are_one_too_many() -> None:
    """The gradient that a sharpness-aware step goes along would need a first run of its own."""

    def step(w: Any, x: Any, y: Any) -> Any:
        def loss(w: Any) -> Any:
            return balanced_experts(w, x, y)[1]

        first = jax.grad(loss)(w)
        away = jax.tree.map(lambda p, g: p + 0.05 * g / np.sqrt(2), w, first)
        value, gradient = jax.value_and_grad(loss)(away)
        return jax.tree.map(lambda p, g: p - 0.1 * g, w, gradient), value

    args = TWO_RUNS_OF[balanced_experts][0]
    lowered = shardc.jit(step, stages=1, microbatches=2, cluster=CLUSTER, mesh=(2,)).lower(*args)
    with pytest.warns(shardc.RequestWarning, match="1 microbatch instead of 2.*whole batch"):
        planned = lowered.plan()
    assert planned.plan.num_microbatches == 1

"""Steps with several runs of the microbatches, through `shardc.jit` under any strategies."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest

import shardc
from shardc.errors import ScheduleError
from shardc.passes import plan_shardings
from shardc.plan.notes import NoteCode
from shardc.planner import plan_program
from shardc.planner.budget import BUDGET
from tests.py.fuzz.random_solver import random_solver
from tests.py.passes.test_split_step_kinds import (
    SEVERAL_RUNS_OF,
    balanced_experts,
    loss_in_bfloat16,
    turned_by_a_complex_sum,
)
from tests.py.table import CLUSTER

KINDS = [kind for kind in SEVERAL_RUNS_OF if kind is not loss_in_bfloat16]
# Its last run through the microbatches has too few layers for two stages.
STAGED = [kind for kind in KINDS if kind is not turned_by_a_complex_sum]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "stages", "microbatches", "seed"),
    [*((kind, 1, 4, 1) for kind in KINDS), *((kind, 2, 4, 2) for kind in STAGED)],
)
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


@pytest.mark.slow
def test_microbatches_that_memory_needs_are_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In one microbatch the experts do not fit; without being asked the planner takes more, and
    keeps what fits from the first run through them for the second."""
    w, x, y = SEVERAL_RUNS_OF[balanced_experts][0]
    args = w, np.tile(x, (64, 1)), np.tile(y, (64, 1))

    def step(**options: Any) -> Any:
        return shardc.jit(balanced_experts, cluster=CLUSTER, **options)

    with jax.enable_x64(True):
        whole = step(stages=1, mesh=(2,)).lower(*args).plan().plan
        assert (whole.num_microbatches, whole.keep_price) == (1, 0.0)
        limit = whole.stages[0].peak_bytes * 2 // 3
        tight = step(stages=1, mesh=(2,), memory_limit_bytes=limit)
        small = tight.lower(*args).plan().plan
        assert small.num_microbatches > 1
        assert small.predicted.step_time_s > whole.predicted.step_time_s
        assert small.keep_price > 0.0
        assert NoteCode.KEPT_BETWEEN in {note.code for note in small.notes}

        small.save(tmp_path / "plan.json")
        got = step(plan=tmp_path / "plan.json")(*args)
        for have, want in zip(
            jax.tree.leaves(got), jax.tree.leaves(jax.jit(balanced_experts)(*args)), strict=True
        ):
            np.testing.assert_allclose(have, want, rtol=1e-10, atol=1e-12)

        monkeypatch.setattr(plan_program, "BUDGET", replace(BUDGET, keep_prices=()))
        other = step(stages=1, mesh=(2,), memory_limit_bytes=limit - 1)  # not in the cache of plans
        again = other.lower(*args).plan().plan
        assert (again.num_microbatches > 1, again.keep_price) == (True, 0.0)
        assert again.predicted.step_time_s > small.predicted.step_time_s


def test_no_plan_is_lost_because_one_that_keeps_values_does_not_suit_the_schedule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, tried = plan_program._run, []

    def refused(planner: Any) -> Any:
        tried.append(planner.splits.reuse.keep_price)
        if tried[-1]:
            raise ScheduleError("too few microbatches")
        return run(planner)

    monkeypatch.setattr(plan_program, "_run", refused)
    step = shardc.jit(balanced_experts, stages=1, microbatches=4, cluster=CLUSTER, mesh=(2,))
    plan = step.lower(*SEVERAL_RUNS_OF[balanced_experts][0]).plan().plan
    assert (plan.num_microbatches, plan.keep_price) == (4, 0.0)
    assert tried[0] == 0.0 < tried[1]


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

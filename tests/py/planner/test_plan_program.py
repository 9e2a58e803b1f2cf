"""Casts of parameters: once per step, unless memory is short of the copies."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import shardc
from shardc.errors import InfeasibleError
from shardc.options import PlanOptions
from shardc.plan.decisions import Plan
from shardc.plan.notes import NoteCode
from shardc.plan.stages_spec import StageSpec, StagesSpec
from shardc.planner.hand.hand_plan import hand_plan
from shardc.planner.plan_program import plan_program, search_program
from tests.py.table import CLUSTER

LAYERS, WIDTH = 16, 256
COPY = LAYERS * WIDTH * WIDTH * 2  # bytes
ONE_DEVICE = PlanOptions(stages=1, mesh=(1,), microbatches=4)


def step(weights: Any, x: Any, remat: bool = True) -> Any:
    """Each layer of the loop casts its own weights."""

    def loss(weights: Any) -> Any:
        def layer(h: Any, row: Any) -> Any:
            return jnp.tanh(h @ row.astype(jnp.bfloat16)), None

        layer = jax.checkpoint(layer) if remat else layer

        return jnp.sum(lax.scan(layer, x.astype(jnp.bfloat16), weights)[0].astype(jnp.float32) ** 2)

    value, gradient = jax.value_and_grad(loss)(weights)
    return weights - 0.1 * gradient, value


def _prepare(function: Any) -> Any:
    weights = jax.ShapeDtypeStruct((LAYERS, WIDTH, WIDTH), jnp.float32)
    x = jax.ShapeDtypeStruct((64, WIDTH), jnp.float32)
    planner = shardc.jit(function, donate_argnums=0, cluster=CLUSTER, stages=1, mesh=(1,))
    return planner.lower(weights, x).plan()._prepared


@pytest.fixture(scope="module")
def prepared() -> Any:
    return _prepare(step)


@pytest.fixture(scope="module")
def copied(prepared: Any) -> Plan:
    return plan_program(prepared, CLUSTER, ONE_DEVICE)


def _limited(num_bytes: int) -> PlanOptions:
    return PlanOptions(stages=1, mesh=(1,), microbatches=4, memory_limit_bytes=num_bytes)


@pytest.mark.slow
def test_parameters_are_cast_once_per_step_and_the_plan_says_so(copied: Plan) -> None:
    assert copied.cast_once
    assert NoteCode.CASTS in {note.code for note in copied.notes}
    assert copied.stages[0].memory.parameters == 2 * COPY + COPY


def test_without_memory_for_the_copies_each_microbatch_casts(prepared: Any, copied: Plan) -> None:
    limit = copied.predicted.peak_bytes_per_device - COPY // 4
    tight = plan_program(prepared, CLUSTER, _limited(limit))
    assert not tight.cast_once
    assert tight.stages[0].memory.parameters == 2 * COPY
    assert tight.predicted.step_time_s > copied.predicted.step_time_s


def test_what_does_not_fit_without_copies_either_is_refused(prepared: Any) -> None:
    _, found = search_program(prepared, CLUSTER, _limited(4 * COPY))
    assert isinstance(found, InfeasibleError)


def test_a_plan_by_hand_goes_without_copies_too(prepared: Any) -> None:
    spec = StagesSpec(1, (StageSpec(),), 4, mesh=(1,))
    roomy = hand_plan(prepared, CLUSTER, PlanOptions(), spec)
    limit = roomy.predicted.peak_bytes_per_device - COPY // 4
    tight = hand_plan(prepared, CLUSTER, PlanOptions(memory_limit_bytes=limit), spec)
    assert (roomy.cast_once, tight.cast_once) == (True, False)


def test_a_plan_by_hand_that_gathers_parameters_makes_no_copies(prepared: Any) -> None:
    """Else its forward passes would read copies, and gather nothing."""
    spec = StagesSpec(1, (StageSpec(),), 4, mesh={"data": 2}, gather="data")
    plan = hand_plan(prepared, CLUSTER, PlanOptions(), spec)
    assert not plan.cast_once
    assert "0G0" in plan.lanes[0]


@pytest.mark.slow
def test_pipelines_that_the_search_estimates_not_to_fit_are_tried_without_copies(
    prepared: Any,
) -> None:
    limit = 2 * COPY + COPY // 2
    options = PlanOptions(stages=2, mesh=(1,), memory_limit_bytes=limit, schedule="1f1b")
    plan = plan_program(prepared, CLUSTER, options)
    assert (plan.num_stages, plan.cast_once) == (2, False)


@pytest.mark.slow
def test_the_stack_of_cast_rows_that_the_backward_pass_reads_is_the_copy() -> None:
    without = _prepare(functools.partial(step, remat=False))
    planned = plan_program(without, CLUSTER, ONE_DEVICE)
    assert planned.stages[0].memory.parameters == 2 * COPY + COPY
    assert planned.stages[0].memory.stash < COPY

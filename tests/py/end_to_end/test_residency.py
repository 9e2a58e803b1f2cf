"""Forward values are made again where that is the only way to fit; the numbers stay the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.api.function import ShardedFunction
from shardc.plan.notes import NoteCode
from shardc.plan.stages_spec import Recompute, StageSpec, StagesSpec
from tests.py.compiled_step import compiled_peak_bytes
from tests.py.fuzz.layers import Step
from tests.py.fuzz.plans import Checked, Plan

Params = list[jax.Array]
LIMIT = 480_000  # bytes of a device: half of what a plan needs that keeps everything


def loss_fn(params: Params, x: jax.Array) -> jax.Array:
    for weight in params:
        x = jnp.tanh(x @ weight)
        x = jnp.sin(x) * jnp.cos(x) + x
    return jnp.mean(x * x)


def step(params: Params, x: jax.Array) -> tuple[Params, jax.Array]:
    loss, gradients = jax.value_and_grad(loss_fn)(params, x)
    return [p - 0.1 * g for p, g in zip(params, gradients, strict=True)], loss


def inputs() -> tuple[Params, jax.Array]:
    keys = jax.random.split(jax.random.key(0), 9)
    params = [0.2 * jax.random.normal(key, (64, 64)) for key in keys[1:]]
    return params, jax.random.normal(keys[0], (512, 64))


def planned(limit: int | None) -> ShardedFunction:
    return shardc.jit(
        step,
        donate_argnums=0,
        microbatches=4,
        mesh=(4,),
        schedule="gpipe",
        memory_limit_bytes=limit,
    )


@pytest.mark.parametrize("limit", [None, LIMIT])
def test_values_are_made_again_only_where_they_cannot_be_kept(limit: int | None) -> None:
    function = planned(limit)
    params, x = inputs()
    expected, wanted = jax.jit(step)(*inputs())
    params, loss = function(params, x)
    np.testing.assert_allclose(loss, wanted, rtol=1e-5)
    for own, other in zip(params, expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-6)
    plan = function.plan
    tight = limit is not None
    assert all((stage.recompute > 0) is tight for stage in plan.stages)
    assert (NoteCode.RECOMPUTED in {note.code for note in plan.notes}) is tight
    if limit is not None:
        assert max(stage.peak_bytes for stage in plan.stages) <= limit


def test_the_compiled_step_holds_less_too() -> None:
    kept, again = (
        compiled_peak_bytes(planned(limit).lower(*inputs()).compile()) for limit in (None, LIMIT)
    )
    for less, more in zip(again, kept, strict=True):
        assert less < 0.7 * more, (again, kept)


def mixed_loss(params: Params, x: jax.Array) -> jax.Array:
    """JAX computes what the gradients of gelu, softmax and tanh need on the way there."""
    for weight in params:
        h = jax.nn.gelu(x @ weight)
        x = x + jax.nn.softmax(h) * jnp.tanh(h)
    return jnp.mean(x * x)


@pytest.mark.slow
@pytest.mark.parametrize("num_stages", [1, 2])
@pytest.mark.parametrize("recompute", ["user", "full"])
def test_a_stage_of_many_layers_holds_what_its_plan_says(
    num_stages: int, recompute: Recompute
) -> None:
    def step(params: Params, x: jax.Array) -> tuple[Params, jax.Array]:
        loss, gradients = jax.value_and_grad(mixed_loss)(params, x)
        return [p - 0.1 * g for p, g in zip(params, gradients, strict=True)], loss

    keys = jax.random.split(jax.random.key(0), 9)
    params = [0.2 * jax.random.normal(key, (64, 64)) for key in keys[1:]]
    x = jax.random.normal(keys[0], (1024, 64))
    stages = (StageSpec(recompute=recompute),) * num_stages
    plan = StagesSpec(1, stages, microbatches=2, schedule="1f1b", mesh=(2,))
    function = shardc.jit(step, plan=plan)
    compiled = function.lower(params, x).compile()
    new_params, loss = function(params, x)
    expected, wanted = jax.jit(step)(params, x)
    np.testing.assert_allclose(loss, wanted, rtol=1e-5)
    for own, other in zip(new_params, expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-6)
    planned_bytes = max(stage.peak_bytes for stage in function.plan.stages)
    assert 0.87 < max(compiled_peak_bytes(compiled)) / planned_bytes < 1.1


def pooled(params: Params, x: jax.Array, _: jax.Array) -> tuple[Params, jax.Array]:
    """Its gradient asks which elements are equal to the largest of their pool."""

    def loss(params: Params) -> jax.Array:
        h = x
        for weight in params:
            z = jnp.tanh(h @ weight)
            h = jnp.repeat(z.reshape(16, 4, 2).max(2), 2, 1)
        return jnp.mean(h**2)

    value, gradients = jax.value_and_grad(loss)(params)
    return [p - 0.1 * g for p, g in zip(params, gradients, strict=True)], value


@pytest.mark.parametrize("seed", range(3))
def test_what_is_made_again_in_another_way_is_compared_with_nothing_that_was_kept(
    seed: int,
) -> None:
    """Products in parts have other last bits; no element was the largest one, and all were nan."""
    draw = np.random.default_rng(0)
    params = [draw.normal(size=(8, 8)) for _ in range(4)]
    args = params, draw.normal(size=(16, 8)), np.arange(16)
    found = Checked(Step("", pooled, args)).check(
        Plan(1, 2, (2,), cut_loops=False, seed=seed, held=2)
    )
    assert (found.outcome, found.detail) == ("held", "")


@pytest.mark.parametrize("lowering", ["local", "xla"])
@pytest.mark.parametrize("recompute", ["full", "selective"])
def test_a_step_that_returns_no_loss(recompute: Recompute, lowering: str) -> None:
    """The last stage's forward then may give nothing: the backward makes all of it again."""

    def only_gradients(params: Params, x: jax.Array) -> Params:
        gradients = jax.grad(loss_fn)(params, x)
        return [p - 0.1 * g for p, g in zip(params, gradients, strict=True)]

    args = [params[:8, :8] for params in inputs()[0][:2]], inputs()[1][:8, :8]
    stages = tuple(StageSpec(recompute=recompute) for _ in args[0])
    plan = StagesSpec(1, stages, microbatches=2, schedule="1f1b", mesh=(2,))
    got = shardc.jit(only_gradients, plan=plan, lowering=lowering)(*args)
    for own, want in zip(got, jax.jit(only_gradients)(*args), strict=True):
        np.testing.assert_allclose(own, want, rtol=1e-5, atol=1e-6)

"""Loops over blocks of the batch are shared out; one iteration leaves no loop."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.backend.stage_text import program_text

WIDTH, CLASSES, BATCH, BLOCKS = 16, 32, 32, 4
Step = Callable[[Any, Any, Any], Any]


def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    scores = jnp.tanh(x @ params["in"]) @ params["out"]
    return -jnp.mean(jax.nn.log_softmax(scores)[jnp.arange(x.shape[0]), y])


def updated(params: Any, gradients: Any) -> Any:
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)


def in_blocks(*arrays: jax.Array) -> list[jax.Array]:
    return [a.reshape(BLOCKS, -1, *a.shape[1:]) for a in arrays]


def accumulated(params: Any, x: jax.Array, y: jax.Array) -> Any:
    """Gradient accumulation as users write it."""

    def one(total: Any, block: Any) -> Any:
        return jax.tree.map(jnp.add, total, jax.value_and_grad(loss)(params, *block)), None

    zeros = jax.tree.map(jnp.zeros_like, (jnp.zeros(()), params))
    total, _ = jax.lax.scan(one, zeros, tuple(in_blocks(x, y)))
    value, gradients = jax.tree.map(lambda t: t / BLOCKS, total)
    return updated(params, gradients), value


def with_noise(params: Any, x: jax.Array, y: jax.Array) -> Any:
    """What an iteration knows of its number is that of the whole loop; losses are stacked."""

    def one(total: Any, number: Any) -> Any:
        rows = BATCH // BLOCKS
        part = jax.lax.dynamic_slice_in_dim(x, number * rows, rows)
        part += 0.1 * jax.random.normal(jax.random.fold_in(jax.random.key(0), number), part.shape)
        labels = jax.lax.dynamic_slice_in_dim(y, number * rows, rows)
        value, gradients = jax.value_and_grad(loss)(params, part, labels)
        return jax.tree.map(jnp.add, total, gradients), value * (number + 1)

    zeros = jax.tree.map(jnp.zeros_like, params)
    gradients, values = jax.lax.scan(one, zeros, jnp.arange(BLOCKS), reverse=True)
    return updated(params, gradients), values.sum()


def vocabulary_in_blocks(params: Any, x: jax.Array, y: jax.Array) -> Any:
    """A loss by blocks of examples and of classes; its backward pass adds to blocks it has read."""

    def of_blocks(params: Any) -> jax.Array:
        hidden, labels = in_blocks(jnp.tanh(x @ params["in"]), y)

        def normaliser(block: jax.Array) -> jax.Array:
            def classes(total: jax.Array, number: Any) -> Any:
                part = jax.lax.dynamic_slice_in_dim(params["out"], number * 8, 8, axis=1)
                return jnp.logaddexp(total, jax.nn.logsumexp(block @ part, axis=1)), None

            start = jnp.full(block.shape[0], -jnp.inf)
            return jax.lax.scan(classes, start, jnp.arange(CLASSES // 8))[0]

        def one(total: jax.Array, block: Any) -> Any:
            h, labels = block
            hit = jnp.einsum("bd,db->b", h, params["out"][:, labels])
            return total + jnp.sum(normaliser(h) - hit), None

        return jax.lax.scan(jax.checkpoint(one), jnp.zeros(()), (hidden, labels))[0] / BATCH

    value, gradients = jax.value_and_grad(of_blocks)(params)
    return updated(params, gradients), value


def blocks_inside_a_loop(params: Any, x: jax.Array, y: jax.Array) -> Any:
    """A loss by blocks of classes outside, of examples inside: each block of the gradient of the
    hidden layer is added to once per block of classes, as fused cross entropies do."""
    rows, classes = BATCH // BLOCKS, CLASSES // 4
    hidden = jnp.tanh(x @ params["in"])

    def of_classes(first: Any, so_far: Any) -> Any:
        part = jax.lax.dynamic_slice_in_dim(params["out"], first * classes, classes, axis=1)

        def of_examples(number: Any, so_far: Any) -> Any:
            slope, total, value = so_far
            h = jax.lax.dynamic_slice_in_dim(hidden, number * rows, rows)
            labels = jax.lax.dynamic_slice_in_dim(y, number * rows, rows)
            wrong = h @ part - jax.nn.one_hot(labels - first * classes, classes)
            old = jax.lax.dynamic_slice_in_dim(slope, number * rows, rows)
            slope = jax.lax.dynamic_update_slice(slope, old + wrong @ part.T, (number * rows, 0))
            return slope, total + h.T @ wrong, value + jnp.sum(wrong**2) / BATCH

        slope, rise, value = so_far
        start = slope, jnp.zeros_like(part), jnp.zeros(())
        slope, own, more = jax.lax.fori_loop(0, BLOCKS, of_examples, start)
        rise = jax.lax.dynamic_update_slice(rise, own, (0, first * classes))
        return slope, rise, value + more

    start = jnp.zeros_like(hidden), jnp.zeros_like(params["out"]), jnp.zeros(())
    slope, rise, value = jax.lax.fori_loop(0, 4, of_classes, start)
    return updated(params, {"in": x.T @ (slope * (1 - hidden**2)), "out": rise}), value


def arguments(dtype: str = "float64") -> Any:
    random = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return (random.normal(size=shape) / shape[0] ** 0.5).astype(dtype)

    params = {"in": normal(WIDTH, WIDTH), "out": normal(WIDTH, CLASSES)}
    return params, normal(BATCH, WIDTH), random.integers(0, CLASSES, BATCH).astype("int32")


@pytest.mark.parametrize(
    ("step", "microbatches"),
    [
        (accumulated, 2),
        (accumulated, 16),
        (with_noise, 2),
        (with_noise, 4),
        (vocabulary_in_blocks, 2),
        (vocabulary_in_blocks, 8),
        (blocks_inside_a_loop, 8),
    ],
)
def test_results_equal_those_of_the_whole_loop(step: Step, microbatches: int) -> None:
    with jax.enable_x64(True):
        expected = jax.jit(step)(*arguments())
        wrapped = shardc.jit(step, donate_argnums=0, stages=1, microbatches=microbatches)
        args = arguments()
        plan = wrapped.lower(*args).plan().plan
        assert plan.num_microbatches == microbatches
        got = wrapped(*args)
    for own, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("microbatches", ["auto", BLOCKS])
def test_stages_share_blocks_that_cannot_be_joined(microbatches: Any) -> None:
    """Each microbatch takes one block, which draws numbers of its own; "auto" finds that number."""
    with jax.enable_x64(True):
        expected = jax.jit(with_noise)(*arguments())
        asked = {"stages": 2, "microbatches": microbatches, "mesh": (2,)}
        wrapped = shardc.jit(with_noise, donate_argnums=0, **asked)
        plan = wrapped.lower(*arguments()).plan().plan
        assert (plan.num_stages, plan.num_microbatches, plan.unmet) == (2, BLOCKS, ())
        got = wrapped(*arguments())
    for own, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-12, atol=1e-14)


def layers_inside(params: Any, x: jax.Array) -> Any:
    """Gradient accumulation over scanned layers, with an invariant term in every block's loss."""

    def loss(params: Any, x: jax.Array) -> jax.Array:
        layer = jax.checkpoint(lambda h, w: (h + jnp.tanh(h @ w), None))
        h, _ = jax.lax.scan(layer, x @ params["in"], params["layers"])
        return jnp.mean((h @ params["out"]) ** 2) + 0.01 * jnp.sum(params["out"] ** 2)

    def one(total: Any, block: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, block)
        return jax.tree.map(jnp.add, total, gradients), value

    gradients, values = jax.lax.scan(one, jax.tree.map(jnp.zeros_like, params), *in_blocks(x))
    return updated(params, gradients), values.mean()


@pytest.mark.parametrize(("stages", "microbatches", "schedule"), [(2, 2, "1f1b"), (4, 16, "zb-h1")])
def test_stages_share_the_layers_inside(stages: int, microbatches: int, schedule: str) -> None:
    def given() -> Any:
        params, x, _ = arguments()
        return {**params, "layers": np.stack([params["in"]] * 4)}, x

    with jax.enable_x64(True):
        expected = jax.jit(layers_inside)(*given())
        asked = {"stages": stages, "microbatches": microbatches, "schedule": schedule}
        wrapped = shardc.jit(layers_inside, donate_argnums=0, **asked)
        plan = wrapped.lower(*given()).plan().plan
        assert (plan.num_stages, plan.num_microbatches) == (stages, microbatches)
        again = shardc.jit(layers_inside, donate_argnums=0, plan=plan)
        for run in (wrapped, again)[: 2 if stages == 2 else 1]:
            got = run(*given())
            for own, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
                np.testing.assert_allclose(own, other, rtol=1e-12, atol=1e-14)


def test_blocks_leave_no_loop_in_a_stage() -> None:
    with jax.enable_x64(True):
        wrapped = shardc.jit(accumulated, donate_argnums=0, stages=2, microbatches=2)
        planned = wrapped.lower(*arguments()).plan()
        assert planned.plan.num_stages == 2
        assert not any("stablehlo.while" in program_text(p) for p in planned.executable.programs)

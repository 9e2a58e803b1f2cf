"""A plan that was just made is never refused by the program that it was made for."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shardc
from tests.py.fuzz.kinds import KINDS
from tests.py.fuzz.runs import check_plan
from tests.py.table import CLUSTER

RANDOM = np.random.default_rng(0)
W = (RANDOM.normal(size=(8, 8)) * 0.3).astype(np.float32)
X = RANDOM.normal(size=(16, 8)).astype(np.float32)
Y = RANDOM.normal(size=(16, 8)).astype(np.float32)


def learn(w: Any, z: Any) -> Any:
    """What an online learner does with one example."""
    return w - 0.1 * jnp.outer(jnp.tanh(z @ w), z)


def online(w: Any, x: Any) -> Any:
    return lax.scan(lambda w, z: (learn(w, z), (z @ w).sum()), w, x)


def backwards(w: Any, x: Any) -> Any:
    return lax.scan(lambda w, z: (learn(w, z), z @ w), w, x, reverse=True)


def pairs(w: Any, x: Any, y: Any) -> Any:
    def each(w: Any, pair: Any) -> Any:
        miss = jnp.tanh(pair[0] @ w) - pair[1]
        return w - 0.1 * jnp.outer(miss, pair[0]), (miss**2).sum()

    return lax.scan(each, w, (x, y))


def two_learners(w: Any, x: Any) -> Any:
    def each(both: Any, z: Any) -> Any:
        return (learn(both[0], z), 0.9 * both[1] + learn(both[1], z)), (z @ both[0] @ both[1]).sum()

    return lax.scan(each, (w, w), x)


def counted(w: Any, x: Any) -> Any:
    return lax.fori_loop(0, 16, lambda i, w: learn(w, x[i]), w)


def counted_with_rows(w: Any, x: Any) -> Any:
    def each(i: Any, carried: Any) -> Any:
        w, rows = carried
        return learn(w, x[i]), rows.at[i].set(x[i] @ w)

    return lax.fori_loop(0, 16, each, (w, jnp.zeros_like(x)))


def while_there_are_rows(w: Any, x: Any) -> Any:
    def each(carried: Any) -> Any:
        i, w = carried
        return i + 1, learn(w, lax.dynamic_index_in_dim(x, i, 0, keepdims=False))

    return lax.while_loop(lambda carried: carried[0] < 16, each, (0, w))


def while_it_is_small(w: Any, x: Any) -> Any:
    def each(carried: Any) -> Any:
        i, w = carried
        return i + 1, learn(w, lax.dynamic_index_in_dim(x, i, 0, keepdims=False))

    def goes_on(carried: Any) -> Any:
        return (carried[0] < 16) & (jnp.abs(carried[1]).max() < 50)

    return lax.while_loop(goes_on, each, (0, w))


def branches(w: Any, x: Any) -> Any:
    def each(w: Any, z: Any) -> Any:
        return lax.cond(z.sum() > 0, learn, lambda w, z: 0.9 * w, w, z), (z @ w).sum()

    return lax.scan(each, w, x)


def switched(w: Any, x: Any) -> Any:
    def each(w: Any, numbered: Any) -> Any:
        i, z = numbered
        return lax.switch(i % 3, [learn, lambda w, z: w, lambda w, z: 0.9 * w], w, z), z @ w

    return lax.scan(each, w, (jnp.arange(16), x))


def scans_in_a_scan(w: Any, x: Any) -> Any:
    return lax.scan(online, w, x.reshape(4, 4, 8))


def several_times_each(w: Any, x: Any) -> Any:
    def each(w: Any, z: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, w: learn(w, z), w), z @ w

    return lax.scan(each, w, x)


def gradient_of_each(w: Any, x: Any, y: Any) -> Any:
    def each(w: Any, pair: Any) -> Any:
        loss = jax.value_and_grad(lambda w: ((jnp.tanh(pair[0] @ w) @ w - pair[1]) ** 2).sum())
        value, gradient = loss(w)
        return w - 0.1 * gradient, value

    return lax.scan(each, w, (x, y))


def momentum(state: Any, x: Any) -> Any:
    def each(state: Any, z: Any) -> Any:
        w, m = state
        return (w - 0.1 * m, 0.9 * m + jnp.outer(jnp.tanh(z @ w), z)), (z @ w).sum()

    return lax.scan(each, state, x)


def learning_to_learn(w: Any, x: Any) -> Any:
    return w - 0.1 * jax.grad(lambda w: (online(w, x)[1] ** 2).mean())(w)


def layers_and_then_examples(w: Any, layers: Any, x: Any) -> Any:
    h, _ = lax.scan(lambda h, layer: (jnp.tanh(h @ layer), None), x, layers)
    return online(w, h)


def products_behind_it(w: Any, x: Any) -> Any:
    last, losses = online(w, x)
    return last, jnp.tanh(x @ last) @ last, losses


def the_rows_again(w: Any, x: Any) -> Any:
    return *online(w, x), x.mean(0) @ w


def twice_over(w: Any, x: Any) -> Any:
    return online(online(w, x)[0], x)


def recurrent(w: Any, x: Any) -> Any:
    return lax.scan(lambda h, z: (jnp.tanh(h @ w + z), h @ w), x[0], x)


PROGRAMS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (online, (W, X)),
    (backwards, (W, X)),
    (pairs, (W, X, Y)),
    (two_learners, (W, X)),
    (counted, (W, X)),
    (counted_with_rows, (W, X)),
    (while_there_are_rows, (W, X)),
    (while_it_is_small, (W, X)),
    (branches, (W, X)),
    (switched, (W, X)),
    (scans_in_a_scan, (W, X)),
    (several_times_each, (W, X)),
    (gradient_of_each, (W, X, Y)),
    (momentum, ((W, 0 * W), X)),
    (learning_to_learn, (W, X)),
    (layers_and_then_examples, (W, np.stack([W] * 6), X)),
    (products_behind_it, (W, X)),
    (the_rows_again, (W, X)),
    (twice_over, (W, X)),
    (recurrent, (W, X)),
    (online, (W, X[:13])),
    (online, (W, X[:8])),
]


@pytest.mark.filterwarnings("ignore::shardc.RequestWarning")
@pytest.mark.parametrize(("step", "args"), PROGRAMS, ids=lambda each: getattr(each, "__name__", ""))
def test_loops_that_learn_from_each_example(step: Any, args: Any) -> None:
    planned = shardc.jit(step, cluster=CLUSTER, stages=2, microbatches=1).lower(*args).plan()
    assert {program.stage for program in planned.executable.programs} == set(
        range(planned.plan.num_stages)
    )


@pytest.mark.parametrize("step", [online, branches, learning_to_learn])
def test_their_numbers(step: Any) -> None:
    got = shardc.jit(step, cluster=CLUSTER, stages=2, microbatches=1)(W, X)
    for ours, theirs in zip(*map(jax.tree.leaves, (got, jax.jit(step)(W, X))), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_random_plans_of_random_steps(kind: str) -> None:
    check_plan(kind, 1)

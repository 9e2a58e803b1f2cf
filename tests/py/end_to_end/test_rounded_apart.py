"""Values that are equal on one device are never compared with copies that round in another way."""

import functools
from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from shardc.analysis.residency import selection
from shardc.passes import plan_residency
from tests.py.fuzz.layers import Step
from tests.py.fuzz.plans import Checked, Plan
from tests.py.fuzz.rounded_apart import difference

Params = list[jax.Array]
Loss = Callable[[Params, jax.Array], jax.Array]
ROWS, WIDTH, LAYERS = 8, 4, 2
PLANS = (
    (Plan(2, 2, (2,), cut_loops=True, seed=1, held=1), 1),
    (Plan(2, 2, (2,), cut_loops=True, seed=2, split_backward=True), -1),
)


def _keeping(*kept: Any) -> Callable[..., Any]:
    """A checkpoint that keeps what these primitives make, and makes all else again."""
    return functools.partial(jax.checkpoint, policy=lambda prim, *_, **__: prim in kept)


def _layers(layer: Callable[[jax.Array, jax.Array], jax.Array]) -> Loss:
    def loss(params: Params, x: jax.Array) -> jax.Array:
        for weight in params:
            x = layer(x, weight)
        return jnp.mean(x**2)

    return loss


def _scanned(layer: Callable[[jax.Array, jax.Array], jax.Array]) -> Loss:
    def loss(params: Params, x: jax.Array) -> jax.Array:
        x, _ = lax.scan(lambda h, weight: (layer(h, weight), None), x, jnp.stack(params))
        return jnp.mean(x**2)

    return loss


def _branched(layer: Callable[[jax.Array, jax.Array], jax.Array]) -> Loss:
    def loss(params: Params, x: jax.Array) -> jax.Array:
        for weight in params:
            x = lax.cond(weight[0, 0] > -9.0, layer, lambda h, _: h, x, weight)
        return jnp.mean(x**2)

    return loss


def _grouped(layer: Callable[[jax.Array, jax.Array], jax.Array]) -> Loss:
    """Loops in branches of a loop."""

    def loss(params: Params, x: jax.Array) -> jax.Array:
        def twice(h: jax.Array, weight: jax.Array) -> jax.Array:
            return lax.scan(lambda h, _: (layer(h, weight), None), h, length=2)[0]

        def group(h: jax.Array, weight: jax.Array) -> tuple[jax.Array, None]:
            return lax.cond(weight[0, 0] > -9.0, twice, lambda h, _: h, h, weight), None

        return jnp.mean(lax.scan(group, x, jnp.stack(params))[0] ** 2)

    return loss


@_keeping(lax.reduce_max_p)
def pooled(h: jax.Array, weight: jax.Array) -> jax.Array:
    """The gradient of a maximum asks which elements are equal to it."""
    z = jnp.tanh(h @ weight)
    return jnp.repeat(z.reshape(ROWS, -1, 2).max(2), 2, 1)


@_keeping(lax.reduce_max_p, lax.reduce_min_p)
def clipped(h: jax.Array, weight: jax.Array) -> jax.Array:
    z = jnp.tanh(h @ weight)
    return 1.1 * jnp.clip(z, z.min(1, keepdims=True), z.max(1, keepdims=True))


@_keeping(lax.sort_p)
def above_the_third(h: jax.Array, weight: jax.Array) -> jax.Array:
    z = jnp.tanh(h @ weight)
    third = lax.stop_gradient(jnp.sort(z, 1)[:, 2:3])
    return jnp.where(z >= third, z, 0.1 * z)


@_keeping(lax.reduce_max_p)
def below_the_largest(h: jax.Array, weight: jax.Array) -> jax.Array:
    """Compares with zero what is zero for the largest element."""
    z = jnp.tanh(h @ weight)
    return jnp.where(z - lax.stop_gradient(z.max(1, keepdims=True)) < 0, z, 0.1 * z)


def known_before(h: jax.Array, weight: jax.Array) -> jax.Array:
    """Compares with the maximum of what the checkpoint makes once more."""

    @jax.checkpoint
    def layer(h: jax.Array, weight: jax.Array, top: jax.Array) -> jax.Array:
        z = jnp.tanh(h @ weight)
        return jnp.where(z == top, z, 0.1 * jnp.sin(z))

    return layer(h, weight, lax.stop_gradient(jnp.tanh(h @ weight).max(1, keepdims=True)))


def _checked(loss: Loss) -> Checked:
    def step(params: Params, x: jax.Array, _: jax.Array) -> tuple[Params, jax.Array]:
        value, gradients = jax.value_and_grad(loss)(params, x)
        return [p - 0.1 * g for p, g in zip(params, gradients, strict=True)], value

    draw = np.random.default_rng(0)
    params = [draw.normal(size=(WIDTH, WIDTH)) for _ in range(LAYERS)]
    return Checked(Step("", step, (params, draw.normal(size=(ROWS, WIDTH)), np.arange(ROWS))))


@pytest.mark.parametrize("through", [_layers, _scanned, _branched, _grouped])
@pytest.mark.parametrize(
    "layer", [pooled, clipped, above_the_third, below_the_largest, known_before]
)
def test_a_checkpoint_that_keeps_the_maximum_compares_it_with_its_own_copy(
    through: Callable[..., Loss], layer: Callable[[jax.Array, jax.Array], jax.Array]
) -> None:
    checked = _checked(through(layer))
    for plan, sign in PLANS:
        apart = plan.split_backward and through in (_layers, _scanned)  # a branch is not split
        assert difference(checked, plan._replace(split_backward=apart), sign) == "", plan


@pytest.mark.parametrize("through", [_layers, _scanned])
@pytest.mark.parametrize(
    "layer", [pooled, clipped, above_the_third, below_the_largest, known_before]
)
def test_forward_values_that_are_kept_meet_no_copies(
    monkeypatch: pytest.MonkeyPatch,
    through: Callable[..., Loss],
    layer: Callable[[jax.Array, jax.Array], jax.Array],
) -> None:
    """Whatever is kept of what the checkpoint makes again."""
    random = Random(0)
    taken = []

    def some_values(costs: list[int], makers: Any, needed: Any) -> frozenset[int]:
        chosen = {v for v, cost in enumerate(costs) if cost <= selection.UNITS}
        taken.append(frozenset(v for v in chosen if random.random() < 0.5))
        return taken[-1]

    monkeypatch.setattr(selection, "kept_values", some_values)
    checked = _checked(through(layer))
    for seed in range(4):
        plan = Plan(1 + seed % 2, 2, (2,), cut_loops=True, seed=seed, keep=1.0)
        assert difference(checked, plan, 1 if seed < 2 else -1) == "", plan
    assert any(taken)


def _larger(size: jax.Array) -> Callable[[Any, jax.Array], jax.Array]:
    return lambda i, top: jnp.maximum(top, lax.dynamic_slice_in_dim(size, i, 1, 1))


def largest_of_a_loop(size: jax.Array, *_: jax.Array) -> jax.Array:
    return lax.fori_loop(0, WIDTH, _larger(size), jnp.full((ROWS, 1), -jnp.inf))


@pytest.mark.parametrize("largest", [lambda z: z.max(1, keepdims=True), largest_of_a_loop])
def test_a_maximum_that_is_kept_meets_no_copy_of_its_elements(
    monkeypatch: pytest.MonkeyPatch, largest: Callable[[jax.Array], jax.Array]
) -> None:
    """Wherever the forward pass is cut into what is kept and what is made again."""
    random = Random(0)

    def some_cuts(crossing: Any, left: Any, held: int) -> tuple[int, ...]:
        return tuple(sorted(random.sample(range(len(left) - 1), random.choice([1, 2, 3]))))

    def loss(params: Params, x: jax.Array) -> jax.Array:
        tops = []
        for weight in params:
            z = jnp.tanh(x @ weight)
            tops.append(lax.stop_gradient(largest(z)))
            x = jnp.where(z - tops[-1] < 0, jnp.sin(z), 0.5 * z)
        return jnp.mean(x**2) + jnp.mean(jnp.concatenate(tops, 1) ** 2 * x[:, :LAYERS])

    monkeypatch.setattr(plan_residency, "kept_cuts", some_cuts)
    checked = _checked(loss)
    for seed in range(6):
        plan = Plan(1, 2, (2,), cut_loops=False, seed=seed, held=1, split_backward=bool(seed % 2))
        assert difference(checked, plan, -1) == ""


@pytest.mark.parametrize("sign", [1, -1])
def test_a_maximum_that_a_loop_carries_meets_no_copy_of_its_elements(sign: int) -> None:
    """The way back makes them again, and the stages that share the loop each do."""

    def loss(params: Params, x: jax.Array) -> jax.Array:
        @jax.checkpoint
        def layer(carry: Any, weight: jax.Array) -> Any:
            h, top = carry
            size, h = jnp.tanh(x), jnp.tanh(h @ weight)
            h = jnp.where(size < top, jnp.sin(h), h)
            return (h, jnp.maximum(top, size.max(1, keepdims=True))), None

        start = x, jnp.full((ROWS, 1), -jnp.inf)
        return jnp.mean(lax.scan(layer, start, jnp.stack(params * 2))[0][0] ** 2)

    assert difference(_checked(loss), Plan(2, 2, (2,), cut_loops=True, seed=1), sign) == ""


def test_what_is_computed_before_the_microbatches_is_not_computed_again_in_them() -> None:
    """Parameters are sorted once; the least that is kept would not be as large as itself."""

    def pruned(h: jax.Array, weight: jax.Array) -> jax.Array:
        size = jnp.tanh(jnp.abs(weight))
        return jnp.tanh(h @ jnp.where(size >= jnp.sort(size.ravel())[WIDTH], weight, 0.0))

    checked = _checked(_layers(pruned))
    for sign in (1, -1):
        assert difference(checked, Plan(1, 2, (2,), cut_loops=False, seed=1), sign) == ""


def sorted_rows(size: jax.Array, *_: jax.Array) -> jax.Array:
    return jnp.sort(size, 1)[:, 2:3]


def largest_in_windows(size: jax.Array, *_: jax.Array) -> jax.Array:
    return lax.reduce_window(size, -jnp.inf, lax.max, (1, 2), (1, 1), "SAME")


def larger_than_activations(size: jax.Array, h: jax.Array, _: jax.Array) -> jax.Array:
    return jnp.maximum(size, 0.5 * h)


def largest_of_loops_in_a_loop(size: jax.Array, *_: jax.Array) -> jax.Array:
    def two(i: Any, top: jax.Array) -> jax.Array:
        return lax.fori_loop(i, i + 2, _larger(size), top)

    return lax.fori_loop(0, WIDTH - 1, two, jnp.full((ROWS, 1), -jnp.inf))


def stacked_by_a_loop(size: jax.Array, *_: jax.Array) -> jax.Array:
    """What is carried depends on what is carried beside it."""

    def each(carry: Any, i: Any) -> Any:
        top, before = carry
        row = lax.dynamic_index_in_dim(size, i, 1, keepdims=False)
        return (jnp.maximum(top, before), row), jnp.maximum(top, before)

    low = jnp.full(ROWS, -jnp.inf)
    return lax.scan(each, (low, low), jnp.arange(WIDTH))[1][-1][:, None]


def largest_of_a_branch(size: jax.Array, _: jax.Array, weight: jax.Array) -> jax.Array:
    return lax.cond(weight[0, 0] > -9, lambda: size.max(1), lambda: size.min(1))[:, None]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    "choose",
    [
        sorted_rows,
        largest_in_windows,
        larger_than_activations,
        largest_of_a_loop,
        largest_of_loops_in_a_loop,
        stacked_by_a_loop,
        largest_of_a_branch,
    ],
)
def test_what_a_stage_chooses_from_its_clone_meets_no_clone_of_another(
    choose: Callable[..., jax.Array], sign: int
) -> None:
    """Each stage computes cheap functions of the batch by itself, unless that could be seen."""

    def loss(params: Params, x: jax.Array) -> jax.Array:
        size = jnp.tanh(x)
        h = jnp.tanh(x @ params[0])
        top = lax.stop_gradient(choose(size, h, params[0]))
        h = jnp.tanh(h @ params[1])
        return jnp.mean(jnp.where(size < top, jnp.sin(h), h) ** 2)

    assert difference(_checked(loss), Plan(2, 2, (2,), cut_loops=False, seed=1), sign) == ""


@pytest.mark.parametrize("sign", [1, -1])
def test_rows_that_a_stage_looks_up_in_its_clone_meet_no_clone_of_another(sign: int) -> None:
    """Codes are made of the parameters before the microbatches, where they are sorted."""

    def loss(params: Params, x: jax.Array) -> jax.Array:
        codes = jnp.tanh(params[0])
        codes = jnp.where(codes >= jnp.sort(codes.ravel())[2], codes, 0.1 * codes)
        h = jnp.tanh(x @ params[0])
        rows = codes[jnp.argmax(h, 1)]
        h = jnp.tanh((h + rows) @ params[1])
        hit = (rows[:, None] == codes[None]).all(2)
        return jnp.mean(jnp.where(hit, jnp.sin(h), h) ** 2)

    assert difference(_checked(loss), Plan(2, 2, (2,), cut_loops=False, seed=1), sign) == ""


def every_pair(rows: jax.Array) -> jax.Array:
    return _over_pairs(rows, rows, jnp.tanh)


def every_pair_with_stacked_rows(rows: jax.Array) -> jax.Array:
    """The inner loop reads what another one has made of what the outer one reads."""
    stacked = lax.scan(lambda _, row: (None, jnp.tanh(row)), None, rows)[1]
    return _over_pairs(rows, stacked, lambda row: row)


def _over_pairs(
    rows: jax.Array, others: jax.Array, made: Callable[[jax.Array], jax.Array]
) -> jax.Array:
    def outer(total: jax.Array, row: jax.Array) -> tuple[jax.Array, None]:
        mine = jnp.tanh(row)

        def inner(total: jax.Array, other: jax.Array) -> tuple[jax.Array, None]:
            return total + jnp.sum(jax.nn.relu(mine - made(other))), None

        return lax.scan(inner, total, others)[0], None

    return lax.scan(outer, jnp.zeros((), rows.dtype), rows)[0]


@pytest.mark.parametrize("loss", [every_pair, every_pair_with_stacked_rows])
def test_a_loop_and_one_inside_it_touch_two_rows_at_a_time(
    loss: Callable[[jax.Array], jax.Array],
) -> None:
    """Rows of one stack in two loops are no copies of each other."""
    checked = _checked(lambda params, x: loss(jnp.sin(x @ params[0])))
    assert checked.normalised_differs() == ""

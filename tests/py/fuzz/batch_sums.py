"""Random training steps in which work waits for sums over the whole batch."""

from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

ROWS, WIDTH = 8, 6
Layer = Callable[[Any, Any], tuple[Any, Any]]

# What is summed up over the rows of `h`.
SUMS: dict[str, Callable[[Any], Any]] = {
    "mean square": lambda h: jnp.mean(h**2),
    "logarithm": lambda h: jnp.log(1 + jnp.sum(h**2)),
    "sum": lambda h: jnp.sum(h) / 10,
    "means": lambda h: jnp.mean(h, 0),
    "product of means": lambda h: jnp.mean(h, 0) * jnp.mean(jnp.tanh(h), 0),
    "without gradient": lambda h: jax.lax.stop_gradient(jnp.mean(h**2)),
    "counts": lambda h: jnp.mean((h > 0) * 1.0, 0),
}
USES: dict[str, Callable[[Any, Any], Any]] = {
    "scaled": lambda h, s: h * (0.5 + s),
    "shifted": lambda h, s: jnp.tanh(h + s),
    "divided": lambda h, s: h / (1 + s * s),
}
LOSSES: dict[str, Callable[[Any], Any]] = {
    "itself": lambda value: value,
    "logarithm": lambda value: jnp.log(10 + value),
    "root": lambda value: jnp.sqrt(10 + value),
}


def random_step(random: Random) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A step `(weights, x, y) -> (new weights, loss)` in float64 and its arguments; x and y are the
    batch."""
    kinds = [_normalised, _scanned, _scanned, _over_time]
    chosen = [random.choice(kinds)(random) for _ in range(random.randint(1, 3))]
    last = LOSSES[random.choice(list(LOSSES))]
    numbers = np.random.default_rng(random.randrange(1 << 16))
    weights = [0.6 * numbers.standard_normal((count, WIDTH, WIDTH)) for count, _ in chosen]
    x, y = (0.6 * numbers.standard_normal((ROWS, WIDTH)) for _ in range(2))

    def step(weights: Any, x: Any, y: Any) -> Any:
        def loss(weights: Any) -> Any:
            h, extra = x, 0.0
            for w, (_, layer) in zip(weights, chosen, strict=True):
                h, more = layer(h, w)
                extra += more
            return last(jnp.mean((h - y) ** 2) + extra / 10)

        value, gradients = jax.value_and_grad(loss)(weights)
        return jax.tree.map(lambda w, g: w - g / 10, weights, gradients), value

    return step, (weights, x, y)


def _normalised(random: Random) -> tuple[int, Layer]:
    """A layer on what a sum over the batch of its input makes of that."""
    measure, use = _sum(random), _use(random)
    inner = _maybe_checkpoint(random, lambda h, s, w: jnp.tanh(use(h, s) @ w[0]))

    def layer(h: Any, w: Any) -> tuple[Any, Any]:
        s = measure(h)
        return inner(h, s, w), jnp.sum(s * s)

    return 1, layer


def _scanned(random: Random) -> tuple[int, Layer]:
    """Layers under `lax.scan`, each with a sum of its own that only the loss gets."""
    measure, outer, use = _sum(random), _sum(random), _use(random)
    outside, carried = random.random() < 0.3, random.random() < 0.5
    square, stopped = random.random() < 0.6, random.random() < 0.2

    def stack(h: Any, weights: Any) -> tuple[Any, Any]:
        whole = outer(h) if outside else None

        def one(h: Any, w: Any) -> tuple[Any, Any]:
            inner = use(h, whole) if outside else h
            odds = jax.nn.softmax(inner @ w)
            s = measure(odds)
            extra = jnp.sum(s * s if square else s)
            return h + jnp.tanh(odds @ w.T), jax.lax.stop_gradient(extra) if stopped else extra

        layer = checkpointed(one)
        if not carried:
            h, extras = jax.lax.scan(layer, h, weights)
            return h, jnp.sum(extras)

        def body(carry: Any, w: Any) -> tuple[Any, None]:
            h, extra = layer(carry[0], w)
            return (h, carry[1] + extra), None

        return jax.lax.scan(body, (h, jnp.zeros((), h.dtype)), weights)[0]

    checkpointed = jax.checkpoint if random.random() < 0.4 else lambda layer: layer
    return random.choice([2, 3]), stack


def _over_time(random: Random) -> tuple[int, Layer]:
    """A recurrent layer that adds up a sum over the batch of every tick."""
    measure, use = _sum(random), _use(random)
    used, stopped = random.random() < 0.5, random.random() < 0.5

    def layer(h: Any, w: Any) -> tuple[Any, Any]:
        def tick(carry: Any, _: None) -> tuple[Any, None]:
            h = jnp.tanh(carry[0] @ w[0])
            return (h, carry[1] + measure(h)), None

        (h, total), _ = jax.lax.scan(tick, (h, jnp.zeros_like(measure(h))), None, length=2)
        known = jax.lax.stop_gradient(total) if stopped else total
        return use(h, known) if used else h, jnp.sum(jnp.tanh(total) ** 2)

    return 1, layer


def _sum(random: Random) -> Callable[[Any], Any]:
    return SUMS[random.choice(list(SUMS))]


def _use(random: Random) -> Callable[[Any, Any], Any]:
    return USES[random.choice(list(USES))]


def _maybe_checkpoint(random: Random, layer: Callable[..., Any]) -> Callable[..., Any]:
    return jax.checkpoint(layer) if random.random() < 0.4 else layer

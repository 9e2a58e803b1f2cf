"""Random steps in which sums over the batch meet numbers of the state on the way to a result."""

from collections.abc import Callable
from random import Random
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

ROWS, WIDTH = 8, 4
Change = Callable[[Any, Any], Any]  # of a sum and the state

SOURCES: dict[str, Callable[[Any, Any], Any]] = {  # of a layer's output and the batch
    "sum": lambda h, x: jnp.sum(x, 0),
    "sum of squares": lambda h, x: jnp.sum(h * x, 0),
    "product": lambda h, x: h.T @ x,
    "other product": lambda h, x: x.T @ jnp.sin(h),
    "count": lambda h, x: jnp.sum((x > 0) * 1.0, 0),
    "loop": lambda h, x: lax.fori_loop(0, 3, lambda i, c: c + jnp.sum(x * i, 0), jnp.zeros(WIDTH)),
    "product in a loop": lambda h, x: lax.fori_loop(
        0, 2, lambda i, c: c + h.T @ (x * i), jnp.zeros((WIDTH, WIDTH))
    ),
}
# The last dim of a sum has `WIDTH` elements, as has the vector b of the state; c is a matrix.
CHANGES: dict[str, Change] = {
    "times a number": lambda t, s: t * s["a"],
    "over a number": lambda t, s: t / s["a"],
    "times a vector": lambda t, s: t * s["b"],
    "over a vector": lambda t, s: t / s["b"],
    "times a matrix": lambda t, s: t @ s["c"],
    "times bounded numbers": lambda t, s: t * jnp.tanh(s["b"]),
    "times a bounded matrix": lambda t, s: t @ jnp.clip(s["c"], -1, 1),
    "over bounded numbers": lambda t, s: t / jnp.maximum(s["b"], 1),
    "times a small exponential": lambda t, s: t * jnp.exp(-jnp.abs(s["b"])),
    "times a root": lambda t, s: t * lax.rsqrt(jnp.maximum(s["a"], 1)),
    "times a flag": lambda t, s: t * (s["b"] > 0),
    "times a quotient": lambda t, s: t * (1 / jnp.maximum(jnp.abs(s["a"]), 2)),
    "halved": lambda t, s: t / 2,
    "tripled": lambda t, s: t * 3,
    "negated": lambda t, s: -t,
    "reversed": lambda t, s: t[..., ::-1],
    "rolled": lambda t, s: jnp.roll(t, 1, -1),
    "shifted": lambda t, s: jnp.pad(t[..., 1:], [(0, 0)] * (t.ndim - 1) + [(0, 1)]),
    "transposed": lambda t, s: t.T,
    "summed": lambda t, s: jnp.broadcast_to(jnp.sum(t, -1, keepdims=True), t.shape),
    "rows picked": lambda t, s: t[..., jnp.array([1, 3, 3, 0])],
    "selected": lambda t, s: jnp.where(s["b"] > 0, t, 0),
    "selected and negated": lambda t, s: jnp.where(s["b"] > 0, t, -t),
    "in 16 bits": lambda t, s: t.astype(jnp.float16).astype(t.dtype),
    "in brain floats": lambda t, s: t.astype(jnp.bfloat16).astype(t.dtype),
    "in a loop": lambda t, s: lax.fori_loop(0, 2, lambda i, c: c + t * s["a"], jnp.zeros_like(t)),
    "again and again": lambda t, s: lax.fori_loop(0, 2, lambda i, c: c * s["a"] + t, t * 0),
}
ENDS: dict[str, Change] = {
    "itself": lambda t, s: t,
    "squared": lambda t, s: t * t,
    "flags": lambda t, s: jnp.isfinite(t),
    "over itself": lambda t, s: t / jnp.sum(t),
    "update": lambda t, s: s["b"] - 0.1 * t,
}


def random_step(random: Random) -> Callable[..., Any]:
    """A step `(state, x) -> (state, results)` on what `arguments` gives; its work is a product."""
    chains = [_chain(random) for _ in range(random.randint(2, 4))]

    def step(state: Any, x: Any) -> Any:
        h = jnp.tanh(x @ state["w"])
        return state, [jnp.mean(jnp.sin(h @ state["w"]))] + [c(h, x, state) for c in chains]

    return step


def arguments(random: Random) -> tuple[Any, ...]:
    """Numbers around one, in the shapes that the step takes."""
    numbers = np.random.default_rng(random.randrange(1 << 16))
    shapes = {"a": (), "b": (WIDTH,), "c": (WIDTH, WIDTH), "w": (WIDTH, WIDTH)}
    state = {
        name: np.asarray(numbers.standard_normal(shape), np.float32)
        for name, shape in shapes.items()
    }
    return state, numbers.standard_normal((ROWS, WIDTH)).astype(np.float32)


def _chain(random: Random) -> Callable[[Any, Any, Any], Any]:
    """A sum, or two that are added, changed several times."""
    parts = [
        (SOURCES[random.choice(list(SOURCES))], _changes(random))
        for _ in range(random.choice([1, 1, 2]))
    ]
    changes, end = _changes(random), ENDS[random.choice(list(ENDS))]

    def chain(h: Any, x: Any, state: Any) -> Any:
        total: Any = 0.0
        for source, own in parts:
            total = total + own(source(h, x), state)
        return end(changes(total, state), state)

    return chain


def _changes(random: Random) -> Change:
    chosen = [CHANGES[random.choice(list(CHANGES))] for _ in range(random.randint(0, 3))]

    def changes(total: Any, state: Any) -> Any:
        for change in chosen:
            total = change(total, state)
        return total

    return changes

"""Random training steps out of layers: a layer maps [rows, WIDTH] to the same, with weights, or
[rows, tokens, WIDTH].

A kind is a list of layer makers. Each maker draws its choices and gives the layer with the number
of its weights; what it chose stands in `Layer.text`, for whoever reads a failure.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

WIDTH = 4
CLASSES = 8


@dataclass(frozen=True)
class Layer:
    """`apply(h, weights, labels)` gives the next h, or (h, something to add to the loss).

    Attributes:
        text: what was chosen.
        weights: how many [WIDTH, WIDTH] weights it takes.
    """

    text: str
    weights: int
    apply: Callable[..., Any]


Maker = Callable[[Random, int], Layer]  # given the number of rows


@dataclass(frozen=True)
class Step:
    """A step of gradient descent and its arguments.

    Attributes:
        function: (state, x, labels) -> (new state, loss, h of each row).
        args: the state, and the batch: floats [rows, (tokens,) WIDTH], integers [rows].
    """

    text: str
    function: Callable[..., Any]
    args: tuple[Any, ...]


def dense(random: Random, rows: int) -> Layer:
    """What stands between the others, so that there are stages to cut."""
    return Layer("dense", 1, lambda h, w, y: jnp.tanh(h @ w[0]))


def random_step(
    random: Random,
    makers: Sequence[Maker],
    rows: int,
    dtype: str = "float64",
    tokens: int = 0,
    pieces: int = 0,
) -> Step:
    """One or two layers of `makers` between dense ones; sums of squares, or per-row losses.

    Args:
        tokens: of a sequence in each row; 0: there are none.
        pieces: of the batch, of which the step adds up gradients in a loop of its own; 0: it has
            none.
    """
    chosen = [dense(random, rows)]
    for _ in range(random.choice([1, 1, 2])):
        chosen += [random.choice(list(makers))(random, rows), dense(random, rows)]
    label_type = random.choice(["int32", "uint8", "int8", "int64", "uint32"])
    loss_kind = random.choice(["mean", "sum", "log"])
    numbers = np.random.default_rng(random.randrange(1 << 16))

    def weight() -> np.ndarray:
        return (0.6 * numbers.standard_normal((WIDTH, WIDTH))).astype(dtype)

    state = {
        "w": [[weight() for _ in range(layer.weights)] for layer in chosen],
        "count": np.int32(0),
    }
    shape = (rows, tokens, WIDTH) if tokens else (rows, WIDTH)
    x = (0.6 * numbers.standard_normal(shape)).astype(dtype)
    labels = numbers.integers(0, CLASSES, rows).astype(label_type)

    def function(state: Any, x: Any, y: Any) -> Any:
        def loss_of(weights: Any, x: Any, y: Any) -> Any:
            h, extra = x, jnp.zeros((), dtype)
            for layer, w in zip(chosen, weights, strict=True):
                found = layer.apply(h, w, y)
                h, more = found if isinstance(found, tuple) else (found, 0)
                extra = extra + jnp.sum(jnp.asarray(more, dtype))
            each = jnp.sum(h * h, tuple(range(1, h.ndim)))
            whole = {"mean": jnp.mean, "sum": jnp.sum, "log": lambda v: jnp.log(1 + jnp.sum(v))}
            return whole[loss_kind](each) + extra / 10, h

        graded = jax.value_and_grad(loss_of, has_aux=True)
        if pieces:
            cut = [each.reshape(pieces, -1, *each.shape[1:]) for each in (x, y)]
            zero = jnp.zeros((), dtype), jax.tree.map(jnp.zeros_like, state["w"])

            def add(total: Any, piece: Any) -> Any:
                (loss, h), gradients = graded(state["w"], *piece)
                return jax.tree.map(jnp.add, total, (loss.astype(dtype), gradients)), h

            (loss, gradients), h = jax.lax.scan(add, zero, cut)
            h = h.reshape(x.shape)
        else:
            (loss, h), gradients = graded(state["w"], x, y)
        weights = jax.tree.map(lambda w, g: w - (0.1 * g).astype(w.dtype), state["w"], gradients)
        return {"w": weights, "count": state["count"] + 1}, loss, h

    how = f"{rows} rows, {tokens} tokens, {pieces} pieces, labels {label_type}, {loss_kind}: "
    text = how + "; ".join(layer.text for layer in chosen)
    return Step(text, function, (state, x, labels))

"""Random training steps: a random function of one row and of parameters, mapped over a batch."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.py.fuzz.draft import Draft, Source, Value, random_array
from tests.py.fuzz.generate import add_random_line

BATCH = 8


@dataclass(frozen=True)
class Training:
    """A step of gradient descent around `row`, a function of one row of the batch.

    Attributes:
        shared: for each argument of `row`, whether it is a parameter (no batch dim).
    """

    row: Source
    shared: tuple[bool, ...]

    def __str__(self) -> str:
        return f"{self.row}\n# parameters: {self.shared}"

    def arguments(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """State and batch."""
        random = np.random.default_rng(0)
        state, batch = [], []
        for value, is_shared in zip(self.row.arguments, self.shared, strict=True):
            if is_shared:
                state.append(random_array(random, value))
            else:
                whole = Value(value.name, (BATCH, *value.shape), value.dtype)
                batch.append(random_array(random, whole))
        return state, batch

    def step(self) -> Callable[..., Any]:
        """(state, batch) -> new state, loss, what `row` gives for each row of the batch."""
        row, shared = self.row.function(), self.shared

        def loss_of(state: Any, batch: Any) -> Any:
            parameters, data = iter(state), iter(batch)
            args = [next(parameters) if is_shared else next(data) for is_shared in shared]
            axes = [None if is_shared else 0 for is_shared in shared]
            rows = jax.vmap(row, in_axes=axes)(*args)
            return sum(jnp.mean(jnp.sin(r.astype(float))) for r in rows), rows

        def step(state: Any, batch: Any) -> Any:
            (loss, rows), gradients = jax.value_and_grad(loss_of, has_aux=True)(state, batch)
            return [p - 0.1 * g for p, g in zip(state, gradients, strict=True)], loss, rows

        return step


def random_training(random: Random, num_lines: int = 5) -> Training | None:
    """A step of at least three layers; None where JAX has no derivative."""
    draft = Draft(random)
    x = draft.argument((draft.choice([2, 4]), 4))
    for layer in range(3):
        weight = draft.argument((x.shape[-1], draft.choice([4, 8])))
        dense = draft.add(f"jnp.tanh({x.name} @ {weight.name})")
        assert dense is not None
        x = dense
        for _ in range(num_lines // 3 + (layer < num_lines % 3)):
            added = add_random_line(draft)
            if added is not None and added.is_float and added.rank >= 1 and draft.chance(0.6):
                x = added
    row = draft.finished()
    shared = [
        value.is_float and (value.name in weights(row) or draft.chance(0.5))
        for value in row.arguments
    ]
    training = Training(row, (False, *shared[1:]))
    try:
        jax.eval_shape(training.step(), *training.arguments())
    except (NotImplementedError, ValueError) as error:  # JAX has no derivative
        if isinstance(error, ValueError) and "not supported" not in str(error):
            raise
        return None
    return training


def weights(row: Source) -> set[str]:
    """The arguments that a line multiplies a layer's input with."""
    return {line.split(" @ ")[1].rstrip(")") for line in row.lines if " @ a" in line}

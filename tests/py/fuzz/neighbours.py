"""Random neighbours of wrong programs: narrow counts as indices, and as counters of loops."""

from collections.abc import Callable
from random import Random
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32")
COLUMNS = 2
Step = Callable[..., Any]


def indices(random: Random) -> tuple[Step, tuple[Any, ...]]:
    """A step that uses a count as indices, once or twice as far as its type goes or nearly."""
    kind = random.choice((*INTEGERS[:3], "bfloat16"))
    end = {"uint8": 256, "int8": 128, "uint16": 256, "bfloat16": 257}[kind]
    rows = end + random.choice((-8, -1, 0, 1, 44))
    first, factor = random.choice((0, 0, 0, 1, 7)), random.choice((1, 1, 1, 2))
    through = random.choice((None, None, None, "bfloat16", "float16", "int16", "uint8"))
    is_iota, to = random.random() < 0.5, random.choice(("int32", "uint8", "int16", "uint32"))
    use = random.choice(("gather", "set", "add", "one hot", "narrow one hot"))

    def step(w: Any, x: Any, ids: Any) -> Any:
        make = lax.iota(kind, rows) if is_iota else jnp.arange(rows).astype(kind)
        count = (make + np.asarray(first, kind)) * np.asarray(factor, kind)
        if through:
            count = count.astype(through)
        if factor > 1 or first:
            count = count // np.asarray(factor, count.dtype) - np.asarray(first, count.dtype)
        h, at = x[:rows] @ w, count.astype(to)
        columns = jnp.arange(rows) % COLUMNS
        match use:
            case "gather":
                return w, h[at, columns]
            case "set":
                return w, h.at[at, 0].set(-1.0, unique_indices=False)
            case "add":
                return w, h.at[at].add(1.0)
            case "one hot":
                return w, (ids[:, None] == at.astype(jnp.int32)).astype(h.dtype) @ h
            case _:
                return w, (ids[:, None].astype(at.dtype) == at).astype(h.dtype) @ h

    draw = np.random.default_rng(random.randrange(1 << 16))
    x, w = (draw.normal(size=shape).astype("float32") for shape in ((310, 2), (2, COLUMNS)))
    return step, (w, x, draw.integers(0, 310, 16).astype(np.int32))


def loops(random: Random) -> tuple[Step, tuple[Any, ...]]:
    """A step that sums up what blocks of the batch give; its counter may wrap around."""
    kind = random.choice(INTEGERS)
    limits = np.iinfo(kind)
    blocks, size = random.choice((4, 6, 8)), random.choice((1, 1, 2))
    change = random.choice((1, 1, 1, 2, 3, -1))
    near = limits.max - random.randrange(2 * blocks), limits.min + random.randrange(blocks)
    first = random.choice((0, 0, *near))
    numbers = np.array([first + change * i for i in range(blocks + 1)]).astype(kind)
    in_type, scanned = random.random() < 0.7, random.random() < 0.5

    def step(w: Any, x: Any) -> Any:
        def given(i: Any) -> Any:
            if in_type:
                block = lax.div(
                    ((i - numbers[0]) * np.asarray(np.sign(change)).astype(kind)).astype(kind),
                    np.asarray(abs(change)).astype(kind),
                ).astype(jnp.int32)
            else:
                block = lax.div(i.astype(jnp.int32) - np.array(first).astype(np.int32), change)
            rows = lax.dynamic_slice_in_dim(x, block * size, size)
            return jnp.sum(jnp.tanh(rows @ w)) * (2 + block)

        if scanned:
            table = lax.iota(kind, blocks) * np.asarray(change).astype(kind) + numbers[0]
            return w, lax.scan(lambda a, i: (a + given(i), None), jnp.float32(0), table)[0]
        return w, lax.while_loop(
            lambda c: c[0] != numbers[-1],
            lambda c: ((c[0] + np.asarray(change).astype(kind)).astype(kind), c[1] + given(c[0])),
            (jnp.asarray(numbers[0]), jnp.float32(0)),
        )[1]

    draw = np.random.default_rng(random.randrange(1 << 16))
    w, x = (draw.normal(size=shape).astype("float32") for shape in ((2, 2), (blocks * size, 2)))
    return step, (w, x)

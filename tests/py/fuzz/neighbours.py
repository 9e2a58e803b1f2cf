"""Random neighbours of wrong programs: narrow counts as indices, and as counters of loops."""

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32")
COLUMNS = 2
Step = Callable[..., Any]


class _Count(NamedTuple):
    """A count of rows in a narrow type, shifted and scaled and brought back."""

    kind: str
    rows: int
    first: int
    factor: int
    through: str | None
    to: str

    def of(self, numbers: Any) -> Any:
        """The count, from `numbers` in its own type."""
        count = (numbers + np.asarray(self.first, self.kind)) * np.asarray(self.factor, self.kind)
        if self.through:
            count = count.astype(self.through)
        if self.factor > 1 or self.first:
            count = count // np.asarray(self.factor, count.dtype)
            count = count - np.asarray(self.first, count.dtype)
        return count.astype(self.to)

    @property
    def is_right(self) -> bool:
        """Whether it still counts the rows."""
        with np.errstate(over="ignore"):
            return np.array_equal(
                self.of(np.arange(self.rows).astype(self.kind)), np.arange(self.rows)
            )


def _count(random: Random) -> _Count:
    kind = random.choice((*INTEGERS[:3], "bfloat16"))
    end = {"uint8": 256, "int8": 128, "uint16": 256, "bfloat16": 257}[kind]
    rows = end + random.choice((-8, -1, 0, 1, 44))
    first, factor = random.choice((0, 0, 0, 1, 7)), random.choice((1, 1, 1, 2))
    through = random.choice((None, None, None, "bfloat16", "float16", "int16", "uint8"))
    to = random.choice(("int32", "uint8", "int16", "uint32"))
    if "bfloat16" in (kind, through) or through == "float16":  # their quotients are unknown
        first, factor = 0, 1
    return _Count(kind, rows, first, factor, through, to)


def indices(random: Random) -> tuple[Step, tuple[Any, ...]]:
    """A step that uses a count as indices, which its types do not hold."""
    drawn = _count(random)
    while drawn.is_right:
        drawn = _count(random)
    rows, is_iota = drawn.rows, random.random() < 0.5
    use = random.choice(("gather", "set", "add", "one hot", "narrow one hot"))

    def step(state: Any, x: Any, ids: Any) -> Any:
        counted = lax.iota(drawn.kind, rows) if is_iota else jnp.arange(rows).astype(drawn.kind)
        at, columns = drawn.of(counted), jnp.arange(rows) % COLUMNS
        w, table = state
        h = x[:rows] @ w
        match use:
            case "gather":
                return state, h[at, columns]
            case "set":
                return state, h.at[at, 0].set(-1.0, unique_indices=False)
            case "add":
                return state, h.at[at, columns].add(1.0)
            case "one hot":
                return state, (ids[:, None] == at.astype(jnp.int32)).astype(h.dtype) @ table
            case _:
                return state, (ids[:, None].astype(at.dtype) == at).astype(h.dtype) @ table

    draw = np.random.default_rng(random.randrange(1 << 16))
    shapes = (310, 2), (2, COLUMNS), (rows, 2)
    x, w, table = (draw.normal(size=shape).astype("float32") for shape in shapes)
    return step, ((w, table), x, np.arange(rows - 64, rows, dtype=np.int32))


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


def astray(random: Random) -> tuple[Step, tuple[Any, ...]]:
    """A step that takes or writes blocks of the batch by a count that its type does not hold: some
    iteration of one half of the batch comes to a block of the other half."""
    half, taken = np.zeros(1, bool), np.zeros(1, bool)
    while np.array_equal(half, taken):
        kind = random.choice((*INTEGERS[:4], "bfloat16", "float16"))
        blocks, size = random.choice((4, 6, 8)), random.choice((1, 1, 2))
        change = random.choice((1, 1, 2, 3))
        first = {"bfloat16": 257, "float16": 2049}.get(kind) or np.iinfo(kind).max + 1
        first -= random.randrange(1, change * blocks)
        held = (first + change * np.arange(blocks)).astype(kind).astype(int)
        half = 2 * np.arange(blocks) >= blocks
        taken = 2 * ((held - first) // change).clip(0, blocks - 1) >= blocks
    made = random.choice(("iota", "converted", "own") if kind[0] == "i" else ("iota", "converted"))
    use = random.choice(("sum", "stack", "write"))

    def step(w: Any, x: Any) -> Any:
        start, by = np.asarray(first, kind), np.asarray(change, kind)
        table = lax.iota(kind, blocks) * by + start
        if made == "converted":
            table = (lax.iota("int32", blocks) * change + first).astype(kind)

        def body(carry: Any, given: Any) -> Any:
            total, written, counter = carry
            i, own = given
            at = lax.div((counter if made == "own" else i).astype(jnp.int32) - first, change)
            read = own if use == "write" else at
            rows = jnp.tanh(lax.dynamic_slice_in_dim(x, read * size, size) @ w)
            if use == "write":
                written = lax.dynamic_update_slice_in_dim(written, rows, at * size, 0)
            total = total + jnp.sum(rows) * (2 + own)
            return (total, written, counter + by), rows if use == "stack" else None

        carry = jnp.float32(0), jnp.zeros_like(x), jnp.asarray(start)
        counted = table, jnp.arange(blocks, dtype=jnp.int32)
        (total, written, _), stacked = lax.scan(body, carry, counted)
        return w, total, written if use == "write" else stacked

    draw = np.random.default_rng(random.randrange(1 << 16))
    w, x = (draw.normal(size=shape).astype("float32") for shape in ((2, 2), (blocks * size, 2)))
    return step, (w, x)

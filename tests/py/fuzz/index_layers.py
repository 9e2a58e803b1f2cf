"""Layers that index: by the position in the batch in every element type, by labels, twice."""

from collections.abc import Callable
from random import Random
from typing import Any

import jax.numpy as jnp
from jax import lax

from tests.py.fuzz.layers import CLASSES, WIDTH, Layer

NARROW = ("int4", "uint4", "int8", "uint8", "int16", "uint16", "int32", "uint32")
FLOATS = ("bfloat16", "float16", "float8_e4m3fn", "float32", "float64")


# Integers from 0 on that a type counts one by one.
_COUNTS = {"int4": 8, "uint4": 16, "int8": 128, "uint8": 256, "bfloat16": 257}
_COUNTS |= {"float16": 2049, "float8_e4m3fn": 17}


def _counted(random: Random, rows: int, types: tuple[str, ...]) -> tuple[str, Callable[[], Any]]:
    """The positions 0, 1, ... of the rows, as some type counts them, and what is done to them.

    Every other time the type is one that cannot count so far.
    """
    short = [each for each in types if _COUNTS.get(each, rows) < rows]
    first = random.choice(short if short and random.random() < 0.5 else types)
    second = random.choice([*["same"] * 5, "int32", "uint8", "int8", "int64", "bfloat16"])
    others = ["i + 1", "i // 2", "i % 5", "i * 3", "n - 1 - i", "clip"]
    what = random.choice([*["i"] * 12, *others])
    how = random.choice(["iota", "iota", "converted", "cumsum"])

    def positions() -> Any:
        if how == "cumsum":
            i = jnp.cumsum(jnp.ones(rows, first), dtype=jnp.dtype(first)) - jnp.asarray(1, first)
        elif how == "iota":
            i = lax.iota(jnp.dtype(first), rows)
        else:
            i = lax.iota(jnp.int32, rows).astype(first)
        if second != "same":
            i = i.astype(second)
        one, n = jnp.asarray(1, i.dtype), jnp.asarray(rows % 100, i.dtype)
        i = {
            "i": lambda: i,
            "i + 1": lambda: i + one,
            "i // 2": lambda: i // (one + one),
            "i % 5": lambda: i % (one + one + one + one + one),
            "i * 3": lambda: i * (one + one + one),
            "n - 1 - i": lambda: n - one - i,
            "clip": lambda: jnp.clip(i, one, n),
        }[what]()
        return i

    return f"{how} {first} as {second}, {what}", positions


def _as_index(i: Any) -> Any:
    """Indices must be integers, and JAX wraps signed ones: these must hold the number of rows."""
    signed = not jnp.issubdtype(i.dtype, jnp.unsignedinteger)
    return i.astype(jnp.int32) if signed else i


def pick(random: Random, rows: int) -> Layer:
    """h[i, y]: one number of each row, by narrow positions and labels."""
    text, positions = _counted(random, rows, NARROW)
    mode = random.choice(["clip", "fill"])

    def apply(h: Any, w: Any, y: Any) -> Any:
        i = _as_index(positions())
        picked = h.at[i, y % WIDTH].get(mode=mode)
        return h * w[0][0] + jnp.nan_to_num(picked)[:, None]

    return Layer(f"h[{text}, y] {mode}", 1, apply)


def float_positions(random: Random, rows: int) -> Layer:
    """The same by an iota of floats, made an integer or not."""
    text, positions = _counted(random, rows, FLOATS)
    use = random.choice(["index", "weight", "mask", "one hot"])

    def apply(h: Any, w: Any, y: Any) -> Any:
        i = positions()
        if use == "index":
            return h @ w[0] + jnp.take(h, _as_index(i), axis=0, mode="clip")
        if use == "weight":
            return jnp.tanh(h @ w[0]) * (i.astype(h.dtype) / rows)[:, None]
        if use == "mask":
            return jnp.where((i < jnp.asarray(5, i.dtype))[:, None], h @ w[0], h)
        hot = (i[:, None] == jnp.arange(WIDTH, dtype=i.dtype)).astype(h.dtype)
        return h + hot @ w[0]

    return Layer(f"{use} of {text}", 1, apply)


def place(random: Random, rows: int) -> Layer:
    """Rows are written back by narrow positions."""
    text, positions = _counted(random, rows, NARROW)
    how = random.choice(["set", "add", "max", "min"])
    unique = how == "set"  # which of two equal positions wins is nobody's promise

    def apply(h: Any, w: Any, y: Any) -> Any:
        i = _as_index(positions())
        i = jnp.arange(rows, dtype=i.dtype) if unique else i
        new = h @ w[0]
        if unique and jnp.iinfo(i.dtype).max < rows:
            i = jnp.arange(rows)
        return getattr(h.at[i], how)(new, mode="drop")

    return Layer(f"h.at[{text}].{how}", 1, apply)


def look_up(random: Random, rows: int) -> Layer:
    """Rows of a table by one-hot products, whose iota is narrow or a float."""
    kind = random.choice([*NARROW, *FLOATS])
    compared = random.choice(["int32", kind])
    size = random.choice([CLASSES, 20, 300])

    def apply(h: Any, w: Any, y: Any) -> Any:
        table = jnp.tile(w[0], (-(-size // WIDTH), 1))[:size]
        ids = (y.astype(jnp.int32) * 37) % size
        columns = lax.iota(jnp.int32, size).astype(kind).astype(compared)
        hot = (ids.astype(compared)[:, None] == columns).astype(h.dtype)
        return h + hot @ table

    return Layer(f"one hot of {size} by {kind} as {compared}", 1, apply)


def duplicates(random: Random, rows: int) -> Layer:
    """Scatters in which several rows of the batch go to one place, and gathers back."""
    how = random.choice(["add", "add", "max", "min"])
    by = random.choice(["y", "position // 2", "position % 3", "y, position % 2"])
    start = random.choice(["zeros", "weight", "ones"])
    kind = random.choice(["int32", "uint8", "int8"])

    def apply(h: Any, w: Any, y: Any) -> Any:
        shape = (CLASSES, 2, WIDTH) if "," in by else (max(CLASSES, rows), WIDTH)
        base = {"zeros": jnp.zeros, "ones": jnp.ones}.get(start, lambda s, t: 0.5 * jnp.ones(s, t))
        whole = base(shape, h.dtype)
        if start == "weight":
            whole = whole + w[0][0]
        position = jnp.arange(rows)
        index = {
            "y": (y.astype(kind),),
            "position // 2": (position // 2,),
            "position % 3": (position % 3,),
            "y, position % 2": (y, position % 2),
        }[by]
        new = getattr(whole.at[index], how)(jnp.tanh(h @ w[0]))
        return h + jnp.tanh(new)[index], jnp.sum(jnp.tanh(new) ** 2) / rows

    return Layer(f"{start}.at[{by}].{how} by {kind}", 1, apply)


def segments(random: Random, rows: int) -> Layer:
    """Sums, counts and slices by labels and narrow positions."""
    what = random.choice(["segment_sum", "bincount", "dynamic_slice", "along"])
    kind = random.choice(NARROW[2:])

    def apply(h: Any, w: Any, y: Any) -> Any:
        y = (y % WIDTH).astype(kind)
        if what == "segment_sum":
            sums = jnp.zeros((WIDTH, WIDTH), h.dtype).at[y].add(h)
            return h @ w[0] + sums[y]
        if what == "bincount":
            return h * w[0][0] / jnp.zeros(WIDTH, h.dtype).at[y].add(1)[y][:, None]
        if what == "dynamic_slice":
            row = lax.dynamic_slice(h @ w[0], (y[0], jnp.zeros_like(y[0])), (1, WIDTH))
            return h + row
        return h + jnp.take_along_axis(h @ w[0], y[:, None], 1)

    return Layer(f"{what} by {kind}", 1, apply)

"""Indices, ids and counters of narrow types, on their way through floats: equal to `jax.jit`."""

from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shardc
from shardc.errors import RequestWarning
from shardc.passes import plan_shardings
from tests.py.fuzz.random_solver import random_solver
from tests.py.table import CLUSTER

COLUMNS = 6
# Element type -> the first number that it does not hold, or not exactly.
INTEGERS = {"uint8": 256, "int8": 128, "uint16": 1 << 16, "int16": 1 << 15}
FLOATS = {"bfloat16": 257, "float16": 2049}


def makers(dtype: str) -> dict[str, Callable[[int], Any]]:
    """Ways to make n indices in some type."""
    number = jnp.dtype(dtype).type
    ways = {
        "iota": lambda n: lax.iota(dtype, n),
        "converted": lambda n: jnp.arange(n).astype(dtype),
        "sum": lambda n: lax.iota(dtype, n) + number(3) - number(3),
        "beside": lambda n: lax.iota(dtype, n) + number(3),
        "product": lambda n: lax.div(lax.iota(dtype, n) * number(2), number(2)),
        "rest": lambda n: lax.rem(lax.iota(dtype, n), number(120)),
        "by bfloat16": lambda n: jnp.arange(n).astype(dtype).astype(jnp.bfloat16).astype(jnp.int32),
    }
    if dtype in FLOATS:
        ways = {name: lambda n, way=way: way(n).astype(jnp.int32) for name, way in ways.items()}
    return ways


def cases(dtypes: tuple[str, ...]) -> Iterator[tuple[str, int, Callable[[int], Any]]]:
    """(name, n, a way to make n indices): as many as the type holds, and more."""
    for dtype in dtypes:
        end = {**INTEGERS, **FLOATS}[dtype]
        sizes = (end, end + 44) if end < 3000 else (300,)
        for name, way in makers(dtype).items():
            for n in sizes:
                yield f"{dtype} {name} {n}", n, way


def indexed(dtypes: tuple[str, ...]) -> Callable[..., Any]:
    """A step that uses the indices of all cases in all ways."""

    def step(table: Any, x: Any, y: Any, ids: Any) -> Any:
        found = {}
        for name, n, way in cases(dtypes):
            rows = way(n)
            small = rows if rows.dtype.kind == "u" else rows.astype(jnp.int32)
            columns, h = y[:n].astype(small.dtype), x[:n] * 2.0
            found[name] = {
                "gather": h[small, columns],
                "set": h.at[small, columns].set(-1.0),
                "parameter": table[small, columns],
                "one hot": (ids[:, None] == rows.astype(jnp.int32)).astype(h.dtype) @ table[:n],
                "narrow one hot": (ids[:, None].astype(rows.dtype) == rows).astype(h.dtype)
                @ table[:n],
            }
        return table, found

    return step


@pytest.mark.slow
@pytest.mark.parametrize("dtypes", [("uint8", "int8"), ("bfloat16",), ("uint16",)], ids=", ".join)
def test_narrow_indices_equal_those_of_jit(dtypes: tuple[str, ...]) -> None:
    random = np.random.default_rng(0)
    with jax.enable_x64(True):
        args = (
            random.normal(size=(2200, COLUMNS)),
            random.normal(size=(2200, COLUMNS)),
            random.integers(0, COLUMNS, 2200).astype(np.int32),
            random.integers(0, 300, 64).astype(np.int32),
        )
        step = indexed(dtypes)
        expected = jax.jit(step)(*args)[1]
        wrapped = shardc.jit(step, devices=jax.devices()[:1], stages=1, microbatches=1)
        got = wrapped(*args)[1]
    for name, ways in expected.items():
        for way, other in ways.items():
            np.testing.assert_array_equal(got[name][way], other, f"{name} {way}")


def test_labels_of_a_narrow_type_are_found_as_jit_finds_them() -> None:
    """The example as a user meets it, with every default."""
    x = jax.random.normal(jax.random.key(0), (300, COLUMNS))
    y = (jnp.arange(300) % COLUMNS).astype(jnp.uint8)

    def step(w: Any, x: Any, y: Any) -> Any:
        return w, (x @ w)[jnp.arange(300, dtype=y.dtype), y]

    args = jnp.eye(COLUMNS), x, y
    np.testing.assert_array_equal(shardc.jit(step)(*args)[1], jax.jit(step)(*args)[1])


def summed(dtype: str, rows: int, start: int = 0) -> Callable[..., Any]:
    """Adds up what rows of x give, one after the other."""

    def step(w: Any, x: Any) -> Any:
        def one(total: Any, i: Any) -> Any:
            row = lax.dynamic_slice_in_dim(x, i.astype(jnp.int32) - start, 1)
            return total + jnp.sum(jnp.tanh(row @ w)) * (1 + i.astype(x.dtype)), None

        numbers = lax.iota(dtype, rows)
        if start:
            numbers += jnp.asarray(start, dtype)
        return w, lax.scan(one, jnp.zeros((), x.dtype), numbers)[0]

    return step


def counted(dtype: str, start: int, rows: int) -> Callable[..., Any]:
    """The same, counted in a narrow type."""

    def step(w: Any, x: Any) -> Any:
        def one(carry: Any) -> Any:
            i, total = carry
            row = lax.dynamic_slice_in_dim(x, i.astype(jnp.int32) - start, 1)
            value = jnp.sum(jnp.tanh(row @ w)) * (200 + i.astype(x.dtype))
            return i + jnp.asarray(1, dtype), total + value

        begin, end = (jnp.asarray(number, dtype) for number in (start, start + rows))
        total = lax.while_loop(lambda c: c[0] < end, one, (begin, jnp.zeros((), x.dtype)))[1]
        return w, total

    return step


@pytest.mark.parametrize(
    ("step", "rows", "shared"),
    [
        (summed("uint8", 300), 300, False),
        (summed("uint8", 256), 256, True),
        (summed("int8", 200, -100), 200, True),
        (counted("int8", -100, 200), 200, True),
        (counted("int8", -127, 254), 254, True),
    ],
    ids=["uint8 table, 300", "uint8 table, 256", "int8 table", "int8", "nearly all of int8"],
)
def test_blocks_of_the_batch_are_those_that_the_loop_takes(
    step: Callable[..., Any], rows: int, shared: bool
) -> None:
    random = np.random.default_rng(1)
    with jax.enable_x64(True):
        args = random.normal(size=(4, 4)), random.normal(size=(rows, 4))
        expected = jax.jit(step)(*args)[1]
        wrapped = shardc.jit(step, donate_argnums=(), batch_argnums=1, stages=1, microbatches=2)
        if shared:
            got = wrapped(*args)[1]
        else:
            with pytest.warns(RequestWarning, match="needs the whole batch"):
                got = wrapped(*args)[1]
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    assert wrapped.plan.num_microbatches == (2 if shared else 1)


@pytest.mark.parametrize("lowering", ["local", "xla"])
def test_loops_with_collectives_run_as_often_as_they_do(lowering: str) -> None:
    """XLA counts such loops, and takes unsigned counters and those that wrap around for others."""

    def step(w: Any, x: Any) -> Any:
        def added(start: Any, change: Any, more: Callable[[Any], Any]) -> Any:
            def one(carry: Any) -> Any:
                i, total = carry
                row = lax.dynamic_index_in_dim(x, i.astype(jnp.int32) % 8, 0, keepdims=False)
                return i + change, total + jnp.sum(jnp.tanh(row @ w)) * (1 + i.astype(x.dtype))

            return lax.while_loop(lambda carry: more(carry[0]), one, (start, 0.0))[1]

        down = added(jnp.uint8(7), jnp.uint8(255), lambda i: i > 0)
        around = added(jnp.int8(120), jnp.int8(1), lambda i: i >= 0)
        return w, down, around

    random = np.random.default_rng(3)
    with jax.enable_x64(True):
        args = random.normal(size=(4, 4)), random.normal(size=(8, 4))
        wrapped = shardc.jit(
            step, cluster=CLUSTER, stages=1, microbatches=1, mesh=(2,), lowering=lowering
        )
        with mock.patch.object(plan_shardings, "solve_once", random_solver(3)):
            got = wrapped(*args)[1:]
        expected = jax.jit(step)(*args)[1:]
    np.testing.assert_allclose(got, expected, rtol=1e-11)


def layers_of_table(dtype: str, count: int) -> Callable[..., Any]:
    """Layers that a table of numbers points to."""

    def step(w: Any, x: Any) -> Any:
        def layer(h: Any, i: Any) -> Any:
            return jnp.tanh(h @ lax.dynamic_index_in_dim(w, i.astype(int), keepdims=False)), None

        return w, lax.scan(layer, x, lax.iota(dtype, count))[0]

    return step


def layers_counted(dtype: str, start: int, step: int, count: int) -> Callable[..., Any]:
    """Layers that a narrow counter runs through."""

    def run(w: Any, x: Any) -> Any:
        def layer(carry: Any) -> Any:
            i, h = carry
            row = lax.div(i.astype(int) - start, step)
            return i + jnp.asarray(step, dtype), jnp.tanh(
                h @ lax.dynamic_index_in_dim(w, row, 0, False)
            )

        begin, end = (jnp.asarray(number, dtype) for number in (start, start + step * count))
        return w, lax.while_loop(lambda c: c[0] < end, layer, (begin, x))[1]

    return run


@pytest.mark.parametrize(
    ("step", "count"),
    [
        (layers_of_table("uint8", 260), 260),
        (layers_of_table("uint8", 200), 200),
        (layers_counted("int8", -100, 2, 100), 100),
        (layers_counted("uint8", 0, 5, 51), 51),
    ],
    ids=["uint8 table, 260", "uint8 table, 200", "int8 from -100 by 2", "uint8 by 5"],
)
def test_layers_are_cut_where_the_loop_takes_them(step: Callable[..., Any], count: int) -> None:
    random = np.random.default_rng(2)
    with jax.enable_x64(True):
        args = random.normal(size=(count, 4, 4)), random.normal(size=(8, 4))
        expected = jax.jit(step)(*args)[1]
        wrapped = shardc.jit(step, stages=2, microbatches=2)
        got = wrapped(*args)[1]
    np.testing.assert_allclose(got, expected, rtol=1e-11)

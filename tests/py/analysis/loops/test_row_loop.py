"""Which rows of what the iterations of a loop touch, read off its index arithmetic."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardc.analysis.loops.row_loop import RowLoop, row_loop
from shardc.compiler import prepare
from shardc.importer.from_jax import import_function
from shardc.ir.context import Module
from shardc.ir.walk import main_function, ops

STACK, X = np.ones((6, 4, 4), np.float32), np.ones((2, 4), np.float32)


def forwards(w: Any, x: Any) -> Any:
    return jax.lax.scan(lambda h, row: (h @ row, h), x, w)


def backwards(w: Any, x: Any) -> Any:
    return jax.lax.scan(lambda h, row: (h @ row, None), x, w, reverse=True)[0]


def counting_down(w: Any, x: Any) -> Any:
    def body(carry: Any) -> Any:
        i, h = carry
        return i - 1, h @ w[i]

    return jax.lax.while_loop(lambda carry: carry[0] >= 0, body, (5, x))[1]


def by_index(w: Any, x: Any) -> Any:
    return jax.lax.fori_loop(0, 6, lambda i, h: h @ w[i], x)


def every_other(w: Any, x: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda i, h: h @ w[2 * i], x)


def turned_around(w: Any, x: Any) -> Any:
    return jax.lax.fori_loop(0, 6, lambda i, h: h @ w[(i * 5) % 6], x)


def as_carried(w: Any, x: Any) -> Any:
    def body(i: Any, carry: Any) -> Any:
        h, w = carry
        return h @ w[i], w.at[i].set(0)

    return jax.lax.fori_loop(0, 6, body, (x, w))


def weights_shared(w: Any, x: Any) -> Any:
    return jax.lax.fori_loop(0, 6, lambda i, h: h @ w[0], x)


def until_converged(w: Any, x: Any) -> Any:
    def body(carry: Any) -> Any:
        i, h = carry
        return i + 1, h @ w[i]

    return jax.lax.while_loop(lambda carry: jnp.sum(carry[1]) < 1e3, body, (0, x))[1]


def part_of_the_only_row(w: Any, x: Any) -> Any:
    def body(i: Any, h: Any) -> Any:
        part = jax.lax.dynamic_slice(only, (i, 0, 2), (1, 4, 2))[0]
        return jax.lax.dynamic_update_slice(h, (x @ part)[None], (i, 0, 2))

    only = w[:1]
    return jax.lax.fori_loop(0, 1, body, jnp.zeros((1, 2, 4), x.dtype))


def never_entered(w: Any, x: Any) -> Any:
    def body(carry: Any) -> Any:
        i, h = carry
        return i + 1, jax.lax.dynamic_update_slice(h, (x @ w[0])[None], (i, 0, 0))

    return jax.lax.while_loop(lambda carry: carry[0] < 0, body, (0, x[None]))[1]


def found_in(fun: Callable[..., Any]) -> tuple[Module, RowLoop | None]:
    """The module must live as long as what was found in it."""
    module = import_function(fun, (STACK, X), {}).module
    prepare(module)
    with module.context:
        loops = [op for op in ops(main_function(module.operation)) if "while" in op.name]
        return module, row_loop(loops[0])


@pytest.mark.parametrize(
    ("fun", "is_forwards"),
    [(forwards, True), (backwards, False), (counting_down, False), (by_index, True)],
)
def test_rows_are_found_in_either_order(fun: Callable[..., Any], is_forwards: bool) -> None:
    module, found = found_in(fun)
    assert found is not None
    assert (found.counted.trips, found.forwards, list(found.reads.values())) == (
        6,
        is_forwards,
        [0],
    )
    assert found.row_range(0, 2) == ((0, 2) if is_forwards else (4, 6))
    del module


def test_what_a_scan_stacks_is_written_by_rows() -> None:
    module, found = found_in(forwards)
    assert found is not None
    assert list(found.writes.values()) == [0]
    del module


@pytest.mark.parametrize(
    "fun",
    [
        every_other,
        turned_around,
        as_carried,
        weights_shared,
        part_of_the_only_row,
        never_entered,
    ],
)
def test_other_loops_touch_no_rows_one_by_one(fun: Callable[..., Any]) -> None:
    module, found = found_in(fun)
    assert found is not None
    assert (found.reads, found.writes) == ({}, {})
    del module


def test_a_loop_whose_end_depends_on_data_has_no_known_iterations() -> None:
    module, found = found_in(until_converged)
    assert found is None
    del module

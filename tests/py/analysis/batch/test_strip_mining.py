"""Which loops the microbatches can share out, and what each has of the values they carry."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardc.analysis.batch.batch_state import INVARIANT, Cut, Kind, State
from shardc.analysis.batch.strip_mining import StripMinedLoop, strip_mine
from shardc.compiler import prepare
from shardc.importer.from_jax import import_function
from shardc.ir.clone import captures
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import main_function, ops

X, W = np.ones((4, 3, 5), np.float32), np.ones((5, 5), np.float32)
ROWS = State(Kind.VARYING, 0, Cut(0))


def strip_mined(function: Callable[..., Any]) -> StripMinedLoop | None:
    """How the only loop of a function of (X, W) is shared out when X is cut along dim 0."""
    module = import_function(function, (X, W)).module
    prepare(module)
    with module.context:
        loop = next(op for op in ops(main_function(module.operation)) if "while" in op.name)
        states = [ROWS if shape_of(v) == X.shape else INVARIANT for v in loop.operands]
        around = {v: ROWS if shape_of(v) == X.shape else INVARIANT for v in captures(loop)}
        return strip_mine(loop, states, around)


def add_up(x: Any, w: Any) -> Any:
    return jax.lax.scan(lambda total, row: (total + row @ w, None), jnp.zeros((3, 5)), x)[0]


def stack(x: Any, w: Any) -> Any:
    return jax.lax.scan(lambda _, row: (None, row @ w), None, x, reverse=True)[1]


def of_two(x: Any, w: Any) -> Any:
    def one(i: Any, total: Any) -> Any:
        return total + (jax.lax.dynamic_slice_in_dim(x, 2 * i, 2) @ w).sum()

    return jax.lax.fori_loop(0, 2, one, 0.0)


def state_in_place(x: Any, w: Any) -> Any:
    def one(i: Any, x: Any) -> Any:
        row = jax.lax.dynamic_index_in_dim(x, i)
        return jax.lax.dynamic_update_index_in_dim(x, row + w.sum(), i, 0)

    return jax.lax.fori_loop(0, 4, one, x)


def carried_on(x: Any, w: Any) -> Any:
    return jax.lax.scan(lambda h, row: (jnp.tanh(h + row @ w), None), jnp.zeros((3, 5)), x)[0]


def from_ones(x: Any, w: Any) -> Any:
    return jax.lax.scan(lambda total, row: (total + row @ w, None), jnp.ones((3, 5)), x)[0]


def the_largest(x: Any, w: Any) -> Any:
    return jax.lax.scan(lambda best, r: (jnp.maximum(best, r @ w), None), jnp.zeros((3, 5)), x)[0]


def neighbours(x: Any, w: Any) -> Any:
    return jax.lax.fori_loop(0, 4, lambda i, t: t + (x[i] - x[(i + 1) % 4]) @ w, jnp.zeros((3, 5)))


def the_whole(x: Any, w: Any) -> Any:
    return jax.lax.fori_loop(0, 4, lambda i, t: t + x[i] @ w * x.max(), jnp.zeros((3, 5)))


def counts(x: Any, w: Any) -> Any:
    return jax.lax.fori_loop(0, 4, lambda i, c: (c[0] + 2, c[1] + x[i].sum()), (0, 0.0))


def test_sums_are_partial_and_rows_that_are_read_lie_in_the_part() -> None:
    found = strip_mined(add_up)
    assert found is not None
    assert found.mining.counted.trips == 4
    assert found.mining.forwards
    assert len(found.mining.reads) == 1
    assert State(Kind.PARTIAL) in found.carries


def test_rows_that_are_written_are_parts() -> None:
    found = strip_mined(stack)
    assert found is not None
    assert not found.mining.forwards
    assert [found.carries[p] for p in found.mining.writes] == [ROWS]


def test_blocks_may_have_several_rows() -> None:
    found = strip_mined(of_two)
    assert found is not None
    assert found.mining.counted.trips == 2


def test_a_block_may_be_read_and_written() -> None:
    found = strip_mined(state_in_place)
    assert found is not None
    assert list(found.mining.writes.values()) == list(found.mining.reads.values()) == [0]


@pytest.mark.parametrize(
    "function", [carried_on, from_ones, the_largest, neighbours, the_whole, counts]
)
def test_iterations_that_meet_in_more_than_sums_are_not_shared_out(function: Any) -> None:
    assert strip_mined(function) is None

"""Which row each iteration reads where loops count in narrow integers, or through floats."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from shardc.analysis.batch.batch_state import INVARIANT, Cut, Kind, State
from shardc.analysis.batch.strip_mining import strip_mine
from shardc.analysis.loops.row_loop import row_loop, row_read
from shardc.compiler import prepare
from shardc.importer.from_jax import import_function
from shardc.ir.clone import captures
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import defining_op, main_function, terminator

Index = Callable[[Any, int], Any]  # a count and the number of rows -> the row that is read
WIDTH = 2
DTYPES = ("uint8", "int8", "uint16", "int16", "int32", "uint32")
INDICES: dict[str, Index] = {
    "as it is": lambda i, rows: i,
    "there and back": lambda i, rows: i + i.dtype.type(90) - i.dtype.type(90),
    "half of twice": lambda i, rows: lax.div(i * i.dtype.type(2), i.dtype.type(2)),
    "rest": lambda i, rows: lax.rem(i, i.dtype.type(100)),
    "at most": lambda i, rows: lax.clamp(i.dtype.type(0), i, i.dtype.type(100)),
    "from behind": lambda i, rows: jnp.asarray(rows - 1).astype(i.dtype) - i,
    "by eight bits": lambda i, rows: i.astype(jnp.uint8),
    "by bfloat16": lambda i, rows: i.astype(jnp.bfloat16).astype(jnp.int32),
    "by float16": lambda i, rows: i.astype(jnp.float16).astype(jnp.int32),
    "by float32": lambda i, rows: i.astype(jnp.float32).astype(i.dtype),
    "in bfloat16": lambda i, rows: (i.astype(jnp.bfloat16) + 3 - 3).astype(jnp.int32),
    "chosen": lambda i, rows: jnp.where(i < i.dtype.type(101), i, i.dtype.type(0)),
}


CASES = [
    (name, dtype, rows)
    for dtype in DTYPES
    for name in INDICES
    for rows in ((101, 260) if dtype in ("uint8", "int8", "int32") else (260,))
]


def total_of_rows(index: Index, dtype: str, x: Any, stack: bool) -> Any:
    """Adds up one row of x per iteration, counted over a table of that type."""
    rows = len(x)

    def one(total: Any, i: Any) -> Any:
        row = lax.dynamic_slice_in_dim(x, index(i, rows).astype(jnp.int32), 1)
        return total + row, row[0, 0] if stack else None

    return lax.scan(one, jnp.zeros((1, WIDTH), x.dtype), lax.iota(dtype, rows))


@pytest.fixture(scope="module")
def programs() -> Any:
    """All cases in one program: the rows that they really read, and their loops."""

    def step(short: Any, long: Any, stack: bool) -> Any:
        xs = {len(short): short, len(long): long}
        totals = [total_of_rows(INDICES[name], d, xs[rows], stack) for name, d, rows in CASES]
        return [rows if stack else total for total, rows in totals]

    xs = [np.arange(float(n), dtype=np.float32)[:, None] * np.ones(WIDTH) for n in (101, 260)]
    module = import_function(lambda *xs: step(*xs, stack=False), tuple(xs), {}).module
    prepare(module)
    read = [np.asarray(found).astype(int) for found in jax.jit(step, static_argnums=2)(*xs, True)]
    loops = [defining_op(value) for value in terminator(main_function(module.operation)).operands]
    return module, {case: each for case, *each in zip(CASES, read, loops, strict=True)}


def shared_out(loop: Any, rows: int) -> list[bool]:
    """The orders in which microbatches may take blocks of x: as the iterations come, or not."""

    def state(value: Any) -> State:
        return State(Kind.VARYING, 0, Cut(0)) if shape_of(value) == (rows, WIDTH) else INVARIANT

    found = strip_mine(
        loop, [state(v) for v in loop.operands], {v: state(v) for v in captures(loop)}
    )
    return [] if found is None else [found.mining.forwards]


def cut(loop: Any, rows: int) -> list[bool]:
    """The orders in which pieces of the loop may take rows of x."""
    found = row_loop(loop)
    assert found is not None
    assert found.counted.trips == rows
    stacks = [shape_of(row_read(row).operands[0]) for row in found.reads]
    return [found.forwards] if (rows, WIDTH) in stacks else []


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_a_loop_is_said_to_read_row_by_row_where_it_does(case: Any, programs: Any) -> None:
    read, loop = programs[1][case]
    rows = case[-1]
    count = np.arange(rows)
    orders = [o for o, each in ((True, count), (False, count[::-1])) if np.array_equal(read, each)]
    assert shared_out(loop, rows) == orders
    assert cut(loop, rows) in ([], orders)
    if orders == [True]:  # the other way around it reads its own numbers
        assert cut(loop, rows) == orders


# Type of a counter, its first number, step and bound, and how far its first row is from it.
COUNTERS = [
    ("int32", 0, 1, 200, 0),
    ("uint8", 0, 1, 200, 0),
    ("uint8", 55, 1, 255, -55),
    ("int8", -100, 1, 100, 100),
    ("int8", -128, 1, 72, 128),
    ("int8", 99, -1, -101, 100),
    ("int8", -100, 2, 100, 100),
    ("int16", -32768, 1, -32568, 32768),
    ("uint16", 65335, 1, 65535, -65335),
    ("int32", 5, 3, 605, -5),
]


def carried(x: Any, counter: Any, wide: bool) -> Any:
    """Rows of x in the order in which they are read; the arithmetic is that of a narrow type."""
    dtype, start, step, bound, shift = counter
    number = jnp.int32 if wide else dtype

    def one(carry: Any) -> Any:
        i, k, total, read = carry
        first = i.astype(number) + jnp.asarray(shift).astype(number)
        row = lax.dynamic_slice_in_dim(x, lax.div(first, jnp.asarray(abs(step), number)), 1)
        return i + jnp.asarray(step, dtype), k + 1, total + row, read.at[k].set(row[0, 0])

    def more(carry: Any) -> Any:
        end = jnp.asarray(bound, dtype)
        return carry[0] < end if step > 0 else carry[0] > end

    zero = jnp.zeros((1, WIDTH), x.dtype)
    carry = jnp.asarray(start, dtype), 0, zero, jnp.zeros(len(x), x.dtype)
    return lax.while_loop(more, one, carry)[2:]


@pytest.mark.parametrize("wide", [True, False])
def test_a_counter_may_begin_anywhere_in_its_type(wide: bool) -> None:
    rows = {c: len(range(c[1], c[3], c[2])) for c in COUNTERS}
    xs = [np.arange(float(n), dtype=np.float32)[:, None] * np.ones(WIDTH) for n in rows.values()]

    def step(*xs: Any) -> Any:
        return [carried(x, c, wide)[0] for x, c in zip(xs, COUNTERS, strict=True)]

    module = import_function(step, tuple(xs), {}).module
    prepare(module)
    ends = terminator(main_function(module.operation)).operands
    for c, x, end in zip(COUNTERS, xs, ends, strict=True):
        read = np.asarray(jax.jit(lambda x, c=c: carried(x, c, wide)[1])(x)).astype(int)
        count = np.arange(rows[c])
        either = ((True, count), (False, count[::-1]))
        orders = [o for o, each in either if np.array_equal(read, each)]
        assert cut(defining_op(end), rows[c]) == orders, c
        assert wide <= bool(orders), c

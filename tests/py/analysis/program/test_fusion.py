"""What kernels read, write and start: by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardc.analysis.program.fusion import Traffic, fused_traffic
from shardc.ir.context import make_context, parse
from shardc.ir.pass_manager import run_passes
from shardc.ir.walk import main_function, planned_ops
from shardc.passes.simplify_loops import SimplifyLoops

X = jnp.ones((64, 32))  # 8 KiB
SIZE = 64 * 32 * 4


def kernels(function, *args):
    """Traffic of the ops that move anything or start a kernel, with their names."""
    module = parse(jax.jit(function).lower(*args).as_text(), make_context())
    run_passes(module, [SimplifyLoops()])  # what loops only hand on is captured
    main = main_function(module.operation)
    found = zip(planned_ops(main), fused_traffic(main), strict=True)
    return [(op.name.removeprefix("stablehlo."), t) for op, t in found if any(t)]


def total(function, *args):
    found = [traffic for _, traffic in kernels(function, *args)]
    return Traffic(sum(t.num_bytes for t in found), sum(t.launches for t in found))


def test_a_chain_is_one_kernel_that_reads_and_writes_once():
    assert total(lambda x: jnp.tanh(x * x) + 1.0, X) == (2 * SIZE, 1)


def test_a_value_that_two_of_a_kernel_read_is_read_once():
    assert total(lambda x, y: (x + y) * (x - y), X, X) == (3 * SIZE, 1)


def test_a_product_stands_between_two_kernels():
    weights = jnp.ones((32, 32))
    traffic = total(lambda x, w: jnp.tanh(jnp.tanh(x) @ w), X, weights)
    assert traffic == (2 * SIZE + (2 * SIZE + 32 * 32 * 4) + 2 * SIZE, 3)


def test_a_residual_around_a_product_is_read_again_behind_it():
    weights = jnp.ones((32, 32))

    def function(x, w):
        h = jnp.tanh(x)
        return h + h @ w

    # tanh writes h; the product reads it; the sum reads h and the product.
    assert total(function, X, weights) == (2 * SIZE + 2 * SIZE + 4096 + 3 * SIZE, 3)


def test_normalising_rows_is_one_kernel():
    def function(x):
        return x / x.sum(-1, keepdims=True)

    assert total(function, X).launches == 1
    assert total(function, X).num_bytes == 2 * SIZE


def test_sums_over_outer_dims_end_their_kernel():
    found = total(lambda x: x / x.sum(0, keepdims=True), X)
    assert found.launches == 2
    assert found.num_bytes == (SIZE + 32 * 4) + (SIZE + 32 * 4 + SIZE)


def test_a_causal_mask_is_made_where_it_is_used():
    def masked(x):
        rows, columns = (jax.lax.broadcasted_iota(jnp.int32, (64, 64), d) for d in (0, 1))
        return jax.lax.select(rows >= columns, x, jnp.full_like(x, -1e9))

    x = jnp.ones((64, 64))
    assert total(masked, x) == (2 * 64 * 64 * 4, 1)


@pytest.mark.parametrize(("ops", "launches"), [(7, 1), (8, 2)])
def test_what_takes_more_than_eight_ops_from_constants_is_written(ops, launches):
    def function(x):
        weights = jax.lax.broadcasted_iota(jnp.float32, (32, 32), 0)
        for _ in range(ops):  # with as many paths as 2 ** ops
            weights = weights * weights
        return x @ weights

    assert total(function, X).launches == launches


def test_a_cast_in_front_of_a_product_is_a_kernel_and_one_of_a_constant_is_not():
    def function(x, w):
        return x.astype(jnp.bfloat16) @ w

    weights = jnp.ones((32, 32), jnp.bfloat16)
    [(name, cast), (_, product)] = kernels(function, X, weights)
    assert (name, cast) == ("convert", (SIZE + SIZE // 2, 1))
    assert product.num_bytes == SIZE // 2 + 32 * 32 * 2 + SIZE // 2


def test_loops_have_kernels_of_their_own():
    def function(x):
        return jax.lax.scan(lambda h, _: (jnp.tanh(h) * 2.0, None), x, None, length=3)[0]

    inside = [t for name, t in kernels(function, X) if name in ("tanh", "multiply")]
    assert sum(t.num_bytes for t in inside) == 2 * SIZE
    assert sum(t.launches for t in inside) == 1


def test_what_a_loop_reads_of_a_cast_stack_is_cast_in_front_of_it():
    stack = jnp.ones((3, 32, 32))

    def casts(x, w):
        narrow = w.astype(jnp.bfloat16)
        found, _ = jax.lax.scan(lambda h, row: (h @ row, None), x.astype(jnp.bfloat16), narrow)
        return found

    found = kernels(casts, X, stack)
    assert ("convert", Traffic(3 * 32 * 32 * (4 + 2), 1)) in found
    assert ("convert", Traffic(SIZE + SIZE // 2, 1)) in found  # of what the loop carries

    def adds(x, rows):
        narrow = rows.astype(jnp.bfloat16)
        return jax.lax.scan(lambda h, row: (h + row, None), x.astype(jnp.bfloat16), narrow)[0]

    found = kernels(adds, X, jnp.ones((3, 64, 32)))
    assert ("add", Traffic(3 * SIZE // 2, 1)) in found  # reads a row as it is stored: narrow


def test_a_table_of_complex_numbers_is_read():
    x = jnp.ones((64, 32), jnp.complex64)
    table = np.exp(1j * np.arange(64 * 32).reshape(64, 32)).astype(np.complex64)
    assert total(lambda x: x * table, x) == (3 * 2 * SIZE, 1)
    assert total(lambda x: x * np.full_like(table, 1j), x) == (2 * 2 * SIZE, 1)

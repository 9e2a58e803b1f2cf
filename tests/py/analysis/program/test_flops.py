"""FLOPs and bytes of ops: by hand, and against what XLA counts."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from shardc.analysis.program.counted_loop import trip_count
from shardc.analysis.program.flops import heavy_flops, is_heavy, op_cost
from shardc.ir.context import make_context, parse
from shardc.ir.walk import all_functions, main_function, ops, walk


def lowered_ops(function, *args):
    """The context (to be kept) and the ops of main."""
    text = jax.jit(function).lower(*args).as_text()
    module = parse(text, make_context())
    return module, ops(main_function(module.operation))


def only(function, *args, name):
    module, found = lowered_ops(function, *args)
    [op] = [op for op in found if op.name == name]
    return module, op


def ones(*shape, dtype=jnp.float32):
    return jnp.ones(shape, dtype)


def conv(x, w, strides=(1, 1), padding="SAME", **options):
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=numbers, **options)


def conv_gradient(x, w):
    return jax.grad(lambda w, x: conv(x, w, (2, 2)).sum(), argnums=(0, 1))(w, x)


HEAVY_PROGRAMS = {
    "matmul": (lambda x, w: x @ w, ones(8, 16), ones(16, 32)),
    "batched": (lambda x, w: jnp.einsum("bik,bkj->bij", x, w), ones(3, 8, 16), ones(3, 16, 4)),
    "conv": (conv, ones(2, 8, 8, 3), ones(3, 3, 3, 4)),
    "conv gradient": (conv_gradient, ones(2, 8, 8, 3), ones(3, 3, 3, 4)),
    "grouped conv": (
        lambda x, w: conv(x, w, feature_group_count=4),
        ones(2, 8, 8, 8),
        ones(3, 3, 2, 16),
    ),
    "dilated conv": (
        lambda x, w: conv(x, w, (2, 1), ((1, 2), (0, 3)), rhs_dilation=(2, 2)),
        ones(2, 9, 8, 3),
        ones(3, 2, 3, 4),
    ),
}


@pytest.mark.parametrize("program", HEAVY_PROGRAMS)
def test_heavy_flops_equal_what_xla_counts(program):
    function, *args = HEAVY_PROGRAMS[program]
    _module, found = lowered_ops(function, *args)
    ours = sum(heavy_flops(op) for op in found)
    xla = jax.jit(function).lower(*args).cost_analysis()["flops"]
    elementwise = sum(op_cost(op).flops for op in found if not is_heavy(op))
    assert ours > 0
    assert ours <= xla <= ours + elementwise


def test_matmul_by_hand():
    _module, dot = only(lambda x, w: x @ w, ones(8, 16), ones(16, 32), name="stablehlo.dot_general")
    assert op_cost(dot) == (2 * 8 * 16 * 32, 4 * (8 * 16 + 16 * 32), 4 * 8 * 32)


def test_bytes_follow_the_dtype():
    _module, add = only(lambda x: x + x, ones(8, 16, dtype=jnp.bfloat16), name="stablehlo.add")
    assert op_cost(add) == (128, 2 * 256, 256)


def test_reduction_counts_its_operand():
    _module, reduce = only(lambda x: x.sum(0), ones(8, 16), name="stablehlo.reduce")
    assert op_cost(reduce).flops == 128


def test_gather_reads_what_it_returns_not_the_table():
    table, ids = ones(10000, 16), jnp.zeros(4, jnp.int32)
    _module, gather = only(
        lambda t, i: t.at[i].get(mode="clip"), table, ids, name="stablehlo.gather"
    )
    assert op_cost(gather) == (0, 4 * 64 + 16, 4 * 64)


def test_scatter_writes_its_updates_in_place():
    def add(t, i, u):
        return t.at[i].add(u, mode="drop", wrap_negative_indices=False)

    args = (ones(10000, 16), jnp.zeros(4, jnp.int32), ones(4, 16))
    _module, scatter = only(add, *args, name="stablehlo.scatter")
    assert op_cost(scatter) == (64, 2 * 4 * 64 + 16, 4 * 64)


def test_reshape_and_constant_are_free():
    _module, found = lowered_ops(lambda x: x.reshape(4, 4) + 0 * 3.0, ones(16))
    assert all(
        op_cost(op) == (0, 0, 0)
        for op in found
        if op.name in ("stablehlo.reshape", "stablehlo.constant")
    )


def test_scan_counts_its_body_per_iteration():
    def step(c, x):
        return c @ x, None

    _module, loop = only(
        lambda c, xs: lax.scan(step, c, xs)[0], ones(8, 8), ones(5, 8, 8), name="stablehlo.while"
    )
    assert trip_count(loop) == 5
    assert heavy_flops(loop) == 5 * 2 * 8**3
    assert op_cost(loop).flops >= heavy_flops(loop)
    assert is_heavy(loop)


def test_reversed_scan_has_the_same_trip_count():
    def total(xs):
        return lax.scan(lambda c, x: (c * x, None), jnp.float32(1), xs)[0]

    module, _found = lowered_ops(jax.grad(total), ones(7))
    loops = [
        op
        for f in all_functions(module.operation)
        for op in walk(f)
        if op.name == "stablehlo.while"
    ]
    assert [trip_count(loop) for loop in loops] == [7] * len(loops)
    assert loops


def test_loop_that_ends_by_data_is_counted_once():
    def squares(x):
        return lax.while_loop(lambda c: c[0, 0] < 3.0, lambda c: c @ c, x)

    _module, loop = only(squares, ones(8, 8), name="stablehlo.while")
    assert trip_count(loop) is None
    assert heavy_flops(loop) == 2 * 8**3


@pytest.mark.parametrize(
    ("start", "direction", "limit", "op", "step", "count"),
    [
        (0, "LT", 7, "add", 2, 4),
        (0, "LE", 8, "add", 2, 5),
        (9, "GT", 0, "subtract", 3, 3),
        (9, "GE", 0, "subtract", 3, 4),
        (1, "NE", 9, "add", 4, 2),
        (1, "NE", 8, "add", 4, None),
        (0, "GT", 8, "add", 1, None),
        (5, "LT", 2, "add", 1, 0),
    ],
)
def test_trip_count_by_hand(start, direction, limit, op, step, count):
    text = f"""
    func.func @main() -> tensor<i32> {{
      %start = stablehlo.constant dense<{start}> : tensor<i32>
      %limit = stablehlo.constant dense<{limit}> : tensor<i32>
      %step = stablehlo.constant dense<{step}> : tensor<i32>
      %0 = stablehlo.while(%i = %start) : tensor<i32> cond {{
        %c = stablehlo.compare {direction}, %i, %limit : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }} do {{
        %n = stablehlo.{op} %i, %step : tensor<i32>
        stablehlo.return %n : tensor<i32>
      }}
      return %0 : tensor<i32>
    }}"""
    module = parse(text)
    loop = ops(main_function(module.operation))[-1]
    assert trip_count(loop) == count


def test_case_is_its_costliest_branch():
    def function(x):
        return lax.cond(x[0, 0] > 0, lambda c: c @ c, lambda c: c, x)

    _module, case = only(function, ones(8, 8), name="stablehlo.case")
    assert op_cost(case).flops == heavy_flops(case) == 2 * 8**3


def test_sort_fft_and_solves_count_something():
    def function(x):
        a = jnp.linalg.cholesky(x)
        return jnp.fft.fft(x).real + lax.linalg.triangular_solve(a, x) + jnp.sort(x)

    text = jax.jit(function).lower(ones(8, 8)).as_text()
    module = parse(text)
    found = {
        op.name: op_cost(op).flops
        for f in all_functions(module.operation)
        for op in walk(f)
        if op.name in ("stablehlo.sort", "stablehlo.fft", "stablehlo.triangular_solve")
    }
    assert found["stablehlo.sort"] == 64 * 3
    assert found["stablehlo.fft"] == 5 * 64 * 3


def test_accumulate_reads_and_writes_the_sum():
    module = parse("""
    func.func @main(%v: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.custom_call @shardc.accumulate(%v) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }""")
    [op] = ops(main_function(module.operation))
    assert op_cost(op) == (4, 32, 16)


@pytest.mark.parametrize(
    ("window", "padding", "steps"), [(4096, ((4095, 0),), 16), (64, "SAME", 64)]
)
def test_a_running_sum_is_no_square(window, padding, steps):
    def sums(x):
        return lax.reduce_window(x, 0.0, lax.add, (window,), (1,), padding)

    _, op = only(sums, ones(4096), name="stablehlo.reduce_window")
    assert op_cost(op).flops == steps * 4096

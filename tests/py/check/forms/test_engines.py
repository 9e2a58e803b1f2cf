"""StableHLO's interpreter and XLA agree on every element type, and on collectives in loops."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from shardc.check.forms.engines import interpreter, lacks, xla
from shardc.check.forms.unrolled import MOST_COPIES
from shardc.ir.context import parse
from shardc.ir.walk import main_function

TYPES = (
    "bool int4 uint4 int8 uint8 int16 uint16 int32 uint32 int64 uint64 float8_e4m3fn bfloat16"
    " float16 float32 float64 complex64 complex128"
).split()


def both(function: Any, *args: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    with jax.enable_x64(True):
        module = parse(jax.jit(function, keep_unused=True).lower(*args).as_text())
        main = main_function(module.operation)
        assert lacks(module.operation, main) == ()
        engines = interpreter, xla
        first, second = (e(module.operation, main, 1)([list(args)])[0] for e in engines)
    return first, second


@pytest.mark.parametrize("dtype", TYPES)
def test_every_element_type_enters_and_leaves_the_interpreter(dtype: str) -> None:
    kind = jnp.dtype(dtype)
    values = np.array([[0, 1, 2], [3, 1, 0]]).astype(kind)
    got, want = both(lambda x: (x, jnp.flip(x, 1), x == x), values)
    for left, right in zip(got, want, strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left.astype(complex), right.astype(complex))


def test_the_ends_of_types_arrive_as_they_are() -> None:
    with jax.enable_x64(True):
        ends = np.array([2**63 - 1, -(2**63)]), np.array([2**64 - 1, 0], np.uint64)
        odd = np.array([np.inf, -np.inf, np.nan, 5e-324, -0.0])
        narrow = np.array([np.inf, np.nan, 3e38], ml_dtypes.bfloat16)
        got, want = both(lambda *x: x, *ends, odd, narrow)
    for left, right in zip(got, want, strict=True):
        wide = np.float64 if right.dtype == narrow.dtype else right.dtype
        np.testing.assert_array_equal(left.astype(wide), right.astype(wide))
    assert np.signbit(got[2][-1])


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_unsigned_indices_beyond_the_signed_half_are_not_negative(dtype: str) -> None:
    most = np.iinfo(dtype).max

    def step(x: Any, i: Any) -> Any:
        gathering = jax.lax.GatherDimensionNumbers((), (0,), (0,))
        scattering = jax.lax.ScatterDimensionNumbers((), (0,), (0,))
        rows = jax.lax.gather(x, i[:, None], gathering, (1,), mode="clip")
        added = jax.lax.scatter_add(x, i[:, None], rows, scattering, mode="drop")
        moved = jax.lax.dynamic_update_slice(x, rows, (i[0],))
        return rows, added, moved, jax.lax.dynamic_slice(x, (i[1],), (2,))

    got, want = both(step, np.arange(300.0), np.array([most // 2 + 1, most], dtype))
    assert want[0][0] >= 128
    for left, right in zip(got, want, strict=True):
        np.testing.assert_array_equal(left, right)


def test_the_interpreter_runs_fourier_transforms() -> None:
    got, want = both(jnp.fft.fft, np.arange(8.0))
    np.testing.assert_allclose(got[0], want[0], atol=1e-12)


@pytest.mark.parametrize(
    ("function", "lacking"),
    [
        (lambda x: jax.random.bits(jax.random.key(0, impl="rbg"), (4,)), "rng_bit_generator"),
        (lambda x: jax.lax.approx_max_k(x, 2)[0], "ApproxTopK"),
    ],
)
def test_what_the_interpreter_lacks_is_known_before_it_ends_the_process(
    function: Any, lacking: str
) -> None:
    module = parse(jax.jit(function, keep_unused=True).lower(np.ones(8, np.float32)).as_text())
    assert lacking in " ".join(lacks(module.operation, main_function(module.operation)))


LOOP = """func.func @main(%x: tensor<2xf64>) -> tensor<2xf64> {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<2xf64>
   cond {{
    %n = stablehlo.constant dense<{count}> : tensor<i32>
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }} do {{
    %one = stablehlo.constant dense<1> : tensor<i32>
    %s = "stablehlo.all_reduce"(%v) ({{
     ^bb0(%a: tensor<f64>, %b: tensor<f64>):
      %t = stablehlo.add %a, %b : tensor<f64>
      stablehlo.return %t : tensor<f64>
    }}) {{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids,
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}}
        : (tensor<2xf64>) -> tensor<2xf64>
    %w = stablehlo.multiply %s, %v : tensor<2xf64>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %w : tensor<i32>, tensor<2xf64>
  }}
  return %0#1 : tensor<2xf64>
}}"""


def test_collectives_in_loops_give_each_round_its_own_sum() -> None:
    module = parse(LOOP.format(count=3))
    main = main_function(module.operation)
    assert lacks(module.operation, main, 2) == ()
    parts = [[np.array([1.0, 0.5])], [np.array([0.25, 1.5])]]
    with jax.enable_x64(True):
        got = interpreter(module.operation, main, 2)(parts)
        want = xla(module.operation, main, 2)(parts)
    left, right = (part[0] for part in parts)
    for _ in range(3):
        left, right = (left + right) * left, (left + right) * right
    np.testing.assert_allclose(got[0][0], left)
    np.testing.assert_allclose(got[1][0], right)
    np.testing.assert_allclose(np.array(want)[:, 0], [left, right])


def test_loops_of_too_many_rounds_are_left_to_xla() -> None:
    module = parse(LOOP.format(count=MOST_COPIES + 1))
    assert lacks(module.operation, main_function(module.operation), 2) != ()

"""What XLA's own partitioner would get wrong, or has no collective for, with `lowering="xla"`."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shardc
from shardc.passes import plan_shardings
from tests.py.fuzz.random_solver import random_solver
from tests.py.table import CLUSTER

NUMBERS = np.random.default_rng(0)
X = NUMBERS.normal(size=(8, 4))
BITS = NUMBERS.integers(-100, 100, (8, 4)).astype(np.int8)
HOLES = X.copy()
HOLES[1, 1], HOLES[5, 2], HOLES[6, 3] = np.nan, np.inf, -np.inf


def strided_convolution(kernel: Any, images: Any) -> Any:
    def loss(kernel: Any) -> Any:
        layout = ("NHWC", "HWIO", "NHWC")
        made = lax.conv_general_dilated(images, kernel, (2, 1), "SAME", dimension_numbers=layout)
        return jnp.mean(jnp.tanh(made) ** 2)

    return jax.value_and_grad(loss)(kernel)


def windows(w: Any, x: Any) -> Any:
    return w, lax.reduce_window(x, 5.0, lax.add, (1, 2), (1, 1), [(0, 0), (1, 1)])


def bits(w: Any, b: Any) -> Any:
    flags = b > 0
    every = [jnp.bitwise_xor, jnp.bitwise_and, jnp.bitwise_or]
    return w, [each.reduce(b, 0) for each in every], jnp.logical_xor.reduce(flags, 0)


def extremes(w: Any, x: Any) -> Any:
    narrow = x.astype(jnp.float8_e5m2)
    rows = jnp.array([3, 1, 2, 0, 3, 0, 2, 1])
    found = [jnp.max(x, 0), jnp.min(x), jax.nn.softmax(x @ w, 0), lax.reduce_max(narrow, (0,))]
    layers = lax.scan(lambda h, m: (jnp.tanh(h @ m), jnp.min(h, 1)), x, jnp.stack([w, -w]))
    return w, found, layers, jax.ops.segment_max(x, rows, 4), jnp.argmax(x, 0)


def positions(w: Any, x: Any) -> Any:
    """Counted in floats that do not hold every position."""
    kinds = (jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.bfloat16, jnp.float16)
    found = [lax.iota(kind, len(x)).astype(x.dtype) for kind in kinds]
    layers = lax.scan(lambda h, m: (h + m * lax.iota(jnp.bfloat16, len(x)), None), x[:, 0], w[:, 1])
    return w, [x[:, 0] * each for each in found], layers[0]


@pytest.mark.parametrize(
    ("step", "args", "microbatches"),
    [
        (
            strided_convolution,
            (NUMBERS.normal(size=(3, 3, 4, 4)), NUMBERS.normal(size=(8, 8, 6, 4))),
            2,
        ),
        (windows, (np.eye(4), X), 2),
        (bits, (np.eye(4), BITS), 2),
        (extremes, (np.eye(4), HOLES), 2),
        (positions, (np.eye(4), NUMBERS.normal(size=(4096, 4))), 1),
    ],
    ids=["convolution", "windows", "bits", "extremes", "positions"],
)
def test_what_xla_splits_is_what_jit_computes(
    step: Callable[..., Any], args: tuple[Any, ...], microbatches: int
) -> None:
    with jax.enable_x64(True):
        wrapped = shardc.jit(
            step,
            cluster=CLUSTER,
            stages=1,
            microbatches=microbatches,
            mesh=(2, 2),
            lowering="xla",
        )
        with mock.patch.object(plan_shardings, "solve_once", random_solver(4)):
            got = jax.device_get(wrapped(*args))
        expected = jax.device_get(jax.jit(step)(*args))
    for want, have in zip(jax.tree.leaves(expected), jax.tree.leaves(got), strict=True):
        want, have = (np.asarray(each).astype(float) for each in (want, have))
        np.testing.assert_allclose(have, want, rtol=1e-9, atol=1e-12)

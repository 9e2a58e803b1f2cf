"""Whatever JAX lowers to runs through `shardc.jit` with the numbers of `jax.jit`, or is refused."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec

import shardc
from tests.py.programs import leaves
from tests.py.table import CLUSTER

ROWS = 8


def check(function: Callable[..., Any], *args: Any, exact: bool = False, **options: Any) -> Any:
    """Runs `function` on a mesh of 2x2 and on one device; both must give the same."""
    chosen = {"stages": 1, "microbatches": 1, "mesh": (2, 2), **options}
    expected = leaves(jax.jit(function)(*args))
    got = shardc.jit(function, cluster=CLUSTER, **chosen)(*args)
    found = leaves(got)
    assert found.keys() == expected.keys()
    for name, want in expected.items():
        assert found[name].dtype == want.dtype
        if exact or want.dtype.kind not in "fc":
            np.testing.assert_array_equal(found[name], want)
        else:
            limit = 1e-5 * np.abs(want).max(initial=1.0)
            np.testing.assert_allclose(found[name], want, rtol=1e-5, atol=limit)
    return got


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def convolution(layout: tuple[str, str, str], x: Any, k: Any, **options: Any) -> Any:
    return lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=layout, **options)


def loss_of_convolution(x: Any, k: Any) -> Any:
    def loss(k: Any) -> Any:
        y = lax.conv_general_dilated(
            x, k, (2, 1), [(1, 1), (2, 0)], rhs_dilation=(1, 2), feature_group_count=4
        )
        return jnp.sum(y * y)

    return jax.value_and_grad(loss)(k)


X = normal(ROWS, 16)
SQUARE = normal(ROWS, 4, 4) @ normal(ROWS, 4, 4).transpose(0, 2, 1) + 4 * np.eye(4, dtype="float32")
IMAGES = normal(ROWS, 8, 8, 4)
NHWC = ("NHWC", "HWIO", "NHWC")
GROUPS = np.array([3, 0, 5], np.int32)

OPS: dict[str, tuple[Any, ...]] = {
    "top_k": (partial(lax.top_k, k=3), X),
    "approx_max_k": (partial(lax.approx_max_k, k=3), X),
    "sort_pairs": (lambda x: lax.sort([x, -x, x * 2], num_keys=2), np.round(X)),
    "argsort": (lambda x: (jnp.argsort(x), jnp.argsort(x, axis=0)), X),
    "unique": (lambda x: jnp.unique(x, size=8), np.round(X)),
    "searchsorted": (lambda x: jnp.searchsorted(jnp.sort(x[0]), x), X),
    "histogram": (lambda x: jnp.histogram(x, 5), X),
    "max_pool": (
        lambda x: jax.grad(
            lambda x: lax.reduce_window(
                x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"
            ).sum()
        )(x),
        IMAGES,
    ),
    "mean_pool": (
        lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 3, 2, 1), (1, 2, 1, 1), "VALID"),
        IMAGES,
    ),
    "convolution_nhwc": (partial(convolution, NHWC), IMAGES, normal(3, 3, 4, 8)),
    "convolution_chwn": (
        partial(convolution, ("CHWN", "OIHW", "NHCW")),
        IMAGES,
        normal(4, 8, 3, 3),
    ),
    "convolution_in_groups": (
        partial(convolution, NHWC, feature_group_count=4, rhs_dilation=(2, 1)),
        IMAGES,
        normal(3, 3, 1, 8),
    ),
    "convolution_transposed": (
        lambda x, k: lax.conv_transpose(x, k, (2, 2), "SAME"),
        IMAGES,
        normal(3, 3, 4, 8),
    ),
    "convolution_gradient": (loss_of_convolution, normal(ROWS, 8, 8, 8), normal(8, 2, 3, 3)),
    "dynamic_slice": (
        lambda x, i: (lax.dynamic_slice(x, (i, 0), (4, 16)), x.at[i].set(0.0), x[i, i]),
        X,
        np.int32(2),
    ),
    "complex": (lambda x: jnp.exp(lax.complex(x, -x)) @ (x.T + 1j), X),
    "fft": (lambda x: (jnp.fft.rfft(x), jnp.fft.ifft2(x), jnp.fft.irfft(jnp.fft.rfft(x))), X),
    "special_functions": (
        lambda x: (
            lax.erf_inv(jnp.tanh(x)),
            lax.digamma(x),
            lax.bessel_i1e(x),
            lax.igamma(jnp.abs(x) + 1, jnp.abs(x)),
            lax.nextafter(x, -x),
        ),
        X,
    ),
    "ragged_dot": (
        lambda x, w, sizes: lax.ragged_dot(x, w, sizes),
        X,
        normal(3, 16, 4),
        GROUPS,
    ),
    "ragged_dot_gradient": (
        jax.grad(lambda w, x, sizes: jnp.sum(lax.ragged_dot(x, w, sizes) ** 2)),
        normal(3, 16, 4),
        X,
        GROUPS,
    ),
    "cholesky": (lambda x: jnp.linalg.cholesky(x), SQUARE),
    "qr": (lambda x: jnp.abs(jnp.linalg.qr(x)[1]), SQUARE),
    "svd": (lambda x: jnp.linalg.svd(x, compute_uv=False), SQUARE),
    "eigh": (lambda x: jnp.linalg.eigvalsh(x), SQUARE),
    "solve": (lambda x: jnp.linalg.solve(x, x[:, :, :2]), SQUARE),
    "inverse": (lambda x: (jnp.linalg.inv(x), jnp.linalg.det(x)), SQUARE),
    "barrier": (lambda x: lax.optimization_barrier((x, x * 2)), X),
    "integers_and_booleans": (
        lambda x: (x > 0, jnp.argmax(x, 1), (x * 9).astype(jnp.int8), jnp.any(x > 2)),
        X,
    ),
    "four_bits": (lambda x: (x * 4).astype(jnp.int4).astype(jnp.float32) + 1, X),
    "eight_bits": (lambda x: x.astype(jnp.float8_e4m3fn).astype(jnp.float32), X),
    "empty": (lambda x, e: (x[:, :0], jnp.concatenate([e, e]), e.sum(), x[:0] @ x.T), X, X[:, :0]),
    "scalars": (lambda a, b: (a + b, a > b), np.float32(1), np.float32(2)),
    "no_results": (lambda x: (), X),
    "an_argument_as_result": (lambda x: (x, x), X),
    "constants_only": (lambda: jnp.arange(8.0) * 2,),
    "unused_argument": (lambda x, y: x + 1, X, X),
    "associative_scan": (lambda x: lax.associative_scan(jnp.multiply, x, axis=0), X),
    "cumulative": (lambda x: (jnp.cumsum(x, 1), lax.cummax(x, 0), jnp.cumprod(x, 0)), X),
    "select_n": (lambda x: lax.select_n(jnp.abs(x.astype(int)) % 3, x, x * 2, x * 3), X),
    "switch": (lambda x, i: lax.switch(i, [jnp.sin, jnp.cos, jnp.tanh], x), X, np.int32(1)),
    "while": (lambda x: lax.while_loop(lambda c: c.sum() < 99, lambda c: c + 1, x), X),
    "map": (lambda x: lax.map(jnp.sort, x), X),
    "custom_jvp": (lambda x: jax.grad(lambda x: jax.nn.relu(x).sum())(x), X),
    "reduce_precision": (lambda x: lax.reduce_precision(x, 5, 2), X),
    "bitcast": (lambda x: lax.bitcast_convert_type(x, jnp.uint8), X),
    "high_halves": (lambda x: lax.mulhi(x, x), np.arange(16, dtype=np.uint32) << 28),
    "mean_over_a_named_axis": (
        lambda x: jax.vmap(lambda v: v - lax.pmean(v, "rows"), axis_name="rows")(x),
        X,
    ),
    "precision": (lambda x: jnp.dot(x, x.T, precision="highest"), X),
    "widened_dot": (
        lambda x: lax.dot(x, x.T, preferred_element_type=jnp.float32),
        np.round(X).astype(np.int8).astype(jnp.bfloat16),
    ),
}


@pytest.mark.parametrize("name", OPS)
def test_op_on_a_mesh(name: str) -> None:
    function, *args = OPS[name]
    check(function, *args)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_random_bits_are_those_of_one_device(impl: str) -> None:
    def draw(key: jax.Array, x: Any) -> Any:
        key, other = jax.random.split(key)
        keep = jax.random.bernoulli(other, 0.5, x.shape)
        return key, jnp.where(keep, x, 0), jax.random.normal(other, (8, 8)), jax.random.bits(key)

    check(draw, jax.random.key(3, impl=impl), X, exact=True)


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
@pytest.mark.parametrize("microbatches", [1, 2])
def test_dropout_of_each_example_leaves_layers_to_cut(impl: str, microbatches: int) -> None:
    """`rbg` draws bits in a loop over the keys, `unsafe_rbg` those of all examples at once."""

    def drop(key: jax.Array, row: jax.Array) -> jax.Array:
        return jnp.where(jax.random.bernoulli(key, 0.8, row.shape), row, 0)

    def step(w: Any, key: jax.Array, x: jax.Array) -> Any:
        def loss(w: Any) -> jax.Array:
            hidden = x
            for layer, matrix in enumerate(w):
                keys = jax.random.split(jax.random.fold_in(key, layer), ROWS)
                hidden = jax.vmap(drop)(keys, jnp.tanh(hidden @ matrix))
            return jnp.mean(hidden**2)

        value, gradient = jax.value_and_grad(loss)(w)
        return jax.tree.map(lambda p, g: p - 0.1 * g, w, gradient), value

    args = [normal(16, 16, seed=n) / 4 for n in range(3)], jax.random.key(3, impl=impl), X
    options = {"stages": 2, "microbatches": microbatches, "mesh": (2,)}
    run = shardc.jit(step, cluster=CLUSTER, **options)
    got, expected = leaves(run(*args)), leaves(jax.jit(step)(*args))
    assert run.plan is not None
    assert (run.plan.num_stages, run.plan.num_microbatches) == (2, microbatches)
    for name, want in expected.items():
        np.testing.assert_allclose(got[name], want, rtol=1e-5, atol=1e-6)


def test_shard_map_over_one_device() -> None:
    """Its collectives go from a device to itself."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("i", "j"))

    def on_device(v: Any) -> Any:
        gathered, sent = lax.all_gather(v, "i"), lax.ppermute(v, "i", [(0, 0)])
        return lax.psum(v * 2, "i"), lax.pmax(v, "j"), gathered, sent, lax.axis_index("i")

    def step(x: Any) -> Any:
        specs = {"in_specs": PartitionSpec("i"), "out_specs": PartitionSpec(), "check_vma": False}
        return jax.shard_map(on_device, mesh=mesh, **specs)(x)

    check(step, X)


@pytest.mark.parametrize("mesh", [(1,), (1, 1), (1, 4), (2, 1, 2)])
def test_axes_of_one_device(mesh: tuple[int, ...]) -> None:
    check(lambda x: jnp.tanh(x @ x.T), X, mesh=mesh)


def test_the_start_of_a_custom_reduction_counts_once() -> None:
    """Its operand is sorted along the other dim: an all-to-all would be in between."""

    def f(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
        z = jnp.tanh(x @ w)
        reduced = lax.reduce(z, np.float32(0.5), lambda a, b: a + b + 0.1 * a * b, (0,))
        return reduced, jnp.sort(z, 1)

    check(f, normal(16, 8), normal(8, 8), mesh=(8,))


def test_64_bits() -> None:
    with jax.enable_x64(True):
        check(
            lambda x, i: (x @ x.T, jnp.arange(8) + i, jnp.argmax(x), jnp.linalg.inv(x[:8, :8])),
            X.astype(np.float64),
            np.int64(1 << 40),
        )


def test_raw_keys() -> None:
    check(lambda key: jax.random.split(key, 4), jax.random.PRNGKey(3))
    check(lambda keys: jax.random.uniform(keys[1], (8,)), jax.random.split(jax.random.key(0), 4))


@pytest.mark.parametrize("mesh", [(2, 2), (8,)])
def test_xla_partitions_approximate_top_k(mesh: tuple[int, ...]) -> None:
    w = normal(16, 64, seed=1)
    check(lambda w, x: lax.approx_max_k(x @ w, 4), w, X, lowering="xla", mesh=mesh)

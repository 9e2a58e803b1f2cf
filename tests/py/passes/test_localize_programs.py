"""Whole programs, values and constants on a mesh: the devices together compute what one would."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.mlir import ir

from shardc.analysis.shardings.strategies import value_shardings
from shardc.cost.reshard import describe
from shardc.ir.attributes import SHARDING, set_result_attrs
from shardc.ir.context import parse
from shardc.ir.shardings import (
    add_mesh,
    attrs_on,
    set_operand_shardings,
    set_result_shardings,
    to_attr,
)
from shardc.ir.walk import main_function, ops
from shardc.plan.layout import Mesh, TensorSharding
from tests.py.passes.on_devices import run_local, run_whole
from tests.py.passes.one_op import MESH, localized
from tests.py.passes.random_plans import plan_at_random
from tests.py.passes.reshard_programs import VALUE, resharding
from tests.py.programs import Program, build
from tests.py.split_programs import copy_of, normalized

CUBE = Mesh((("x", 2), ("y", 2), ("z", 2)), tuple(range(8)))


@pytest.fixture(autouse=True)
def with_64_bits() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


# Values: from every sharding to every other.


def sources(mesh: Mesh) -> list[TensorSharding]:
    """Every sharding of an [8, 8] tensor, axes in the mesh's order and in the opposite one."""
    found = list(value_shardings((8, 8), mesh.axes, True))
    found += [TensorSharding(tuple(d[::-1] for d in s.dims), s.unreduced) for s in found]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("source", sources(MESH), ids=describe)
def test_a_value_gets_from_one_sharding_to_every_other(source: TensorSharding) -> None:
    check_reshards(source, sources(MESH), MESH)


@pytest.mark.parametrize("source", sources(CUBE)[::9], ids=describe)
def test_a_value_gets_around_on_three_axes(source: TensorSharding) -> None:
    check_reshards(source, sources(CUBE)[::7], CUBE)


def check_reshards(source: TensorSharding, targets: list[TensorSharding], mesh: Mesh) -> None:
    """Goes from `source` to each target that it can get to."""
    targets = [t for t in targets if set(t.unreduced) <= set(source.unreduced)]
    module = resharding(source, targets, mesh)
    for got, target in zip(run_local(module, mesh, [VALUE]), targets, strict=True):
        np.testing.assert_array_equal(got, VALUE, err_msg=describe(target))


@pytest.mark.parametrize(
    ("element", "dtype"), [("bf16", jnp.bfloat16), ("i8", np.int8), ("ui32", np.uint32)]
)
def test_other_types_get_around_under_xla(element: str, dtype: Any) -> None:
    value = (VALUE % 7).astype(dtype)
    source = TensorSharding((("x",), ()), ("y",))
    targets = [
        TensorSharding(((), ())),
        TensorSharding((("x",), ("y",))),
        TensorSharding(((), ("x", "y"))),
    ]
    module = resharding(source, targets, MESH, element)
    for got in run_local(module, MESH, [value], xla=True):
        np.testing.assert_array_equal(got, value)


# Constants: each device makes its own part.


@pytest.mark.parametrize(
    "text",
    [
        "stablehlo.constant dense<7.0> : tensor<4x4xf32>",
        "stablehlo.constant dense<[[1, 2, 3, 4], [5, 6, 7, 8], [9, 1, 2, 3], [4, 5, 6, 7]]>"
        " : tensor<4x4xi32>",
        "stablehlo.constant dense<true> : tensor<4x4xi1>",
        "stablehlo.iota dim = 0 : tensor<4x4xf32>",
        "stablehlo.iota dim = 1 : tensor<4x4xi64>",
        "stablehlo.iota dim = 1 : tensor<4x4xui8>",
    ],
)
def test_constants_are_made_in_parts(text: str) -> None:
    type = text.split(" : ")[1]
    whole = f"func.func @main() -> {type} {{ %0 = {text} return %0 : {type} }}"
    (expected,) = run_whole(parse(whole), [])
    for sharding in value_shardings((4, 4), MESH.axes):
        module = parse(whole)
        main = main_function(module.operation)
        with module.context, ir.Location.unknown():
            add_mesh(module.operation, "mesh", MESH)
            set_operand_shardings(ops(main)[0], [], attrs_on("mesh"))
            set_result_shardings(ops(main)[0], [sharding], attrs_on("mesh"))
            set_result_attrs(main, [{SHARDING: to_attr(sharding, "mesh")}])
        (got,) = run_local(localized(module), MESH, [])
        np.testing.assert_array_equal(got, expected)


# Programs: no choice of strategies changes what is computed.


def transformer_step(params: Any, tokens: jax.Array) -> tuple[Any, jax.Array]:
    """One step of a transformer of one small layer: gather, softmax, layer norm, scatter."""

    def norm(x: jax.Array) -> jax.Array:
        x = x - x.mean(-1, keepdims=True)
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)

    def loss_of(params: Any) -> jax.Array:
        x = params["embedding"][tokens]
        q, k, v = (norm(x) @ w for w in params["qkv"])
        scores = jnp.where(jnp.tri(4) > 0, jnp.einsum("bqd,bkd->bqk", q, k), -1e9)
        x = x + jax.nn.softmax(scores) @ v
        x = x + jnp.tanh(norm(x) @ params["up"]) @ params["down"]
        logits = jax.nn.log_softmax(x @ params["embedding"].T)
        return -jnp.take_along_axis(logits, tokens[..., None], -1).mean()

    loss, grads = jax.value_and_grad(loss_of)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss


def transformer() -> Program:
    random = np.random.default_rng(0)
    shapes = {"embedding": (8, 4), "qkv": (3, 4, 4), "up": (4, 8), "down": (8, 4)}
    params = {name: random.normal(size=shape) for name, shape in shapes.items()}
    return Program(transformer_step, (params, random.integers(0, 8, (4, 4))))


def convolution_step(params: Any, images: jax.Array) -> tuple[Any, jax.Array]:
    """One step of two convolutions and a maximum over windows."""

    def loss_of(params: Any) -> jax.Array:
        numbers = ("NHWC", "HWIO", "NHWC")
        x = images
        for kernel in params:
            x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers)
            x = jax.nn.relu(x)
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return (x * x).sum()

    loss, grads = jax.value_and_grad(loss_of)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss


def convolutions() -> Program:
    random = np.random.default_rng(0)
    params = [random.normal(size=(3, 3, 2, 4)), random.normal(size=(3, 3, 4, 2))]
    return Program(convolution_step, (params, random.normal(size=(4, 4, 4, 2))))


def loop_step(rows: jax.Array, start: jax.Array) -> jax.Array:
    """A loop that uses a value from outside and stacks what it makes."""

    def body(carry: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        carry = jnp.sin(carry * row) + rows.sum(0)
        return carry, carry

    last, every = jax.lax.scan(body, start, rows)
    return last[None] * every @ every.T


def loop() -> Program:
    random = np.random.default_rng(0)
    return Program(loop_step, (random.normal(size=(4, 8)), random.normal(size=8)))


def scanned_step(params: Any, x: jax.Array, y: jax.Array) -> Any:
    """Layers in a loop, and their gradients in another one, with a branch inside."""

    def loss_of(params: Any) -> jax.Array:
        def layer(h: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
            h = jax.lax.cond(h[0, 0] > 0, lambda: jnp.tanh(h @ w), lambda: h @ w + x)
            return h, None

        h, _ = jax.lax.scan(jax.checkpoint(layer), x, params)
        return ((h - y) ** 2).mean()

    loss, grads = jax.value_and_grad(loss_of)(params)
    return params - 0.1 * grads, loss


def scanned() -> Program:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(2, 4, 8))
    return Program(scanned_step, (random.normal(size=(2, 8, 8)) / 3, x, y))


def search_step(x: jax.Array, w: jax.Array) -> Any:
    """Loops in a loop, with trips that depend on the data."""

    def halve(carry: Any) -> Any:
        n, v = carry
        v = jax.lax.fori_loop(0, 3, lambda i, v: jnp.tanh(v @ w) + i, v)
        return n + 1, v / 2

    return jax.lax.while_loop(lambda c: (c[0] < 9) & (c[1].max() > 0.3), halve, (0, x))


def search() -> Program:
    random = np.random.default_rng(0)
    return Program(search_step, (random.normal(size=(4, 8)), random.normal(size=(8, 8))))


def mlp() -> Program:
    return build("mlp", "float64", 8)


# The interpreter gives a collective that runs again what it gave it the first time.
IN_LOOPS = (loop, scanned, search)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("program", [mlp, transformer, convolutions, loop, scanned, search])
def test_random_strategies_compute_the_same(program: Callable[[], Program], seed: int) -> None:
    whole, args = normalized(program())
    module = copy_of(whole)
    plan_at_random(module, MESH, seed)
    expected = run_whole(whole, args, xla=True)
    found = run_local(localized(module), MESH, args, xla=program in IN_LOOPS)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9 * np.abs(want).max(initial=1.0))


@pytest.mark.parametrize("seed", range(2))
def test_a_second_run_changes_nothing(seed: int) -> None:
    module, _ = normalized(transformer())
    plan_at_random(module, MESH, seed)
    once = str(localized(module))
    assert str(localized(module)) == once

"""Copies of forward values are found, and nothing else is taken for one."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.extend.mlir import ir

from shardc.analysis.residency.recomputed import Recomputation, computes_twice, recomputations
from shardc.cutting import split
from shardc.ir.context import parse
from shardc.ir.pass_manager import run_passes
from shardc.ir.walk import defining_op, main_function
from shardc.passes.pipeline import NORMALIZE
from shardc.passes.plan_stages import PlanStages

Layer = Callable[[jax.Array, jax.Array], jax.Array]
LAYERS, WIDTH, ROWS = 4, 8, 16


def unrolled(layer: Layer) -> Callable[..., jax.Array]:
    def loss(ws: jax.Array, x: jax.Array) -> jax.Array:
        for n in range(LAYERS):
            x = layer(x, ws[n])
        return jnp.mean(x**2)

    return loss


def scanned(layer: Layer) -> Callable[..., jax.Array]:
    def loss(ws: jax.Array, x: jax.Array) -> jax.Array:
        x, _ = lax.scan(lambda h, w: (layer(h, w), None), x, ws)
        return jnp.mean(x**2)

    return loss


def step_of(loss: Callable[..., jax.Array]) -> Callable[..., Any]:
    def step(ws: jax.Array, x: jax.Array) -> Any:
        value, gradient = jax.value_and_grad(loss)(ws, x)
        return ws - 0.1 * gradient, value

    return step


def prepared(step: Callable[..., Any]) -> ir.Module:
    ws = jax.ShapeDtypeStruct((LAYERS, WIDTH, WIDTH), jnp.float32)
    x = jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.float32)
    module = parse(jax.jit(step, donate_argnums=0).lower(ws, x).as_text())
    run_passes(module, NORMALIZE)
    return module


def found_in(module: ir.Module) -> list[Recomputation]:
    staged = split(module, 2, None)
    run_passes(staged, [PlanStages()])
    with staged.context:
        return recomputations(main_function(staged.operation))


def kept(step: Callable[..., Any]) -> list[str]:
    """The kinds of the ops whose results could be kept, broadcasts and the like aside."""
    kinds = [
        op.name.removeprefix("stablehlo.")
        for found in found_in(prepared(step))
        for value in found.originals
        if (op := defining_op(value)) is not None
    ]
    return sorted(kind for kind in kinds if kind in ("dot_general", "tanh", "sine"))


def block(h: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.sin(jnp.tanh(h @ w) @ w)


@pytest.mark.parametrize(("through", "times"), [(unrolled, LAYERS), (scanned, 1)])
def test_what_a_checkpoint_computes_again_is_found(through: Any, times: int) -> None:
    """But for the sine, which nothing on the way back needs."""
    module = prepared(step_of(through(jax.checkpoint(block))))
    with module.context:
        assert computes_twice(main_function(module.operation))
    wanted = sorted(["dot_general", "dot_general", "tanh"] * times)
    assert kept(step_of(through(jax.checkpoint(block)))) == wanted


@pytest.mark.parametrize("through", [unrolled, scanned])
def test_without_a_checkpoint_nothing_is(through: Any) -> None:
    module = prepared(step_of(through(block)))
    with module.context:
        assert not computes_twice(main_function(module.operation))
    assert kept(step_of(through(block))) == []


@pytest.mark.slow
@pytest.mark.parametrize("through", [unrolled, scanned])
def test_random_bits_of_the_same_key_are_the_same(through: Any) -> None:
    def dropped(h: jax.Array, w: jax.Array) -> jax.Array:
        key = jax.random.fold_in(jax.random.key(0), jnp.int32(1e3 * w[0, 0]))
        return jnp.where(jax.random.bernoulli(key, 0.5, w.shape), jnp.tanh(w), 0.0).T @ h.T

    def layer(h: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.tanh(jax.checkpoint(dropped)(h, w).T)

    assert "tanh" not in kept(step_of(through(layer)))  # of parameters: the same each microbatch


def other_on_the_way_back(change: Callable[[jax.Array, jax.Array], jax.Array]) -> Layer:
    """tanh(h @ w), whose gradient computes something like that."""

    @jax.custom_vjp
    def layer(h: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.tanh(h @ w)

    def backward(kept: Any, gradient: jax.Array) -> Any:
        h, w = kept
        z = change(*lax.optimization_barrier((h, w)))
        d = gradient * (1 - z * z)
        return d @ w.T, h.T @ d

    layer.defvjp(lambda h, w: (layer(h, w), (h, w)), backward)
    return layer


@pytest.mark.parametrize("through", [unrolled, scanned])
@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        pytest.param(lambda h, w: jnp.tanh(h @ w), ["dot_general", "tanh"], id="the same"),
        pytest.param(lambda h, w: jnp.tanh(h @ w.T), [], id="another operand"),
        pytest.param(
            lambda h, w: jnp.tanh(jnp.matmul(h, w, precision="highest")), [], id="an attribute"
        ),
        pytest.param(lambda h, w: jnp.sin(h @ w), ["dot_general"], id="another op behind it"),
    ],
)
def test_only_the_same_ops_of_the_same_values_count(
    through: Any, change: Any, kinds: list[str]
) -> None:
    times = LAYERS if through is unrolled else 1
    assert kept(step_of(through(other_on_the_way_back(change)))) == sorted(kinds * times)


def test_each_copy_has_a_name_of_its_own() -> None:
    """Two gradients compute the same forward values again."""
    loss = unrolled(jax.checkpoint(block))

    def step(ws: jax.Array, x: jax.Array) -> Any:
        value, gradient = jax.value_and_grad(loss)(ws, x)
        twice = jax.grad(lambda ws: 2 * loss(ws, x))(ws)
        return ws - 0.1 * gradient - 0.1 * twice, value

    originals = [o for found in found_in(prepared(step)) for o in found.originals.values()]
    assert len({each.value for each in originals}) < len(originals)
    names = [each.name for each in originals if each.name]
    assert any(name.endswith("#2") for name in names)
    assert len(set(names)) == len(names)


def test_a_row_of_another_layer_does_not_count() -> None:
    """The way back reads what the layer before was given."""

    @jax.custom_vjp
    def run(ws: jax.Array, x: jax.Array) -> jax.Array:
        return lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, ws)[0]

    def forward(ws: jax.Array, x: jax.Array) -> Any:
        last, given = lax.scan(lambda h, w: (jnp.tanh(h @ w), h), x, ws)
        return last, (ws, given)

    def backward(saved: Any, gradient: jax.Array) -> Any:
        ws, given = saved

        def layer(g: jax.Array, of: Any) -> Any:
            h, w = of
            d = g * (1 - jnp.tanh(h @ w) ** 2)
            return d @ w.T, h.T @ d

        shifted = jnp.concatenate([given[1:], given[:1]])
        first, ws_gradient = lax.scan(layer, gradient, (shifted, ws), reverse=True)
        return ws_gradient, first

    run.defvjp(forward, backward)
    assert kept(step_of(lambda ws, x: jnp.mean(run(ws, x) ** 2))) == []

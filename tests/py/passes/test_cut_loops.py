"""Loops in pieces give what whole loops give, whatever they read, write and add up."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.analysis.loops.stacked_layers import even_cuts, stacked_layers
from shardc.analysis.program.arguments import state_arguments
from shardc.analysis.program.counted_loop import trip_count
from shardc.compiler import prepare
from shardc.importer.from_jax import import_function
from shardc.ir.attributes import PIECE, arg_attrs, result_attrs
from shardc.ir.copy import copy_module
from shardc.ir.pass_manager import run_passes
from shardc.ir.walk import main_function, ops
from shardc.passes.cut_loops import CutLoops

LAYERS, WIDTH = 5, 4
RNG = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32) / 2


def loss_of_layers(weights: Any, x: Any, *, axis: int = 0, remat: bool = False) -> Any:
    """A scan over layers whose weights are stacked along `axis`."""

    def layer(h: Any, w: Any) -> Any:
        return jnp.tanh(h @ w), jnp.sum(h)

    stacked = jnp.moveaxis(weights, axis, 0)
    h, sums = jax.lax.scan(jax.checkpoint(layer) if remat else layer, x, stacked)
    return jnp.sum(h**2) + jnp.sum(sums**2)


def adam_step(state: Any, x: Any, **options: Any) -> Any:
    weights, moments = state
    loss, grads = jax.value_and_grad(loss_of_layers)(weights, x, **options)
    norm = jnp.sqrt(jnp.sum(grads**2))
    moments = 0.9 * moments + 0.1 * grads / jnp.maximum(1.0, norm)
    return (weights - 0.1 * moments, moments), loss


def over_time(weights: Any, xs: Any) -> Any:
    """The same weights in every iteration: their gradients are added up around the loop."""

    def loss(w: Any) -> Any:
        def cell(h: Any, x: Any) -> Any:
            h = jnp.tanh(h @ w + x)
            return h, h

        h, hs = jax.lax.scan(cell, jnp.zeros((2, WIDTH)), xs)
        return jnp.sum(hs**2) + jnp.sum(h)

    value, gradient = jax.value_and_grad(loss)(weights)
    return weights - gradient, value


def backwards(weights: Any, x: Any) -> Any:
    def layer(h: Any, w: Any) -> Any:
        return jnp.tanh(h @ w), h

    h, hs = jax.lax.scan(layer, x, weights, reverse=True)
    return h, hs[::-1]


def indexed(weights: Any, x: Any) -> Any:
    """Rows by index, of a stack that is read as a whole, too."""

    def layer(i: Any, h: Any) -> Any:
        return h @ weights[i] + jnp.mean(weights)

    return jax.lax.fori_loop(0, LAYERS, layer, x)


def two_networks(state: Any, x: Any) -> Any:
    def loss(state: Any) -> Any:
        return loss_of_layers(state["a"], x) + loss_of_layers(state["b"], x)

    grads = jax.grad(loss)(state)
    return jax.tree.map(lambda w, g: w - g, state, grads)


def layers_sharing_weights(weights: Any, x: Any) -> Any:
    """No iteration reads rows going forwards; backwards it reads what was stashed."""

    def loss(w: Any) -> Any:
        h, _ = jax.lax.scan(lambda h, _: (jnp.tanh(h @ w), None), x, length=LAYERS)
        return jnp.sum(h**2)

    value, gradient = jax.value_and_grad(loss)(weights)
    return weights - gradient, value


def decoding(state: Any, weights: Any) -> Any:
    """Tokens one after the other, with a cache that every iteration reads as a whole."""

    def token(i: Any, carry: Any) -> Any:
        cache, h, found = carry
        cache = jax.lax.dynamic_update_index_in_dim(cache, h, i + 1, 1)
        seen = jnp.arange(cache.shape[1]) <= i + 1
        weight = jax.nn.softmax(jnp.einsum("bd,btd->bt", h, cache) + jnp.where(seen, 0, -1e9))
        h = jnp.tanh(jnp.einsum("bt,btd->bd", weight, cache) @ weights)
        return cache, h, found.at[i].set(jnp.argmax(h, axis=-1))

    cache, h = state
    found = jnp.zeros((LAYERS, len(h)), jnp.int32)
    cache, h, found = jax.lax.fori_loop(0, LAYERS, token, (cache, h, found))
    return (cache, h), found


STEPS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[int, ...]]] = {
    "adam": (adam_step, ((array(LAYERS, WIDTH, WIDTH),) * 2, array(3, WIDTH)), (0,)),
    "recomputed": (
        lambda s, x: adam_step(s, x, remat=True),
        ((array(LAYERS, WIDTH, WIDTH),) * 2, array(3, WIDTH)),
        (0,),
    ),
    "stacked along another dim": (
        lambda s, x: adam_step(s, x, axis=1),
        ((array(WIDTH, LAYERS, WIDTH),) * 2, array(3, WIDTH)),
        (0,),
    ),
    "not donated": (adam_step, ((array(LAYERS, WIDTH, WIDTH),) * 2, array(3, WIDTH)), ()),
    "over time": (over_time, (array(WIDTH, WIDTH), array(LAYERS, 2, WIDTH)), (0,)),
    "backwards": (backwards, (array(LAYERS, WIDTH, WIDTH), array(3, WIDTH)), ()),
    "indexed": (indexed, (array(LAYERS, WIDTH, WIDTH), array(3, WIDTH)), ()),
    "weights shared": (layers_sharing_weights, (array(WIDTH, WIDTH), array(3, WIDTH)), (0,)),
    "decoding": (
        decoding,
        ((array(3, LAYERS + 1, WIDTH), array(3, WIDTH)), array(WIDTH, WIDTH)),
        (0,),
    ),
    "two networks": (
        two_networks,
        ({"a": array(LAYERS, WIDTH, WIDTH), "b": array(3, WIDTH, WIDTH)}, array(3, WIDTH)),
        (0,),
    ),
}


def prepared(name: str) -> tuple[ir.Module, list[np.ndarray]]:
    fun, args, donated = STEPS[name]
    module = import_function(fun, args, {}, donate_argnums=donated).module
    prepare(module)
    return module, [np.asarray(leaf) for leaf in jax.tree.leaves(args)]


def evaluate(module: ir.Module, values: list[np.ndarray]) -> list[np.ndarray]:
    """Results by StableHLO's interpreter; stacks are taken apart before, put together behind."""
    with module.context, ir.Location.unknown():
        main = main_function(module.operation)
        types = [ir.RankedTensorType(a.type) for a in main.regions[0].blocks[0].arguments]
        given: list[np.ndarray] = []
        ends: dict[int, int] = {}  # of the rows of a stack that have been given
        for i, (type_, attrs) in enumerate(zip(types, arg_attrs(main), strict=True)):
            first, dim = _piece(attrs, i)
            start = [0] * type_.rank
            if dim is not None:
                start[dim] = ends.get(first, types[first].shape[dim])
                ends[first] = start[dim] + type_.shape[dim]
            place = [slice(a, a + n) for a, n in zip(start, type_.shape, strict=True)]
            given.append(values[first][tuple(place)])
        dense = [ir.DenseElementsAttr.get(np.ascontiguousarray(value)) for value in given]
        raw = [np.array(ir.DenseElementsAttr(v)) for v in stablehlo.eval_module(module, dense)]
        results: dict[int, np.ndarray] = {}
        for r, (value, attrs) in enumerate(zip(raw, result_attrs(main), strict=True)):
            first, dim = _piece(attrs, r)
            results[first] = value if dim is None else np.concatenate([results[first], value], dim)
    return list(results.values())


def _piece(attrs: dict[str, ir.Attribute], own: int) -> tuple[int, int | None]:
    if PIECE not in attrs:
        return own, None
    first, dim = ir.DenseI64ArrayAttr(attrs[PIECE])
    return first, dim


def loops(module: ir.Module) -> list[int | None]:
    """Trip counts of the loops of main."""
    with module.context:
        main = main_function(module.operation)
        return [trip_count(op) for op in ops(main) if op.name == "stablehlo.while"]


def num_arguments(module: ir.Module) -> int:
    with module.context:
        return len(arg_attrs(main_function(module.operation)))


@pytest.mark.parametrize("at", [(2,), (1, 2, 4)])
@pytest.mark.parametrize("name", STEPS)
def test_pieces_give_what_whole_loops_give(name: str, at: tuple[int, ...]) -> None:
    module, values = prepared(name)
    expected = evaluate(module, values)
    cut = copy_module(module)
    run_passes(cut, [CutLoops(at)])
    assert len(loops(cut)) > len(loops(module))
    for got, wanted in zip(evaluate(cut, values), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-6)
    text = str(cut)
    run_passes(cut, [CutLoops(at)])
    assert str(cut) == text


@pytest.mark.parametrize("name", ["adam", "recomputed", "stacked along another dim", "not donated"])
def test_weights_and_moments_are_taken_and_returned_by_rows(name: str) -> None:
    module, _ = prepared(name)
    cut = copy_module(module)
    run_passes(cut, [CutLoops((2,))])
    assert loops(cut) == [2, 3, 3, 2]  # the layers of a piece run backwards after those behind it
    assert num_arguments(cut) == num_arguments(module) + 2
    with cut.context:
        main = main_function(cut.operation)
        joined = [op for op in ops(main) if op.name == "stablehlo.concatenate"]
        # What each layer adds to the loss is added up after the loop; nothing else is joined.
        assert all(len(op.results[0].type.shape) == 1 for op in joined)


def test_a_stack_that_is_read_as_a_whole_stays_one_argument() -> None:
    module, _ = prepared("indexed")
    cut = copy_module(module)
    run_passes(cut, [CutLoops((2,))])
    assert (loops(cut), num_arguments(cut)) == ([2, 3], num_arguments(module))


def test_iterations_are_counted_over_all_networks() -> None:
    module, _ = prepared("two networks")
    cut = copy_module(module)
    run_passes(cut, [CutLoops((LAYERS + 1,))])
    assert sorted(loops(cut), key=str) == [1, 1, 2, 2, 5, 5]


@pytest.mark.slow
def test_networks_are_cut_in_proportion_to_their_work() -> None:
    module, _ = prepared("two networks")
    with module.context:
        flow = stacked_layers(module.operation, state_arguments(main_function(module.operation)))
    assert [group.trips for group in flow.groups] == [5, 3]
    assert even_cuts(flow, 1) == ()
    assert even_cuts(flow, 100) == (1, 2, 3, 4, 6, 7)
    assert len(even_cuts(flow, 4)) <= 3

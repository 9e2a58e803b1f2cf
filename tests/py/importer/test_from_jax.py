"""A function keeps its meaning, its names and its pytrees on the way into our context."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.errors import ShardcError
from shardc.importer.from_jax import import_function
from shardc.importer.program import Imported
from shardc.importer.static_arguments import split_static
from shardc.ir.pass_manager import run_passes
from shardc.ir.walk import body, main_function, ops, where
from shardc.passes.pipeline import NORMALIZE

TABLE = np.arange(12, dtype=np.float32).reshape(3, 4)


def names(imported: Imported) -> list[str]:
    return [argument.name for argument in imported.arguments]


def evaluate(module: ir.Module, *args: Any) -> list[np.ndarray]:
    """Results by StableHLO's interpreter, which shares no code with XLA."""
    with module.context, ir.Location.unknown():
        values = [ir.DenseElementsAttr.get(np.asarray(arg)) for arg in args]
        return [np.array(ir.DenseElementsAttr(v)) for v in stablehlo.eval_module(module, values)]


def step(state: dict[str, jax.Array], x: jax.Array, *rest: jax.Array, rate: float) -> Any:
    def loss(w: jax.Array) -> jax.Array:
        hidden = jax.nn.relu(x @ w + TABLE[:, :1])
        return jnp.sum(jax.checkpoint(jnp.sin)(hidden)) + sum(rest)

    value, gradient = jax.value_and_grad(loss)(state["w"])
    return {"w": state["w"] - rate * gradient, "unused": state["unused"]}, value


STATE = {"w": np.full((4, 4), 0.25, np.float32), "unused": np.zeros(3, np.int32)}


def test_values_equal_those_of_the_function_before_and_after_normalising() -> None:
    args = (STATE, TABLE, np.float32(2), np.float32(3))
    imported = import_function(step, args, {"rate": np.float32(0.5)})
    leaves = jax.tree.leaves((args, {"rate": np.float32(0.5)}))
    expected = jax.tree.leaves(jax.jit(step)(*args, rate=np.float32(0.5)))
    for _ in range(2):
        for got, wanted in zip(evaluate(imported.module, *leaves), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)
        run_passes(imported.module, NORMALIZE)


def test_arguments_have_the_users_names_in_the_order_of_the_leaves() -> None:
    imported = import_function(step, (STATE, TABLE, 2.0), {"rate": 0.5}, donate_argnums=0)
    assert names(imported) == ["state['unused']", "state['w']", "x", "rest[0]", "rate"]
    assert [r.name for r in imported.results] == [
        "result[0]['unused']",
        "result[0]['w']",
        "result[1]",
    ]
    assert imported.in_tree == jax.tree.structure(((STATE, TABLE, 2.0), {"rate": 0.5}))
    assert imported.out_tree == jax.tree.structure((STATE, 0))
    assert [a.weak_type for a in imported.arguments] == [False, False, False, True, True]


def test_donation_and_aliasing_are_in_the_module() -> None:
    def halve(kept: jax.Array, given: jax.Array, unusable: jax.Array) -> jax.Array:
        return given / 2 + kept

    args = (jnp.ones(3), jnp.ones(3), jnp.ones(5))
    imported = import_function(halve, args, donate_argnums=(1, 2))
    assert [(a.donated, a.aliased_result) for a in imported.arguments] == [
        (False, None),
        (True, 0),
        (True, None),
    ]
    assert "jax.buffer_donor = true" in str(imported.module)
    assert "tf.aliasing_output = 0" in str(imported.module)


def test_unused_arguments_and_repeated_results_keep_their_places() -> None:
    imported = import_function(lambda a, b, c: (b, b, 1.0), (1, np.ones(2), 3))
    assert [a.shape for a in imported.arguments] == [(), (2,), ()]
    assert [r.shape for r in imported.results] == [(2,), (2,), ()]


@pytest.mark.parametrize(
    ("options", "args", "kwargs"),
    [
        ({"static_argnums": 1}, (TABLE, 3), {}),
        ({"static_argnums": (-1,)}, (TABLE, 3), {}),
        ({"static_argnames": "power"}, (TABLE, 3), {}),
        ({"static_argnums": 1}, (TABLE,), {"power": 3}),
        ({"static_argnames": ("power",)}, (TABLE,), {"power": 3}),
    ],
    ids=str,
)
def test_static_arguments_are_no_arguments(
    options: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    def raised(x: jax.Array, power: int) -> jax.Array:
        return x if power == 0 else x**power

    imported = import_function(raised, args, kwargs, **options)
    assert names(imported) == ["x"]
    split = split_static(raised, args, kwargs, **options)
    assert imported.in_tree == jax.tree.structure((split.args, split.kwargs))
    assert [value for _, value in split.static] == [3]


def test_random_keys_travel_as_their_bits() -> None:
    def draw(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        next_key, now = jax.random.split(key)
        return next_key, jax.random.normal(now, (3,))

    for implementation, width in (("threefry2x32", 2), ("rbg", 4)):
        key = jax.random.key(1, impl=implementation)
        imported = import_function(draw, (key,))
        (argument,), (result, numbers) = imported.arguments, imported.results
        assert (argument.shape, argument.dtype) == ((width,), "uint32")
        assert argument.key_impl == result.key_impl == implementation
        assert numbers.key_impl is None


def test_where_the_arguments_lie_does_not_matter() -> None:
    first, second = jax.devices()[:2]
    args = (jax.device_put(jnp.ones(3), first), jax.device_put(jnp.ones(3), second))
    imported = import_function(lambda a, b: a + b, args)
    assert "mhlo.num_partitions = 1" in str(imported.module)


def test_shardings_of_the_user_are_kept() -> None:
    mesh = jax.make_mesh((4,), ("x",))
    split = jax.NamedSharding(mesh, jax.P("x"))
    imported = import_function(lambda a: a + 1, (jnp.ones(8),), in_shardings=split)
    run_passes(imported.module, NORMALIZE)
    assert 'sdy.sharding = #sdy.sharding<@user, [{"x"}]>' in str(imported.module)


def test_shapes_are_enough() -> None:
    shape = jax.ShapeDtypeStruct((2, 3), jnp.bfloat16)
    (argument,) = import_function(lambda x: x, (shape,)).arguments
    assert (argument.shape, argument.dtype) == ((2, 3), "bfloat16")


def test_any_registered_pytree_and_any_callable_will_do() -> None:
    @partial(jax.tree_util.register_dataclass, data_fields=["w"], meta_fields=["scale"])
    @dataclasses.dataclass(eq=False)
    class Layer:
        w: jax.Array
        scale: int

        def __call__(self, x: jax.Array) -> jax.Array:
            return x @ self.w * self.scale

    def apply(layer: Layer, x: jax.Array) -> Layer:
        return Layer(layer(x), layer.scale)

    imported = import_function(apply, (Layer(jnp.ones((4, 2)), 3), TABLE))
    assert names(imported) == ["layer.w", "x"]
    assert imported.out_tree == jax.tree.structure(Layer(TABLE, 3))
    bound = import_function(Layer(jnp.ones((4, 2)), 3), (TABLE,))
    np.testing.assert_array_equal(evaluate(bound.module, TABLE)[0], TABLE @ np.ones((4, 2)) * 3)


def test_a_second_import_does_not_see_the_passes_of_the_first() -> None:
    imported = import_function(step, (STATE, TABLE), {"rate": 0.5})
    before = str(imported.module)
    run_passes(imported.module, NORMALIZE)
    assert str(imported.module) != before
    assert str(import_function(step, (STATE, TABLE), {"rate": 0.5}).module) == before


def test_ops_remember_the_users_line_through_inlined_calls() -> None:
    imported = import_function(step, (STATE, TABLE), {"rate": 0.5})
    run_passes(imported.module, NORMALIZE)
    main = main_function(imported.module.operation)
    assert len(body(main).arguments) == 4
    line = step.__code__.co_firstlineno
    (maximum,) = [op for op in ops(main) if op.name == "stablehlo.maximum"]
    assert where(maximum) == f"test_from_jax.py:{line + 2} (loss)"
    assert isinstance(maximum.location, ir.NameLoc)
    assert maximum.location.name_str == "jit(step)/jvp()/jit(relu)/max"
    # MLIR gives constants that it brings out of regions no location.
    placed = [where(op) for op in ops(main) if op.name != "stablehlo.constant"]
    assert {place.partition(":")[0] for place in placed} == {"test_from_jax.py"}


def prints_in_order(x: jax.Array) -> jax.Array:
    jax.debug.print("x = {}", x, ordered=True)
    return x


def calls_back(x: jax.Array) -> jax.Array:
    return jax.experimental.io_callback(np.sin, x, x)


def calls_back_in_order(x: jax.Array) -> jax.Array:
    return jax.experimental.io_callback(np.sin, x, x, ordered=True)


@pytest.mark.parametrize("talkative", [prints_in_order, calls_back, calls_back_in_order])
def test_a_function_that_talks_to_the_host_is_refused(talkative: Any) -> None:
    with pytest.raises(ShardcError, match="host") as caught:
        import_function(talkative, (TABLE,))
    assert caught.value.code == "SHARDC-123"
    assert caught.value.exit_code == 2
    assert f"test_from_jax.py:{talkative.__code__.co_firstlineno}"[:-1] in str(caught.value)


def draws_without_a_key(x: jax.Array) -> jax.Array:
    return x * jax.lax.rng_uniform(0.0, 1.0, x.shape)


def draws_in_a_loop(x: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 2, lambda i, x: draws_without_a_key(x), x)


@pytest.mark.parametrize("stateful", [draws_without_a_key, draws_in_a_loop])
def test_what_may_run_only_once_is_refused(stateful: Any) -> None:
    """Copies of it on two stages had different numbers, and so had the ways there and back."""
    with pytest.raises(ShardcError, match=r"'stablehlo.rng' gives other results") as caught:
        import_function(stateful, (TABLE,))
    assert caught.value.code == "SHARDC-126"
    assert "test_from_jax.py" in str(caught.value)

"""What does not shrink with the microbatch, against the same functions in other microbatches."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from shardc.analysis.program.fusion import fused_traffic
from shardc.analysis.program.stage_table import batch_arguments
from shardc.analysis.residency.fixed_values import FixedValues
from shardc.compiler import prepare
from shardc.importer.from_jax import import_function
from shardc.ir.attributes import function_kind
from shardc.ir.context import Module
from shardc.ir.tensor_types import num_bytes, num_elements, shape_of
from shardc.ir.walk import functions, planned_ops, symbol
from shardc.planner.layer_samples import find_layers, layer_loops
from shardc.planner.split_cache import Splits
from tests.py.programs import build

Step = Callable[..., Any]
Arrays = tuple[jax.ShapeDtypeStruct, ...]


def shapes(*each: tuple[int, ...]) -> Arrays:
    return tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in each)


def scanned(weights: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    def loss(weights: jax.Array) -> jax.Array:
        h, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, weights)
        return jnp.mean(h**2)

    value, gradient = jax.value_and_grad(loss)(weights)
    return weights - gradient, value


def looked_up(
    table: jax.Array, weights: jax.Array, rows: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """A table whose gradient is scattered, and a product."""
    at = rows.astype(jnp.int32)

    def loss(table: jax.Array, weights: jax.Array) -> jax.Array:
        return jnp.mean(jnp.tanh(table[at] @ weights) ** 2)

    value, (of_table, of_weights) = jax.value_and_grad(loss, (0, 1))(table, weights)
    return table - of_table, weights - of_weights, value


def gpt() -> tuple[Step, Any]:
    program = build("gpt_sgd")
    return program.step, program.args


PROGRAMS: dict[str, Callable[[], tuple[Step, Any]]] = {
    "gpt": gpt,
    "scanned": lambda: (scanned, shapes((6, 24, 24), (16, 24))),
    "looked up": lambda: (looked_up, shapes((40, 24), (24, 20), (16,))),
}


def layers_in(splits: Splits, module: Module, count: int) -> Module:
    """The layers as stages, in some microbatches."""
    loops = layer_loops(module, 1 / 16)
    cuts = tuple(cut for first, _ in loops for cut in (first + 1, first + 2))
    found = find_layers(splits.cut_at(count, cuts), loops)
    assert isinstance(found, tuple)
    return found[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_fixed_has_one_shape_in_all_microbatches_and_the_rest_shrinks(name: str) -> None:
    """Of the rest, all that is read or written shrinks, but for one percent."""
    step, args = PROGRAMS[name]()
    module = import_function(step, args, {}, donate_argnums=0).module
    prepare(module)
    splits = Splits(module, None)
    few, many = (layers_in(splits, module, count) for count in (2, 4))
    fixed_bytes = shrunk = missed = 0
    for own, other in zip(functions(few.operation), functions(many.operation), strict=True):
        assert symbol(own) == symbol(other)
        kind = function_kind(own)
        if kind is None or not kind.per_microbatch:
            continue
        with few.context:
            values = FixedValues(own, batch_arguments(few.operation))
        pairs = zip(planned_ops(own), planned_ops(other), fused_traffic(own), strict=True)
        for op, same, traffic in pairs:
            assert op.name == same.name
            for value, alike in zip(op.results, same.results, strict=True):
                if num_elements(value) <= 1:
                    continue
                equal = shape_of(value) == shape_of(alike)
                assert equal or value not in values, f"{op} is called fixed"
                fixed_bytes += num_bytes(value) if value in values else 0
                shrunk += not equal
                missed += num_bytes(value) if equal and value not in values and any(traffic) else 0
    assert fixed_bytes and shrunk
    assert missed <= 0.01 * fixed_bytes

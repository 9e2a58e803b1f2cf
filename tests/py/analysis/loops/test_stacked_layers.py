"""Rows of stacks are followed through what an optimizer does with them, but not through zeros."""

import jax
import jax.numpy as jnp
import numpy as np

from shardc.analysis.loops.stacked_layers import stacked_layers
from shardc.analysis.program.arguments import state_arguments
from shardc.compiler import prepare
from shardc.cutting import split
from shardc.importer.from_jax import import_function
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import body, main_function
from shardc.planner.layer_samples import even_loop_cuts

LAYERS = HEADS = 4  # so that a gradient by layers and a parameter by heads have one shape


def step(w: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The layers are the second dim of `w`; the same zeros begin the gradient and the moments."""

    def loss_of(w: jax.Array) -> jax.Array:
        h, _ = jax.lax.scan(
            lambda h, row: (jnp.tanh(jnp.einsum("bi,hij->bj", h, row)), None),
            x,
            jnp.moveaxis(w, 1, 0),
        )
        return jnp.mean(h**2)

    loss, gradient = jax.value_and_grad(loss_of)(w)
    return w - (gradient + jnp.zeros_like(w) * jnp.square(jnp.zeros_like(w))), loss


def test_a_zero_that_two_stacks_share_does_not_say_where_their_rows_are() -> None:
    shapes = (
        jax.ShapeDtypeStruct((HEADS, LAYERS, 8, 8), np.float32),
        jax.ShapeDtypeStruct((4, 8), np.float32),
    )
    module = import_function(step, shapes, {}, donate_argnums=0).module
    prepare(module)
    with module.context:
        main = main_function(module.operation)
        flow = stacked_layers(module.operation, state_arguments(main))
        assert flow.stacks[body(main).arguments[0]][0] == 1
        assert not flow.conflicts
    cut = split(module, 2, None, (), even_loop_cuts(module, 2))
    with cut.context:
        pieces = [shape_of(value) for value in body(main_function(cut.operation)).arguments]
    assert pieces.count((HEADS, LAYERS // 2, 8, 8)) == 2

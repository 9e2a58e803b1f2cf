"""One module is always cut the same way, whatever memory the compiler gets for its ops."""

from random import Random

import jax
import jax.numpy as jnp
from jax import Array, lax

from shardc import compiler, cutting
from shardc.analysis.stages.layer_positions import layer_positions
from shardc.importer.from_jax import import_function
from shardc.ir.context import Module
from shardc.plan.layout import Mesh
from shardc.plan.shape import PipelineShape

MESHES = Mesh((("x", 2),), (0, 1)), Mesh((("x", 2),), (2, 3))
ELEMENTS = 128
REPEATS = 15

State = tuple[list[Array], Array, Array]


def step(state: State, x: Array) -> tuple[State, Array]:
    """Floats and integers of one size, wanted before the microbatches and after them."""
    weights, floats, key = state
    key, integers = lax.rng_bit_generator(key, (ELEMENTS,))
    for _ in range(4):
        floats, integers = lax.sort([jnp.tanh(floats), integers * 3], num_keys=1)
        integers ^= jnp.flip(integers)
    table = jnp.outer(floats, integers.astype(float))

    def loss(weights: list[Array]) -> Array:
        h = lax.fori_loop(0, 2, lambda _, h: h @ table, x @ weights[0])
        return jnp.mean(h[:, :4] @ weights[1])

    value, grads = jax.value_and_grad(loss)(weights)
    new = [w - g for w, g in zip(weights, grads, strict=True)]
    return (new, floats, key.at[0].set(integers[0])), value


def cut(module: Module) -> str:
    """The functions of two stages and two microbatches."""
    split = cutting.split(module, 2, None)
    with split.context:
        cuts = (layer_positions(split.operation, at_least=2)[1],)
    return str(cutting.cut(split, PipelineShape(2, cuts, MESHES, "1f1b")))


def test_every_cut_of_a_module_is_the_same() -> None:
    """MLIR gives the address of an erased op to another one: no answer may be kept by address."""
    weights = [jnp.ones((4, ELEMENTS)), jnp.eye(4)]
    state = weights, jnp.ones(ELEMENTS), jnp.zeros(4, jnp.uint32)
    module = import_function(step, (state, jnp.ones((4, 4))), {}, donate_argnums=(0,)).module
    compiler.prepare(module)
    random, kept, first = Random(0), [b""], cut(module)
    for _ in range(REPEATS - 1):
        kept += [bytes(random.randrange(1, 2000)) for _ in range(random.randrange(500))]
        random.shuffle(kept)
        del kept[len(kept) // 2 :]
        assert cut(module) == first

"""A shape that was found between pieces of loops is cut only where its stages begin."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardc.analysis.batch.microbatch_refusal import MicrobatchRefusal, RefusalReason
from shardc.analysis.program.counted_loop import trip_count
from shardc.compiler import prepare
from shardc.cost.submeshes import mesh_of
from shardc.cutting import outline_shape
from shardc.errors import MicrobatchError
from shardc.importer.from_jax import import_function
from shardc.ir.attributes import STAGE, get_int
from shardc.ir.walk import functions, main_function, ops
from shardc.plan.shape import PipelineShape
from shardc.planner.layer_samples import find_layers, layer_loops
from shardc.planner.split_cache import Splits


def step(weights: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    def loss(weights: jax.Array) -> jax.Array:
        h, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, weights)
        return jnp.mean(h**2)

    value, gradient = jax.value_and_grad(loss)(weights)
    return weights - gradient, value


def test_loops_are_cut_where_stages_begin_and_nowhere_else() -> None:
    shapes = jax.ShapeDtypeStruct((8, 16, 16), np.float32), jax.ShapeDtypeStruct((4, 16), "float32")
    module = import_function(step, shapes, {}, donate_argnums=0).module
    prepare(module)
    assert layer_loops(module, 1 / 16) == [(0, 8)]
    splits = Splits(module, None)
    layers, _ = find_layers(splits.cut_at(2, (1, 2)), [(0, 8)])
    meshes = tuple(mesh_of((4,), range(first, first + 4)) for first in (0, 4))
    again = splits.shape_at(PipelineShape(2, (), meshes, "1f1b"), layers.origins[4:5])
    assert again is not None and again.loop_cuts == (4,)
    split_module = splits.of(again)
    with split_module.context:
        top = ops(main_function(split_module.operation))
        assert [trip_count(op) for op in top if op.name == "stablehlo.while"] == [4, 4, 4, 4]
        assert trip_count(top[again.cuts[0]]) == 4


def test_shapes_with_equal_cuts_share_the_stages_of_ops() -> None:
    shapes = jax.ShapeDtypeStruct((8, 16, 16), np.float32), jax.ShapeDtypeStruct((4, 16), "float32")
    module = import_function(step, shapes, {}, donate_argnums=0).module
    prepare(module)
    splits = Splits(module, None)
    layers, _ = find_layers(splits.cut_at(2, (2, 4)), [(0, 8)])
    meshes = tuple(mesh_of((4,), range(first, first + 4)) for first in (0, 4))
    base = PipelineShape(2, (), meshes, "1f1b")
    found = [splits.shape_at(base, layers.origins[n : n + 1]) for n in range(1, 3)]
    early, late = (shape for shape in found if shape is not None)
    staged = splits.staged(early)
    assert splits.staged(early.recomputing(["none", "user"], [0, 0])) is staged
    assert splits.staged(late) is not staged
    assert splits.staged(early) is staged
    with staged.context:
        stages = [get_int(op, STAGE) for op in ops(main_function(staged.operation))]
    assert set(stages) == {0, 1}
    before = str(staged)
    outlined = outline_shape(staged, early, None)
    assert len(list(functions(outlined.operation))) > 2
    assert str(staged) == before


def tied(
    table: jax.Array, weights: jax.Array, x: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    def loss(table: jax.Array, weights: jax.Array) -> jax.Array:
        h, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), jnp.tanh(x @ table), weights)
        return jnp.mean((h @ table.T) ** 2)

    value, (of_table, of_weights) = jax.value_and_grad(loss, (0, 1))(table, weights)
    return table - of_table, weights - of_weights, value


def test_layers_that_are_far_apart_share_what_both_read() -> None:
    shapes = [(32, 16), (8, 16, 16), (4, 32)]
    arrays = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    module = import_function(tied, tuple(arrays), {}, donate_argnums=(0, 1)).module
    prepare(module)
    loops = layer_loops(module, 1 / 16)
    cuts = [cut for first, _ in loops for cut in (first + 1, first + 2)]
    layers, _ = find_layers(Splits(module, None).cut_at(2, tuple(cuts)), loops)
    assert len(layers.origins) == 10
    shared = {
        (earlier, later, layers.arguments[layers.samples[later]][place])
        for later, own in enumerate(layers.shared)
        for earlier, place in own
    }
    assert {each for each in shared if each[2] == "arg0"} == {(0, 9, "arg0")}
    assert all(each[:2] == (0, 9) for each in shared)  # the rows of a layer are its own


@pytest.mark.parametrize(("others", "analysed"), [((), [2]), ((3,), [2, 4])])
def test_what_no_number_of_microbatches_can_do_is_found_out_once(
    monkeypatch: pytest.MonkeyPatch, others: tuple[int, ...], analysed: list[int]
) -> None:
    found = []

    def refuse(module: object, count: int, *_: object) -> MicrobatchRefusal:
        found.append(count)
        return MicrobatchRefusal(RefusalReason.WHOLE_BATCH, "it cannot be cut", others=others)

    monkeypatch.setattr("shardc.planner.split_cache.try_split", refuse)
    module = import_function(lambda x: x, (np.ones(4, np.float32),), {}).module
    splits = Splits(module, None)
    for count in (2, 4):
        with pytest.raises(MicrobatchError, match="it cannot be cut"):
            splits.whole(count)
    assert found == analysed


def mean(losses: jax.Array, _: jax.Array) -> jax.Array:
    return jnp.mean(losses)


def mean_of_some(losses: jax.Array, rows: jax.Array) -> jax.Array:
    """Not linear in sums over the rows: it divides by one."""
    mask = rows > 0
    return jnp.sum(losses * mask) / jnp.sum(mask)


@pytest.mark.parametrize(("loss", "parts"), [(mean, 64), (mean_of_some, 4)])
def test_pieces_of_the_batch_limit_it_only_where_their_rows_meet(
    loss: Callable[[jax.Array, jax.Array], jax.Array], parts: int
) -> None:
    def accumulated(weights: jax.Array, x: jax.Array) -> jax.Array:
        def piece(total: jax.Array, rows: jax.Array) -> tuple[jax.Array, None]:
            return total + jax.grad(lambda w: loss(jnp.tanh(rows @ w) ** 2, rows))(weights), None

        pieces = x.reshape(4, 16, 8)
        return weights - jax.lax.scan(piece, jnp.zeros_like(weights), pieces)[0] / 4

    shapes = jax.ShapeDtypeStruct((8, 8), np.float32), jax.ShapeDtypeStruct((64, 8), "float32")
    module = import_function(accumulated, shapes, {}, donate_argnums=0).module
    prepare(module)
    splits = Splits(module, None)
    assert splits.batch_parts == parts
    assert splits.refusal(4) is None
    assert (splits.refusal(8) is None) == (parts == 64)

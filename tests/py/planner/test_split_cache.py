"""A shape that was found between pieces of loops is cut only where its stages begin."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardc.analysis.program.trip_count import trip_count
from shardc.cluster import Cluster
from shardc.compiler import Shape, prepare
from shardc.errors import MicrobatchError
from shardc.importer.from_jax import import_function
from shardc.ir.walk import main_function, ops
from shardc.options import PlanOptions
from shardc.planner.layer_costs import even_proposals
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
    splits = Splits(module, None)
    splits.cut_loops(8)
    assert splits.loop_cuts == (1, 2, 3, 4, 5, 6, 7)
    options = PlanOptions(stages=2, microbatches=2)
    cluster = Cluster.load("cpu8")
    found = even_proposals(splits.in_layers(2), cluster, options, 2, "1f1b")[0].shape
    shape = Shape(2, found.cuts, found.meshes, "1f1b", None, splits.loop_cuts)
    again = splits.recut(shape)
    assert again.loop_cuts == (4,)
    assert splits.recut(again) == again
    assert splits.counts == {2}
    split_module = splits.of(again)
    with split_module.context:
        top = ops(main_function(split_module.operation))
        assert [trip_count(op) for op in top if op.name == "stablehlo.while"] == [4, 4, 4, 4]
        assert trip_count(top[again.cuts[0]]) == 4


@pytest.mark.parametrize(("others", "analysed"), [((), [2]), ((3,), [2, 4])])
def test_what_no_number_of_microbatches_can_do_is_found_out_once(
    monkeypatch: pytest.MonkeyPatch, others: tuple[int, ...], analysed: list[int]
) -> None:
    found = []

    def refuse(module: object, count: int, *_: object) -> None:
        found.append(count)
        error = MicrobatchError("it cannot be cut", help="leave it whole")
        error.others = others
        raise error

    monkeypatch.setattr("shardc.planner.split_cache.split", refuse)
    module = import_function(lambda x: x, (np.ones(4, np.float32),), {}).module
    splits = Splits(module, None)
    for count in (2, 4):
        with pytest.raises(MicrobatchError, match="it cannot be cut"):
            splits.whole(count)
    assert found == analysed


def test_loops_stay_whole_where_only_their_pieces_refuse_microbatches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(module: object, count: int, args: object, dims: object, cuts: object) -> object:
        if cuts:
            raise MicrobatchError("it cannot be cut there", help="leave it whole")
        return module

    monkeypatch.setattr("shardc.planner.split_cache.split", refuse)
    module = import_function(lambda x: x, (np.ones(4, np.float32),), {}).module
    splits = Splits(module, None)
    monkeypatch.setattr("shardc.planner.split_cache.even_loop_cuts", lambda *_: (1, 2))
    splits.cut_loops(3)
    assert splits.loop_cuts == (1, 2)
    splits.cut_loops(3, [2])
    assert splits.loop_cuts == ()
    assert splits.in_layers(2) == module

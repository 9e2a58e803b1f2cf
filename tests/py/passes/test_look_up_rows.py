"""Products with one-hot matrices and the lookups that replace them give the same numbers."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.extend.mlir import ir

import shardc
from shardc.analysis.shardings.strategies import splitting
from shardc.backend.single_device import single_device_step
from shardc.ir.attributes import LOOKUPS, get_int
from shardc.ir.context import parse
from shardc.ir.pass_manager import run_passes
from shardc.ir.walk import main_function, ops, walk
from shardc.passes.canonicalize import Canonicalize
from shardc.passes.inline_calls import InlineCalls
from shardc.passes.legalize_chlo import LegalizeChlo
from shardc.passes.look_up_rows import LookUpRows
from shardc.plan.layout import Mesh
from shardc.rules.program_rules import main_rules
from tests.py.table import CLUSTER

ROWS = 7
Arrays = list[np.ndarray]


def step(forward: str, backward: str, shapes: Any, dtype: str) -> Any:
    """A module with a lookup and the gradient of its table, both as products: einsum notation."""

    def run(table: jax.Array, ids: jax.Array, dy: jax.Array) -> Any:
        hot = jax.nn.one_hot(ids, ROWS, dtype=dtype)
        return table, jnp.einsum(forward, hot, table), jnp.einsum(backward, hot, dy)

    return jax.jit(run).lower(*shapes)


def rewritten(text: str, rows: int = 2) -> ir.Module:
    module = parse(text)
    run_passes(module, [InlineCalls(), LegalizeChlo(), LookUpRows(rows=rows), Canonicalize()])
    return module


def names(module: ir.Module) -> list[str]:
    return [op.name.removeprefix("stablehlo.") for op in walk(module.operation)]


def on_one_device(module: ir.Module, args: Arrays) -> Arrays:
    return single_device_step(module, jax.devices()[0])(args)


# The product, its gradient, and the shapes of table, ids and dy: either operand first, ids of any
# rank, the rows of the table in any dim.
PRODUCTS = {
    "plain": ("tv,vd->td", "tv,td->vd", (ROWS, 3), (5,), (5, 3)),
    "gradient turned": ("tv,vd->td", "tv,td->dv", (ROWS, 3), (5,), (5, 3)),
    "turned": ("tv,vd->dt", "tv,dt->dv", (ROWS, 3), (5,), (3, 5)),
    "table turned": ("tv,dv->td", "tv,td->dv", (3, ROWS), (5,), (5, 3)),
    "two dims of ids": ("bsv,vd->bsd", "bsv,bsd->vd", (ROWS, 3), (2, 4), (2, 4, 3)),
    "ids in another order": ("bsv,vd->bsd", "bsv,sdb->vd", (ROWS, 3), (2, 4), (4, 3, 2)),
    "rows of two dims": ("tv,hvd->thd", "tv,thd->vhd", (2, ROWS, 3), (5,), (5, 2, 3)),
    "rows of one number": ("tv,v->t", "tv,t->v", (ROWS,), (5,), (5,)),
}


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_numbers_are_those_of_the_products(data: Any) -> None:
    forward, backward, *shapes = PRODUCTS[data.draw(st.sampled_from(sorted(PRODUCTS)))]
    dtype = data.draw(st.sampled_from(["float16", "bfloat16", "float32", "float64"]))
    chance = np.random.default_rng(data.draw(st.integers(0, 9)))
    odd = st.lists(st.sampled_from([np.inf, -np.inf, np.nan]), max_size=2)
    with jax.enable_x64(True):
        table, dy = (np.array(chance.normal(size=shape), dtype) for shape in (shapes[0], shapes[2]))
        ids = chance.integers(-2, ROWS + 2, shapes[1]).astype(
            data.draw(st.sampled_from(["int8", "uint8", "int32", "int64"]))
        )
        for array in (table, dy):
            for value in data.draw(odd):
                array[tuple(chance.integers(0, array.shape))] = value
        args = [table, ids, dy]
        lowered = step(forward, backward, args, dtype)
        _, looked_up, gradient = lowered.compile()(*args)
        found = rewritten(lowered.as_text())
        assert get_int(found.operation, LOOKUPS) == 2
        assert "dot_general" not in names(found)
        _, *got = on_one_device(found, args)
    np.testing.assert_array_equal(got[0].astype(float), np.asarray(looked_up, float))
    want = np.asarray(gradient)
    lone = np.isinf(want) & np.isnan(got[1])  # all infinities of a column belong to this row
    assert not lone.any() or not np.isfinite(dy).all()
    want = np.where(lone, np.array(np.nan, dtype), want)
    tolerance = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 1e-6, "float64": 1e-14}[dtype]
    np.testing.assert_allclose(
        got[1].astype(float), want.astype(float), rtol=tolerance, atol=tolerance
    )


def test_large_numbers_are_no_infinities() -> None:
    """What is added for the sake of infinities is exactly zero where there are none."""
    forward, backward, *shapes = PRODUCTS["plain"]
    table, dy = (np.full(shape, 3e38, np.float32) for shape in (shapes[0], shapes[2]))
    args = [table, np.arange(5, dtype=np.int32), dy]
    lowered = step(forward, backward, args, "float32")
    for got, want in zip(
        on_one_device(rewritten(lowered.as_text()), args), lowered.compile()(*args), strict=True
    ):
        np.testing.assert_array_equal(got, np.asarray(want))


def test_infinity_in_a_row_of_its_own_is_picked_as_it_is() -> None:
    forward, backward, *shapes = PRODUCTS["plain"]
    table, dy = (np.ones(shape, np.float32) for shape in (shapes[0], shapes[2]))
    table[2, 1] = np.inf
    args = [table, np.array([2, 2, -1, 3, ROWS], np.int32), dy]
    lowered = step(forward, backward, args, "float32")
    _, picked, _ = on_one_device(rewritten(lowered.as_text()), args)
    nan, inf = np.nan, np.inf
    np.testing.assert_array_equal(picked[:, 1], np.float32([inf, inf, nan, nan, nan]))
    np.testing.assert_array_equal(picked[:, [0, 2]], [[1, 1], [1, 1], [0, 0], [1, 1], [0, 0]])


def test_what_is_not_a_lookup_stays_a_product() -> None:
    """Tokens sent to experts, a table that is data, a mask of positions, too few rows."""

    def run(table: jax.Array, ids: jax.Array, x: jax.Array) -> Any:
        hot = jax.nn.one_hot(ids, ROWS)
        below = (ids[:, None] >= jnp.arange(ROWS)).astype(jnp.float32)
        sent = jnp.einsum("tv,td->vd", hot, x)  # a gradient of nothing
        return table + 1, hot @ jnp.tanh(table), hot @ x[:ROWS], below @ table, sent

    shapes = [
        jax.ShapeDtypeStruct(s, t) for s, t in (((ROWS, 3), "f4"), ((9,), "i4"), ((9, 3), "f4"))
    ]
    text = jax.jit(run, donate_argnums=0).lower(*shapes).as_text()
    assert names(rewritten(text)).count("dot_general") == 4

    def plain(table: jax.Array, ids: jax.Array) -> Any:
        return table, jax.nn.one_hot(ids, ROWS) @ table

    text = jax.jit(plain).lower(*shapes[:2]).as_text()
    assert "gather" in names(rewritten(text))
    assert "gather" not in names(rewritten(text, rows=ROWS + 1))


def test_a_second_run_changes_nothing() -> None:
    forward, backward, *shapes = PRODUCTS["two dims of ids"]
    args = [np.zeros(s, t) for s, t in zip(shapes, ("f4", "i4", "f4"), strict=True)]
    module = rewritten(step(forward, backward, args, "float32").as_text())
    before = str(module)
    run_passes(module, [LookUpRows(rows=2), Canonicalize()])
    assert str(module) == before


OPTIMIZER = optax.adam(1e-2)
VOCABULARY = 128


def train_step(state: Any, batch: Any) -> Any:
    """A small model whose tokens and positions are looked up by products, trained by adam."""

    def loss_of(params: Any) -> jax.Array:
        x = jax.nn.one_hot(batch["ids"], VOCABULARY) @ params["tokens"]
        x = x + jax.nn.one_hot(batch["places"], VOCABULARY) @ params["places"]
        for w in params["layers"]:
            x = x + jnp.tanh(x @ w)
        logits = x @ params["tokens"].T
        picked = jnp.take_along_axis(logits, batch["labels"][..., None], -1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)

    loss, gradient = jax.value_and_grad(loss_of)(state["params"])
    updates, opt = OPTIMIZER.update(gradient, state["opt"], state["params"])
    return {"params": optax.apply_updates(state["params"], updates), "opt": opt}, loss


@functools.cache
def example() -> Any:
    chance = np.random.default_rng(0)
    draw = functools.partial(chance.normal, scale=0.3)
    params = {
        "tokens": draw(size=(VOCABULARY, 16)),
        "places": draw(size=(VOCABULARY, 16)),
        "layers": [draw(size=(16, 16)) for _ in range(4)],
    }
    batch = {
        "ids": chance.integers(-1, VOCABULARY + 1, (8, 4)),
        "places": np.tile(np.arange(4), (8, 1)),
        "labels": chance.integers(0, VOCABULARY, (8, 4)),
    }
    state = {"params": params, "opt": OPTIMIZER.init(params)}
    return jax.tree.map(np.asarray, state), batch


@pytest.mark.slow
@pytest.mark.parametrize(("stages", "mesh"), [(1, (2, 4)), (2, (2, 2))])
def test_a_model_trains_as_on_one_device(stages: int, mesh: tuple[int, ...]) -> None:
    with jax.enable_x64(True):
        state, batch = example()
        options = {"cluster": CLUSTER, "stages": stages, "microbatches": 2, "mesh": mesh}
        compiled = shardc.jit(train_step, donate_argnums=0, **options).lower(state, batch).compile()
        assert any("lookups" in str(note) for note in compiled.plan.notes)
        assert compiled.plan.num_stages == stages
        assert compiled.plan.num_microbatches == 2
        reference, got = jax.jit(train_step), (state, None)
        want = (state, None)
        for _ in range(3):
            got, want = compiled(got[0], batch), reference(want[0], batch)
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-7, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("rows", ["x", ("x", "y")])
def test_infinities_meet_tables_that_are_split_by_rows(rows: Any) -> None:
    with jax.enable_x64(True):
        state, batch = example()
        params = jax.tree.map(np.array, state["params"])
        params["tokens"][5, 3], params["places"][99, 2] = np.inf, np.nan
        state = {**state, "params": params}
        wanted = jax.sharding.PartitionSpec(rows, None)
        step = shardc.jit(
            train_step,
            donate_argnums=0,
            cluster=CLUSTER,
            stages=1,
            microbatches=2,
            mesh={"x": 2, "y": 4},
            shardings={"state.params.tokens": wanted, "state.params.places": wanted},
        )
        got, want = step(state, batch), jax.jit(train_step)(state, batch)
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("axes", [(("x", 2),), (("x", 2), ("y", 2))])
def test_tables_split_by_rows_and_batches_split_are_both_strategies(axes: Any) -> None:
    """Every strategy of the gather and the scatter that the pass makes is told by its rule."""
    args = [np.zeros(s, t) for s, t in (((8, 4), "f4"), ((8,), "i4"), ((8, 4), "f4"))]

    def run(table: jax.Array, ids: jax.Array, dy: jax.Array) -> Any:
        hot = jax.nn.one_hot(ids, 8)
        return table, hot @ table, hot.T @ dy

    module = rewritten(jax.jit(run).lower(*args).as_text())
    rules, _ = main_rules(module.operation)
    mesh = Mesh(axes, tuple(range(2 ** len(axes))))
    for op, rule in zip(ops(main_function(module.operation)), rules, strict=True):
        if op.name not in ("stablehlo.gather", "stablehlo.scatter"):
            continue
        found = splitting(op, rule, (False,) * len(op.operands)).on(mesh)
        assert any(s.operands[0].dims[0] == ("x",) for s in found)  # by rows
        assert any(s.operands[1].dims[0] == ("x",) for s in found)  # by ids
        if len(axes) == 2:
            assert any(
                (s.operands[0].dims[0], s.operands[1].dims[0]) == (("x",), ("y",)) for s in found
            )

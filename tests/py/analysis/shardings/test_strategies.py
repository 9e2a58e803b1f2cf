"""The strategies of ops: how many there are, that they divide evenly, and what passes sums on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardc.analysis.shardings.strategies import splitting, value_shardings
from shardc.cost.reshard import is_valid
from shardc.ir.context import parse
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import main_function, ops
from shardc.plan.layout import Mesh, TensorSharding
from shardc.rules.program_rules import main_rules

ONE = Mesh((("x", 4),), tuple(range(4)))
TWO = Mesh((("x", 2), ("y", 2)), tuple(range(4)))
UNEVEN = Mesh((("x", 3), ("y", 2)), tuple(range(6)))


def strategies_of(function, *args, mesh=ONE, name=None, unreduced=None):
    """Per op (called `name`): the op, its rule and its strategies."""
    module = parse(jax.jit(function).lower(*args).as_text())
    found = []
    with module.context:
        all_ops = ops(main_function(module.operation))
        for op, rule in zip(all_ops, main_rules(module.operation)[0], strict=True):
            if name is None or op.name == f"stablehlo.{name}":
                flags = unreduced or (False,) * len(op.operands)
                found.append((op, rule, splitting(op, rule, flags).on(mesh)))
    return module, found


def ones(*shape):
    return jnp.ones(shape, jnp.float32)


def mixture(x, w, v):
    h = jax.nn.softmax(jnp.tanh(x @ w).reshape(4, 2, 12) * 2.0, axis=-1)
    return jnp.max(h, axis=0) @ v, jnp.concatenate([h, h], axis=1), jnp.sum(h.T)


@pytest.mark.parametrize("mesh", [ONE, TWO, UNEVEN], ids=["4", "2x2", "3x2"])
def test_every_strategy_divides_evenly_and_uses_an_axis_once(mesh):
    _module, found = strategies_of(mixture, ones(8, 6), ones(6, 12), ones(12, 5), mesh=mesh)
    for op, _, strategies in found:
        for strategy in strategies:
            for value, sharding in [
                *zip(op.operands, strategy.operands, strict=True),
                *zip(op.results, strategy.results, strict=True),
            ]:
                assert is_valid(sharding, mesh, shape_of(value)), (op.name, strategy)


def test_the_first_strategy_is_the_replicated_one():
    _module, found = strategies_of(mixture, ones(8, 6), ones(6, 12), ones(12, 5), mesh=TWO)
    for _, _, strategies in found:
        first = strategies[0]
        assert all(s == TensorSharding.replicated(len(s.dims)) for s in first.operands)
        assert all(s == TensorSharding.replicated(len(s.dims)) for s in first.results)
        assert (first.num_shards, first.reduce_axes) == (1, ())


def test_a_matrix_product_on_one_axis_has_one_strategy_per_factor():
    """Replicated, rows, columns, and the contracted dim, which leaves partial sums."""
    _module, [(_, _, strategies)] = strategies_of(
        jnp.matmul, ones(8, 16), ones(16, 4), name="dot_general"
    )
    assert len(strategies) == 4
    [contracted] = [s for s in strategies if s.results[0].unreduced]
    assert contracted.operands == (
        TensorSharding(((), ("x",))),
        TensorSharding((("x",), ())),
    )
    assert contracted.results == (TensorSharding(((), ()), ("x",)),)
    assert contracted.num_shards == 4


def test_a_matrix_product_on_two_axes_has_one_strategy_per_pair_of_factors():
    """Each axis goes to one of three factors or to none: 4 x 4."""
    _module, [(_, _, strategies)] = strategies_of(
        jnp.matmul, ones(8, 16), ones(16, 4), mesh=TWO, name="dot_general"
    )
    assert len(strategies) == 16
    assert {s.num_shards for s in strategies} == {1, 2, 4}


def test_a_dim_that_does_not_divide_has_no_strategy():
    _module, [(_, _, strategies)] = strategies_of(
        jnp.matmul, ones(8, 6), ones(6, 5), name="dot_general"
    )
    assert len(strategies) == 2  # only the rows divide by 4


def test_rows_share_the_work_of_a_scatter_but_not_of_a_lookup():
    """Each device gathers a row per index, but adds only what belongs to its own rows."""
    ids = np.zeros(16, np.int32)

    def added(table, ids, x):
        return table.at[ids].add(x)

    def looked_up(table, ids):
        return table[ids]

    rows = TensorSharding((("x",), ()))
    _module, [(_, _, adding)] = strategies_of(added, ones(8, 6), ids, ones(16, 6), name="scatter")
    _module, [(_, _, looking)] = strategies_of(looked_up, ones(8, 6), ids, name="gather")
    [by_rows] = [s for s in adding if s.operands[0] == rows]
    assert (by_rows.num_shards, by_rows.results) == (4, (rows,))
    [partial] = [s for s in looking if s.operands[0] == rows]
    assert (partial.num_shards, partial.results[0].unreduced) == (1, ("x",))


LINEAR = {
    "add": (lambda x, y: x + y, 2, (True, False)),
    "subtract": (lambda x, y: x - y, 2, (False, True)),
    "negate": (lambda x: -x, 1, (True,)),
    "transpose": (lambda x: x.T, 1, (True,)),
    "multiply": (lambda x, y: x * jnp.tanh(y), 2, (True, False)),
    "divide": (lambda x, y: x / jnp.maximum(y, 1), 2, (True, False)),
}
NOT_LINEAR = {
    "multiply": (lambda x, y: x * y, 2, (True, False)),  # y may be infinite
    "tanh": (jnp.tanh, 1, (True,)),
    "exponential": (jnp.exp, 1, (True,)),
    "maximum": (jnp.maximum, 2, (True, True)),
    "divide": (lambda x, y: x / y, 2, (True, True)),  # y may be zero
}


@pytest.mark.parametrize("name", LINEAR)
def test_linear_ops_pass_partial_sums_on(name):
    function, count, unreduced = LINEAR[name]
    _module, [(op, rule, strategies)] = strategies_of(
        function, *[ones(8, 8)] * count, name=name, unreduced=unreduced
    )
    [kept] = [s for s in strategies if s.results[0].unreduced]
    assert tuple(bool(s.unreduced) for s in kept.operands) == unreduced
    assert splitting(op, rule, unreduced).leaves_sums


@pytest.mark.parametrize("name", NOT_LINEAR)
def test_other_ops_need_whole_values(name):
    function, count, unreduced = NOT_LINEAR[name]
    _module, [(op, rule, strategies)] = strategies_of(
        function, *[ones(8, 8)] * count, name=name, unreduced=unreduced
    )
    assert not any(s.unreduced for each in strategies for s in (*each.operands, *each.results))
    assert not splitting(op, rule, unreduced).leaves_sums


def test_partial_sums_are_added_to_each_other_or_to_what_is_whole():
    _module, [(op, rule, strategies)] = strategies_of(
        jnp.add, ones(8, 8), ones(8, 8), name="add", unreduced=(True, True)
    )
    kept = [s for s in strategies if s.results[0].unreduced]
    assert sorted(tuple(bool(o.unreduced) for o in s.operands) for s in kept) == [
        (False, True),
        (True, False),
        (True, True),
    ]
    assert splitting(op, rule, (True, True)).leaves_sums


def test_a_product_of_two_partial_sums_takes_only_one_of_them_as_such():
    _module, [(_, _, strategies)] = strategies_of(
        lambda x, y: jnp.sin(x) * jnp.sin(y),
        ones(8, 8),
        ones(8, 8),
        name="multiply",
        unreduced=(True, True),
    )
    kept = [s for s in strategies if s.results[0].unreduced]
    assert [tuple(bool(o.unreduced) for o in s.operands) for s in kept] == [
        (True, False),
        (False, True),
    ]


@pytest.mark.parametrize(
    ("source", "target", "passes"),
    [
        ("bfloat16", "float32", True),
        ("float16", "float32", False),  # a sum above 65504 is infinite before it is converted
        ("float32", "float64", False),
        ("float32", "bfloat16", False),
    ],
)
def test_a_convert_passes_sums_on_if_it_keeps_the_range(source, target, passes):
    with jax.enable_x64(True):
        _module, [(op, rule, _)] = strategies_of(
            lambda x: x.astype(target), jnp.ones((8, 8), source), name="convert"
        )
    assert splitting(op, rule, (True,)).leaves_sums == passes


def test_a_maximum_over_a_split_dim_reduces_itself():
    _module, [(op, rule, strategies)] = strategies_of(
        lambda x: jnp.max(x, axis=1), ones(8, 8), name="reduce"
    )
    [split] = [s for s in strategies if s.reduce_axes]
    assert split.reduce_axes == ("x",)
    assert split.results[0].unreduced == ()
    assert not splitting(op, rule, (False, False)).leaves_sums


def test_an_op_without_a_rule_is_replicated():
    _module, [(_, rule, strategies)] = strategies_of(lambda: jnp.arange(8), name="iota")
    assert rule is None
    assert [s.num_shards for s in strategies] == [1]


def test_value_shardings_are_all_even_ones_replicated_first():
    found = value_shardings((8, 6), TWO.axes)
    assert found[0] == TensorSharding.replicated(2)
    # Each axis on dim 0, dim 1 or nowhere, without both on dim 1 (6 has no factor 4).
    assert len(found) == 3 * 3 - 1
    assert all(is_valid(s, TWO, (8, 6)) for s in found)
    assert len(value_shardings((8, 6), TWO.axes, True)) == 4 * 4 - 1

"""Prices of layers in microbatches in which they are not solved, against solved ones."""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardc.analysis.shardings.memory_report import LayerMemory
from shardc.cluster import Cluster, Device, Level, Software
from shardc.compiler import prepare
from shardc.cost.model import CostModel
from shardc.cost.submeshes import mesh_of
from shardc.importer.from_jax import import_function
from shardc.plan.layout import Mesh
from shardc.plan.predicted import Asked
from shardc.plan.priced_work import Work
from shardc.planner.layer_samples import find_layers
from shardc.planner.prices.derived import Amounts, most_alike, shares
from shardc.planner.prices.hopes import Hopes
from shardc.planner.prices.layer_cost import LayerCost
from shardc.planner.prices.layer_costs import LayerCosts
from shardc.planner.prices.stage_prices import StagePrices
from shardc.planner.prices.views import Views
from shardc.planner.proposal import by_use
from shardc.planner.split_cache import Splits
from shardc.solver.problem.problem import Floats

ROWS = 64
WIDTHS = (128, 256, 256, 64)


def step(weights: Any, x: jax.Array) -> Any:
    """Weights are large beside the activations: most of a microbatch's time is theirs."""

    def loss(weights: Any) -> jax.Array:
        h = x
        for w in weights:
            h = jnp.tanh(h @ w)
        return jnp.mean(h**2)

    value, gradients = jax.value_and_grad(loss)(weights)
    return jax.tree.map(jnp.subtract, weights, gradients), value


def layer_costs(
    count: int, fn: Callable[..., Any] = step, widths: Sequence[int] = WIDTHS
) -> LayerCosts:
    weights = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in itertools.pairwise(widths)]
    x = jax.ShapeDtypeStruct((ROWS, widths[0]), jnp.float32)
    module = import_function(fn, (weights, x), {}, donate_argnums=0).module
    prepare(module)
    splits = Splits(module, None)
    found = find_layers(splits.cut_at(count, ()), [])
    assert isinstance(found, tuple)
    layers, outlined = found
    return LayerCosts(splits, (), layers, (count, outlined), Cluster.load("cpu8"), 0)


@pytest.mark.parametrize("devices", [1, 4])
def test_prices_in_few_microbatches_follow_from_those_in_many(devices: int) -> None:
    """What a microbatch takes for the weights, however few rows it has, is not taken four times."""
    costs, view = layer_costs(16), mesh_of((devices,), range(devices))
    for kind in costs.layers.kinds:
        derived = costs.cost(view, 16, 0, kind).scaled(16 / 4)
        solved = costs.cost(view, 4, 0, kind)
        derived_s = 4 * (derived.forward_s + derived.backward_s) + derived.once_s
        solved_s = 4 * (solved.forward_s + solved.backward_s) + solved.once_s
        assert derived_s == pytest.approx(solved_s, rel=0.1)
        assert derived.least_s[1] > 0.2 * solved.backward_s  # gradients are added up


@pytest.mark.parametrize("devices", [1, 4])
def test_the_least_time_follows_too(devices: int) -> None:
    costs, view = layer_costs(16), mesh_of((devices,), range(devices))
    for kind in costs.layers.kinds:
        known, solved = costs.cost(view, 16, 0, kind), costs.cost(view, 4, 0, kind)
        assert known.ideal_in(16, 16) == known.ideal_s
        assert known.ideal_in(16, 4) == pytest.approx(solved.ideal_s, rel=0.1)


@pytest.mark.parametrize("devices", [1, 4])
def test_no_solved_layer_stashes_less_than_its_bound(devices: int) -> None:
    costs, view = layer_costs(16), mesh_of((devices,), range(devices))
    for count, kind, point in itertools.product((4, 16), costs.layers.kinds, (0, 2)):
        least = costs.least_stash(count, costs.points[point].recompute)[kind]
        assert least / devices <= costs.cost(view, count, point, kind).memory.stash_bytes
    assert sum(costs.least_stash(4, "user")) > 0
    assert costs.least_stash(4, "full") == [0.0] * len(costs.layers.starts)


def skipping(weights: Any, x: jax.Array, to: int) -> Any:
    """The first layer's output is also added `to` layers later."""

    def loss(weights: Any) -> jax.Array:
        h, outputs = x, []
        for w in weights:
            h = jnp.tanh(h @ w)
            outputs.append(h)
            h = h + outputs[0] if len(outputs) == to else h
        return jnp.mean(h**2)

    value, gradients = jax.value_and_grad(loss)(weights)
    return jax.tree.map(jnp.subtract, weights, gradients), value


def test_what_skips_layers_is_not_sent_between_them() -> None:
    plain, skips = (
        layer_costs(4, functools.partial(skipping, to=to), (128,) * 7).sends(4) for to in (0, 5)
    )
    output = ROWS // 4 * 128 * 4
    assert plain.ahead[:-1] == plain.back[:-1] == ((output, output),) * (len(plain.ahead) - 1)
    for ways in ((skips.ahead, plain.ahead), (skips.back, plain.back)):
        more = [tuple(np.subtract(*each)) for each in zip(*ways, strict=True)]
        assert sorted(more) == [(0, 0)] * (len(more) - 2) + [(0, output), (output, 0)]


def dropping(weights: Any, x: jax.Array) -> Any:
    """A mask for all rows, from random bits that are no function of a row."""

    def loss(weights: Any) -> jax.Array:
        h = x
        for w in weights:
            h = jnp.tanh(h @ w)
            bits = jnp.cumsum(jnp.sin(jnp.arange(h.size, dtype=jnp.float32)))
            h = h * (bits > 0.0).reshape(h.shape)
        return jnp.mean(h**2)

    value, gradients = jax.value_and_grad(loss)(weights)
    return jax.tree.map(jnp.subtract, weights, gradients), value


def test_what_runs_before_the_microbatches_does_not_shrink_with_them() -> None:
    costs, view = layer_costs(4, dropping), mesh_of((1,), range(1))
    for kind in costs.layers.kinds:
        few, many = (costs.cost(view, count, 0, kind).memory for count in (4, 16))
        assert few.before_bytes == many.before_bytes == few.scaled(1 / 4).before_bytes
        assert many.body_bytes < few.body_bytes
    assert any(costs.cost(view, 4, 0, kind).memory.before_bytes for kind in costs.layers.kinds)


def test_a_host_that_is_hidden_by_large_microbatches_shows_in_small_ones() -> None:
    """Its work is the same in each; it adds to a microbatch only what the device does not cover."""
    device = Device("d", 1, {"default": 1.0}, 1.0, software=Software(0.75, host_exposed=0.5))
    model = CostModel(Cluster("c", device, (Level("node", 1, 1.0, 0.0),)))
    mesh = Mesh((("x", 1),), (0,))

    def asked(rows: int) -> tuple[Asked, ...]:
        outside, inside = Work("float32", rows, 0, 1.0), Work("float32", 4 * rows, 0, 1.0)
        return Asked(((outside, 10.0),)), Asked(((inside, 2.0),), times=3.0)

    dispatches, nothing = model.dispatches(asked(16), mesh), LayerMemory(0.0, 0.0, 0.0, 0.0)
    whole_s = model.call_s(asked(16), mesh)
    whole = LayerCost(whole_s, 0.0, 0.0, 0.0, nothing, dispatches=(dispatches, ()))
    small, again = whole.scaled(1 / 16), whole.scaled(1 / 4).scaled(1 / 4)
    assert small.forward_s == pytest.approx(model.call_s(asked(1), mesh))
    assert again.forward_s == pytest.approx(small.forward_s)
    assert whole_s < 1.01 * (10 * 16 + 3 * 2 * 64)
    assert small.forward_s > 1.05 * (10 + 3 * 2 * 4)


def test_what_keeps_less_is_derived_with_a_faster_forward_pass() -> None:
    memory = LayerMemory(0.0, 0.0, 0.0, 0.0)
    more = Amounts(2.0, 6.0, 30).beside(Amounts(4.0, 5.0, 60))
    derived = more.of(LayerCost(8.0, 10.0, 0.0, 0.0, memory))
    assert (derived.forward_s, derived.backward_s) == pytest.approx((4.0, 12.0))


@pytest.mark.parametrize(
    ("known", "count", "expected"),
    [
        ([16, 64], 4, [16]),  # each of four devices has rows of its own
        ([2, 16, 64], 4, [2, 16]),
        ([16, 32], 64, [16, 32]),  # more devices have
        ([32, 64], 64, [64]),
        ([64], 4, [64]),  # there is no better one
        ([], 4, []),
    ],
)
def test_microbatches_that_leave_devices_without_rows_say_little(
    known: list[int], count: int, expected: list[int]
) -> None:
    assert most_alike(known, count, rows=64, devices=4) == expected


def test_tables_of_stages_follow_new_prices() -> None:
    """They are kept until a price is new; so are those of what is hoped for."""
    cluster = Cluster.load("cpu8")
    view = mesh_of((4,), range(4))
    views = Views({4: [view]}, frozenset(), cluster)

    def tables(counts: list[int]) -> tuple[list[Floats], list[Floats], int]:
        """After the first of the counts is priced, after all are; and the one nearest to 4."""
        prices = StagePrices(layer_costs(16), views, cluster, 1 << 30, True)
        hopes, found = Hopes(prices), []
        for count in counts:
            prices.ask(view, count, 0)
            kept = [prices.stage_s(4, 8, held) for held in (1, 2)]
            found.append([*kept, *(hopes.stage_s(4, 8, held) for held in (1, 2))])
        return found[0], found[-1], prices.near(4, 4)

    early, late, near = tables([16, 4])
    _, other_way, _ = tables([4, 16])
    assert near == 4
    assert not np.array_equal(early[0], late[0])
    np.testing.assert_array_equal(late, other_way)


def test_layers_are_first_priced_where_all_devices_have_rows() -> None:
    """45 microbatches would be usual for eight devices; half of them share a stage."""
    cluster = Cluster.load("cpu8")
    assert by_use([2, 4, 8, 16, 32, 64], cluster, 64)[:2] == [16, 8]
    assert by_use([2, 4, 8, 16, 32, 64], cluster, 1 << 12)[:2] == [64, 32]
    assert [shares(64, count, 4) for count in (1, 16, 32, 64)] == [4, 4, 2, 1]

"""What sweeps keep for later ones: the cheapest values, and none that would be torn from others."""

import itertools
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardc.analysis.batch.batch_split import StepSplit, split_step
from shardc.analysis.batch.microbatch import BatchFlow
from shardc.analysis.batch.phases import plan_phases
from shardc.analysis.program.op_classes import IDENTITIES, chooses
from shardc.analysis.residency.between_sweeps import kept_between_sweeps
from shardc.analysis.residency.selection import moving_seconds, op_seconds
from shardc.cluster import Cluster
from shardc.cost.model import CostModel
from shardc.ir.attributes import KEPT_BETWEEN, SWEEPS
from shardc.ir.pass_manager import run_passes
from shardc.passes.fission_loops import FissionLoops
from shardc.passes.split_microbatches import SplitMicrobatches
from shardc.plan.function_kind import Phase
from tests.py.fuzz.batch_sums import random_step
from tests.py.programs import Program
from tests.py.split_programs import copy_of, flops_of, normalized, run_module, run_split

MODEL = CostModel(Cluster.parse("cpu8"))
FREE = 1e-9  # a price at which everything is kept


def flow_of(module: Any) -> BatchFlow:
    step = split_step(module.operation, 2)
    assert isinstance(step, StepSplit)
    return step.flow


def largest_squared(w: Any, x: Any) -> Any:
    """The way back compares products of a batch with the largest of them."""

    def loss(w: Any) -> Any:
        return jnp.log(jnp.mean(jnp.max(x @ w, 1) ** 2))

    value, gradient = jax.value_and_grad(loss)(w)
    return w - gradient, value


def largest(width: int, products: int) -> Any:
    args = np.ones((width, products)), np.ones((8, width))
    with jax.enable_x64(True):
        return normalized(Program(largest_squared, args, (0,)))[0]


def in_body(flow: BatchFlow, sweep: int, kept: dict[int, int]) -> set[int]:
    """The ops that each microbatch of a sweep runs."""
    plan = plan_phases(flow, sweep, kept)
    return {
        i
        for i, copies in plan.copies.items()
        if any(copy.form.phase is Phase.BODY for copy in copies)
    }


def test_a_maximum_is_kept_with_what_it_was_chosen_from() -> None:
    """Alone it would be worth it: eight numbers. But the products are compared with it."""
    module = largest(4, 512)
    flow = flow_of(module)
    graph = flow.program.graph
    shapes = {}
    for price in (1.0, 2.0, 3.0, 10.0, 100.0):
        kept = kept_between_sweeps(flow, price, MODEL)
        shapes[price] = sorted(graph.shapes[v] or () for v in kept)
    assert shapes[1.0] == shapes[2.0] == shapes[3.0] == [(8,), (8, 512)]
    assert shapes[100.0] == []


@pytest.mark.parametrize("price", [0.5, 20.0, 60.0])
def test_what_is_kept_costs_least(price: float) -> None:
    """No other set of these values costs less, with what the last sweep then computes again."""

    def step(weights: Any, x: Any, y: Any) -> Any:
        def loss(weights: Any) -> Any:
            hidden = x
            for w in weights:
                hidden = jnp.sin(hidden @ w)
            return jnp.log(jnp.mean((hidden - y) ** 2))

        value, gradients = jax.value_and_grad(loss)(weights)
        return jax.tree.map(jnp.subtract, weights, gradients), value

    weights = [np.ones(shape) for shape in ((16, 64), (64, 24), (24, 4))]
    args = weights, np.ones((8, 16)), np.ones((8, 4))
    with jax.enable_x64(True):
        module, _ = normalized(Program(step, args, (0,)))
    flow = flow_of(module)
    graph = flow.program.graph
    assert flow.num_sweeps == 2
    first = in_body(flow, 0, {})
    values = [
        v
        for i in sorted(first & in_body(flow, 1, {}))
        for v in graph.results[i]
        if flow.states[v].varies
    ]
    assert 4 < len(values) < 12

    def cost(kept: tuple[int, ...]) -> float:
        again = first & in_body(flow, 1, dict.fromkeys(kept, 0))
        running = sum(op_seconds(graph.ops[i], MODEL) for i in again)
        return running + price * sum(moving_seconds(graph.values[v], MODEL) for v in kept)

    sets = (s for n in range(len(values) + 1) for s in itertools.combinations(values, n))
    chosen = tuple(kept_between_sweeps(flow, price, MODEL))
    assert cost(chosen) == pytest.approx(min(map(cost, sets)), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 3, 5, 7, 9, 10, 11, 12, 16, 17, 19, 23, 26, 27, 30, 36])
def test_random_steps_compute_the_same_with_less_work(seed: int) -> None:
    """The seeds are those of steps that are swept several times."""
    random = Random(seed)
    step, args = random_step(random)
    price = random.choice([FREE, 1.0, 30.0])
    with jax.enable_x64(True):
        module, flat = normalized(Program(step, args, (0,)))
        cut, again = copy_of(module), copy_of(module)
        run_passes(cut, [FissionLoops(), SplitMicrobatches(2, keep_price=price)])
        run_passes(again, [FissionLoops(), SplitMicrobatches(2)])
        assert SWEEPS in again.operation.attributes
        for got, want in zip(run_split(cut, flat), run_module(module, flat), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
    assert flops_of(cut, "before") + 2 * flops_of(cut, "body") <= (
        flops_of(again, "before") + 2 * flops_of(again, "body")
    )


def sources_run_again(flow: BatchFlow, kept: dict[int, int]) -> set[str]:
    """The ops that some sweep runs again although elements of kept values were chosen from their
    results."""
    graph, found = flow.program.graph, set()
    for sweep in range(1, flow.num_sweeps):
        ran = in_body(flow, sweep, kept)
        todo, seen = [v for v, keeping in kept.items() if keeping < sweep], set(kept)
        while todo:
            i = graph.producer[todo.pop()]
            if i >= 0 and (chooses(graph.ops[i]) or graph.ops[i].name in IDENTITIES):
                more = {u for u in graph.uses[i] if flow.states[u].varies} - seen
                makers = {graph.producer[u] for u in more if graph.producer[u] >= 0}
                found |= {graph.ops[m].name for m in makers & ran if rounds(graph.ops[m])}
                todo += more
                seen |= more
    return found


def rounds(op: Any) -> bool:
    return op.name not in IDENTITIES and not chooses(op)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_chosen_from_a_kept_value_is_of_one_time(seed: int) -> None:
    """No sweep computes again what the elements of a kept value were chosen from."""
    random = Random(seed)
    module = largest(2 ** random.randint(0, 5), 2 ** random.randint(4, 10))
    flow = flow_of(module)
    kept = kept_between_sweeps(flow, 10 ** random.uniform(-0.5, 1.0), MODEL)
    assert not sources_run_again(flow, kept)


def three_sweeps(w: Any, x: Any) -> Any:
    """The second sweep needs the largest elements alone, the third all of them."""
    h = x @ w["a"]
    m = jnp.max(h, 1)
    scaled = jnp.outer(m / jnp.mean(m**2), w["u"])
    return jnp.log(jnp.mean(jnp.tanh(scaled @ w["b"]) ** 2))


def beside_a_late_sum(w: Any, x: Any) -> Any:
    """A barrier lets the products through with a sum that only later sweeps have."""
    late = jnp.mean(jnp.tanh(x @ w["c"]) ** 2)
    h, late = jax.lax.optimization_barrier((x @ w["a"], late))
    m = jnp.max(h, 1)
    scale = late / jnp.mean(m**2)
    q = jnp.where(h >= m[:, None], h, 0.1 * h) @ w["d"]
    return jnp.log(jnp.mean((q * scale) ** 2))


def out_of_a_loop(w: Any, x: Any) -> Any:
    """The loop also has a result that is the same in all microbatches."""

    def body(_: Any, carried: Any) -> Any:
        h, p = carried
        return jnp.sin(h @ w["e"]), p * 0.5 + 1

    start = jnp.tile(x, (1, 8)), w["e"][0]
    h, p = jax.lax.stop_gradient(jax.lax.fori_loop(0, 3, body, start))
    m = jnp.max(h, 1)
    q = jnp.where(h >= m[:, None], h, 0.1 * h) / jnp.mean(m**2)
    return jnp.log(jnp.mean((q * p) @ w["f"]) ** 2)


def of_a_reduction_of_pairs(w: Any, x: Any) -> Any:
    """The largest element with its position, by a reducer of its own."""
    h = x @ w["a"]
    places = jax.lax.broadcasted_iota(jnp.int32, h.shape, 1)

    def larger(a: Any, b: Any) -> Any:
        first = a[0] >= b[0]
        return jnp.where(first, a[0], b[0]), jnp.where(first, a[1], b[1])

    start = np.array(-np.inf, h.dtype), np.int32(0)
    m = jax.lax.reduce((jax.lax.stop_gradient(h), places), start, larger, (1,))[0]
    q = jnp.where(h == m[:, None], h, 0.0) / jnp.mean(m**2)
    return jnp.log(jnp.mean(q @ w["d"]) ** 2)


@pytest.mark.parametrize(
    "loss", [three_sweeps, beside_a_late_sum, out_of_a_loop, of_a_reduction_of_pairs]
)
def test_no_detour_tears_a_maximum_from_what_it_is_compared_with(loss: Any) -> None:
    def step(w: Any, x: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(w, x)
        return jax.tree.map(jnp.subtract, w, gradients), value

    shapes = {"a": (4, 512), "b": (4, 4), "c": (4, 4), "d": (512, 4), "u": (4,)}
    shapes |= {"e": (32, 32), "f": (32, 32)}
    args = {name: np.ones(shape) for name, shape in shapes.items()}, np.ones((8, 4))
    with jax.enable_x64(True):
        module, _ = normalized(Program(step, args, (0,)))
    flow, counts = flow_of(module), []
    for price in (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0):
        kept = kept_between_sweeps(flow, price, MODEL)
        assert not sources_run_again(flow, kept)
        counts.append(len(kept))
    assert max(counts) > 0


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("made", [lambda x: jnp.sort(x, 1), jnp.exp, lambda x: x.reshape(8, 3, 2)])
def test_values_that_are_whole_before_the_microbatches_are_sliced_as_they_are(
    made: Any, count: int
) -> None:
    """A product of all examples needs them whole, and every sweep the part of its microbatch."""

    def step(w: Any, x: Any) -> Any:
        k = made(x).reshape(8, 6)

        def loss(w: Any) -> Any:
            return jnp.log(1 + jnp.mean((jnp.tanh(k @ w) @ k.T @ k) ** 2))

        value, gradient = jax.value_and_grad(loss)(w)
        return w - gradient, value

    rng = np.random.default_rng(0)
    args = rng.standard_normal((6, 6)), rng.standard_normal((8, 6))
    with jax.enable_x64(True):
        module, flat = normalized(Program(step, args, (0,)))
        for price in (FREE, 1.0):
            cut = copy_of(module)
            run_passes(cut, [SplitMicrobatches(count, keep_price=price)])
            assert KEPT_BETWEEN in cut.operation.attributes
            for got, want in zip(run_split(cut, flat), run_module(module, flat), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)

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
from shardc.analysis.program.op_classes import chooses
from shardc.analysis.residency.between_sweeps import kept_between_sweeps
from shardc.analysis.residency.selection import moving_seconds, op_seconds
from shardc.cluster import Cluster
from shardc.cost.model import CostModel
from shardc.ir.attributes import SWEEPS
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


@pytest.mark.parametrize("seed", range(20))
def test_what_is_chosen_from_a_kept_value_is_of_one_time(seed: int) -> None:
    """No sweep computes again what the elements of a kept value were chosen from."""
    random = Random(seed)
    module = largest(2 ** random.randint(0, 5), 2 ** random.randint(4, 10))
    flow = flow_of(module)
    graph = flow.program.graph
    kept = kept_between_sweeps(flow, 10 ** random.uniform(-0.5, 1.0), MODEL)
    for sweep in range(1, flow.num_sweeps):
        ran = in_body(flow, sweep, kept)
        todo = [v for v, keeping in kept.items() if keeping < sweep]
        while todo:
            i = graph.producer[todo.pop()]
            if i >= 0 and chooses(graph.ops[i]):
                for u in graph.uses[i]:
                    if flow.states[u].varies and u not in kept and graph.producer[u] >= 0:
                        assert graph.producer[u] not in ran
                        todo.append(u)

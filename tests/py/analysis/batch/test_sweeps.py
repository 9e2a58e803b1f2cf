"""The sweep of every value: the completed sums over the batch that it depends on."""

import re
from random import Random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardc.analysis.batch.accumulations import MAX_SWEEPS, analyse
from shardc.analysis.batch.batch_state import LATE
from shardc.analysis.batch.microbatch import BatchFlow
from shardc.analysis.batch.step_program import program_of
from shardc.ir.context import parse
from shardc.ir.pass_manager import run_passes
from shardc.passes.fission_loops import FissionLoops
from tests.py.fuzz.batch_sums import random_step
from tests.py.programs import Program
from tests.py.split_programs import normalized

MEAN = """
    %s{n} = stablehlo.reduce(%y{n} init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<8x6xf32>, tensor<f32>) -> tensor<6xf32>
    %m{n} = stablehlo.divide %s{n}, %eight : tensor<6xf32>
    %b{n} = stablehlo.broadcast_in_dim %m{n}, dims = [1] : (tensor<6xf32>) -> tensor<8x6xf32>
    %c{n} = stablehlo.subtract %y{n}, %b{n} : tensor<8x6xf32> """
PRODUCT = """
    %y{n} = stablehlo.dot_general %{x}, %w, contracting_dims = [1] x [0]
      : (tensor<8x6xf32>, tensor<6x6xf32>) -> tensor<8x6xf32> """
START = """
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %eight = stablehlo.constant dense<8.0> : tensor<6xf32> """
ARGUMENTS = "%x: tensor<8x6xf32>, %w: tensor<6x6xf32>"


def flow_of(body: str) -> tuple[BatchFlow, dict[str, int]]:
    """The analysis of a function body, argument 0 cut along dim 0; the positions of its values."""
    module = parse(f"func.func public @main({ARGUMENTS}) {{ {START} {body} return }}")
    flow = analyse(program_of(module.operation), {0: 0})
    flow.keep = module  # type: ignore[attr-defined]  # the values live as long as their module
    made = re.findall(r"%(\w+) = ", START + body)
    names = ["x", "w", *made]
    return flow, {name: v for v, name in enumerate(names)}


@pytest.mark.parametrize("layers", range(1, MAX_SWEEPS))
def test_each_mean_that_a_product_waits_for_is_one_more_sweep(layers: int) -> None:
    body, before = "", "x"
    for n in range(layers):
        body += PRODUCT.format(n=n, x=before) + MEAN.format(n=n)
        before = f"c{n}"
    flow, at = flow_of(body + PRODUCT.format(n=layers, x=before))
    assert flow.obstacle is None
    assert flow.num_sweeps == layers + 1
    for n in range(layers):
        assert flow.states[at[f"y{n}"]].sweep == n
        assert flow.sums_between(n) == [at[f"s{n}"]]  # not the mean: it is one division per step
        assert flow.states[at[f"m{n}"]].sweep == n + 1


def test_a_mean_that_nothing_heavy_waits_for_is_late() -> None:
    flow, at = flow_of(PRODUCT.format(n=0, x="x") + MEAN.format(n=0))
    assert flow.num_sweeps == 1
    assert flow.states[at["m0"]].sweep == flow.states[at["c0"]].sweep == LATE
    assert flow.awaited == set()


def test_a_mean_of_the_batch_itself_is_made_before_the_first_sweep() -> None:
    mean = MEAN.format(n=0).replace("%y0", "%x")
    flow, at = flow_of(mean + PRODUCT.format(n=1, x="c0"))
    assert flow.num_sweeps == 1
    assert flow.awaited == {at["s0"]}
    assert flow.states[at["m0"]].sweep == flow.states[at["y1"]].sweep == 0


def test_one_more_sweep_than_allowed_is_refused() -> None:
    body, before = "", "x"
    for n in range(MAX_SWEEPS):
        body += PRODUCT.format(n=n, x=before) + MEAN.format(n=n)
        before = f"c{n}"
    flow, at = flow_of(body + PRODUCT.format(n=MAX_SWEEPS, x=before))
    assert flow.obstacle is not None
    ops = flow.program.graph.producer
    assert (flow.obstacle.op, flow.obstacle.cause) == (ops[at["y1"]], ops[at["c0"]])


@pytest.mark.parametrize("recurs", [False, True])
def test_a_loop_waits_for_sums_unless_they_depend_on_earlier_iterations(recurs: bool) -> None:
    def step(weights: jax.Array, x: jax.Array) -> jax.Array:
        def layer(carried: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
            h = jnp.tanh(carried @ w)
            centred = h - jnp.mean(h, axis=0)
            return (centred if recurs else h), jnp.sum(centred**2)

        return jnp.sum(jax.lax.scan(layer, x, weights)[1])

    args = np.ones((3, 6, 6), np.float32), np.ones((8, 6), np.float32)
    module, _ = normalized(Program(step, args, ()))
    with module.context:
        flow = analyse(program_of(module.operation), {1: 0})
        assert flow.loops == {}
        assert len(flow.waiting_loops) == (not recurs)


@pytest.mark.parametrize("seed", [0, 19, 29, 56])
def test_an_op_is_in_no_sweep_before_its_operands(seed: int) -> None:
    step, args = random_step(Random(seed))
    with jax.enable_x64(True):
        module, _ = normalized(Program(step, args, (0,)))
    first = len(jax.tree.leaves(args[0]))
    run_passes(module, [FissionLoops((first, first + 1), (0, 0))])
    with module.context:
        flow = analyse(program_of(module.operation), {first: 0, first + 1: 0})
    assert flow.obstacle is None
    graph, states = flow.program.graph, flow.states
    assert flow.num_sweeps > 1
    for i, used in enumerate(graph.uses):
        for v in graph.results[i]:
            if v in flow.sums:
                assert flow.sums[v] == max(states[u].sweep for u in used) < flow.num_sweeps
                after = flow.sums[v] + flow.behind_heavy[v]
                assert states[v].sweep == (after if v in flow.awaited else LATE)
            elif graph.ops[i].name != "stablehlo.optimization_barrier":
                assert states[v].sweep >= max((states[u].sweep for u in used), default=0)
    for sweep in range(flow.num_sweeps - 1):
        assert flow.sums_between(sweep), "a sweep that completes nothing"

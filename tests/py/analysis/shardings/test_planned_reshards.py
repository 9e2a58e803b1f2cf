"""What a plan says is sent is what its lowered programs send."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardc.analysis.shardings.planned_reshards import PlannedReshards
from shardc.cost.model import CostModel
from shardc.ir.copy import copy_module
from shardc.ir.pass_manager import run_passes
from shardc.ir.walk import functions, symbol
from shardc.passes.assign_meshes import AssignMeshes
from shardc.passes.pipeline import LOCAL_LOWERING
from shardc.plan.layout import Mesh
from shardc.rewrite.local.planned_shardings import write_shardings
from shardc.solver.problem.problem import evaluate
from shardc.solver.solve import solve
from tests.py.analysis.shardings.planned_programs import cluster, outlined, problem
from tests.py.compiled_step import on_the_wire
from tests.py.hlo_text import mlir_collectives

LINE = Mesh((("x", 4),), tuple(range(4)))
SQUARE = Mesh((("x", 2), ("y", 2)), tuple(range(4)))


def step(weights, x):
    """Two products share each activation; the maximum is reduced by its own op."""

    def loss(weights):
        h = x
        for w in weights:
            h = jnp.tanh(h @ w["a"]) * jax.nn.softmax(h @ w["b"]).astype(h.dtype)
        return jnp.mean(h.astype(jnp.float32) ** 2)

    value, gradients = jax.value_and_grad(loss)(weights)
    return jax.tree.map(lambda w, g: w - g, weights, gradients), value


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("mesh", [LINE, SQUARE], ids=["4", "2x2"])
def test_planned_collectives_are_the_emitted_ones(mesh, dtype):
    square = np.ones((8, 8), dtype)
    weights = [{"a": square, "b": square} for _ in range(2)]
    module = outlined(step, weights, np.ones((16, 8), dtype), donate=0)
    machine = cluster(flops_per_s=1e9, latency_s=1e-7)
    built = problem(module, mesh, machine)
    model = CostModel(machine)
    rng = np.random.default_rng(0)
    solved = list(solve(built.problem, time_limit_s=20).choice)
    compared = 0
    while compared < 5:
        choice = list(solved)
        for node in rng.integers(len(choice), size=2 * compared):
            choice[node] = int(rng.integers(len(built.problem.costs[node])))
        if not math.isfinite(evaluate(built.problem, choice).cost):
            continue
        compared += 1
        lowered = copy_module(module)
        run_passes(lowered, [AssignMeshes((mesh,))])
        with lowered.context:
            for function in functions(lowered.operation):
                write_shardings(function, built.shardings(choice)[symbol(function)])
        run_passes(lowered, LOCAL_LOWERING)
        planned = PlannedReshards(built, choice, mesh, model).collectives()
        assert on_the_wire(planned, mesh) == mlir_collectives(str(lowered.operation))
        assert planned

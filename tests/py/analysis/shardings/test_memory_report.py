"""The breakdown of memory at the peak."""

import jax
import jax.numpy as jnp
import numpy as np

from shardc.analysis.shardings.memory_report import memory_at_peak
from shardc.plan.layout import Mesh
from shardc.solver.problem.problem import evaluate
from shardc.solver.solve import solve
from tests.py.analysis.shardings.planned_programs import cluster, outlined, problem

ONE = Mesh((), (0,))


def step(state, x, y):
    def loss(w):
        return jnp.mean((jnp.tanh(x @ w["a"]) @ w["b"] - y) ** 2)

    weights, moments = state
    value, gradients = jax.value_and_grad(loss)(weights)
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, gradients)
    return (jax.tree.map(lambda w, m: w - 0.1 * m, weights, moments), moments), value


def breakdown(rows, microbatches):
    weights = {"a": np.zeros((32, 64), np.float32), "b": np.zeros((64, 32), np.float32)}
    data = np.zeros((rows, 32), np.float32)
    module = outlined(step, (weights, weights), data, data, donate=0, microbatches=microbatches)
    built = problem(module, ONE, cluster(flops_per_s=1e9), microbatches=microbatches)
    choice = solve(built.problem).choice
    memory = memory_at_peak(built, choice)
    assert memory.total == evaluate(built.problem, choice).peak_usage
    return memory


def test_each_kind_is_what_it_is_called():
    weights = 2 * 32 * 64 * 4
    memory = breakdown(16, 2)
    assert memory.parameters == memory.optimizer_state == weights
    assert memory.inputs == 2 * 16 * 32 * 4
    assert memory.gradients == weights
    assert memory.results <= 4  # the sum of the loss


def test_the_stash_is_that_of_all_microbatches_in_flight():
    """tanh of 64 and the error of 32 numbers a row, all microbatches at once under GPipe."""
    memory = breakdown(4096, 2)
    assert memory.stash >= 4096 * (64 + 32) * 4
    assert memory.stash > memory.parameters

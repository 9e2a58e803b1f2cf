"""What goes with a forward op to its stage: the same work in all, put where it is done."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardc.analysis.program.arguments import state_aliases
from shardc.analysis.program.def_use import dataflow, step_facts
from shardc.analysis.program.flops import op_cost
from shardc.analysis.stages.cloned_ops import cloneable_ops
from shardc.analysis.stages.forward_backward import forward_ops
from shardc.analysis.stages.stage_cuts import balanced_cuts
from shardc.analysis.stages.stage_work import work_of_forward_ops
from shardc.compiler import prepare
from shardc.cutting import split
from shardc.importer.from_jax import import_function
from shardc.ir.walk import main_function

ROWS, WIDTH, LAYERS = 4096, 16, 4


def step(state, ids):
    """A large table of which few rows are used, but all are updated; then equal layers."""

    def loss_of(state):
        x = state["table"][ids]
        for w in state["layers"]:
            x = jnp.tanh(x @ w)
        return jnp.mean(x**2)

    gradient = jax.grad(loss_of)(state)
    return jax.tree.map(lambda w, g: w - 0.1 * g / jnp.sqrt(1.0 + g * g), state, gradient)


def analysed(microbatches):
    state = {
        "table": np.ones((ROWS, WIDTH), np.float32),
        "layers": [np.ones((WIDTH, WIDTH), np.float32)] * LAYERS,
    }
    module = import_function(step, (state, np.zeros(64, np.int32)), donate_argnums=0).module
    prepare(module)
    module = split(module, microbatches, None)
    main = main_function(module.operation)
    flow = dataflow(main)
    facts, aliases = step_facts(main, flow), state_aliases(main)
    forward = forward_ops(flow, facts, set(aliases.values()))
    order = sorted(forward - cloneable_ops(flow, facts, set(aliases)))
    work = work_of_forward_ops(flow, facts, forward, aliases, order, microbatches)
    return module, flow, facts, order, work


@pytest.mark.parametrize("microbatches", [1, 2])
def test_all_work_is_counted_once(microbatches):
    _module, flow, facts, order, work = analysed(microbatches)
    times = [microbatches if phase == "body" else 1 for phase in facts.phase]
    total = sum(op_cost(op).flops * n for op, n in zip(flow.ops, times, strict=True))
    assert len(work) == len(order)
    assert 0.9 * total <= sum(work) <= total  # but for what each stage that uses it computes


def test_the_stage_of_a_large_table_gets_fewer_layers():
    _module, flow, _facts, order, work = analysed(2)
    (by_work,) = balanced_cuts(flow, order, 2, work)
    (by_flops,) = balanced_cuts(flow, order, 2)
    assert by_work < by_flops

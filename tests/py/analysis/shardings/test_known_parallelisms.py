"""Parallelisms that papers describe come out as optima, with the collectives that the papers count.

Four devices on a line, links of 1e9 bytes/s without latency, arithmetic so slow that all of it has
to be split. Bytes that one device sends are then nanoseconds of communication.
"""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardc.analysis.shardings.stage_problem import StageProblem
from shardc.plan.layout import Mesh
from shardc.solver.solve import solve
from tests.py.analysis.shardings.planned_programs import (
    cluster,
    collectives,
    communication_s,
    outlined,
    problem,
)

LINE = Mesh((("x", 4),), (0, 1, 2, 3))
MACHINE = cluster(flops_per_s=1e9)
GATHER = 3 / 4 / 1e9  # seconds per byte of the whole value, by one device


def zeros(*shape):
    return np.zeros(shape, np.float32)


def whole_of(built: StageProblem, choice, prefix: str) -> dict[str, bool]:
    """Value id -> whether it lies whole on every device."""
    return {
        value: not built.value_options[value][choice[node]].axes
        for value, node in built.value_nodes.items()
        if value.startswith(prefix) and built.value_options[value][0].dims
    }


LAYERS, WIDTH = 3, 64
WEIGHT = WIDTH * WIDTH * 4


def adam_step(state, x, y):
    def loss(weights):
        h = x
        for w in weights:
            h = jax.nn.relu(h @ w)
        return jnp.mean((h - y) ** 2)

    weights, first, second = state
    value, gradients = jax.value_and_grad(loss)(weights)
    first = [0.9 * m + 0.1 * g for m, g in zip(first, gradients, strict=True)]
    second = [0.9 * v + 0.1 * g * g for v, g in zip(second, gradients, strict=True)]
    moments = zip(weights, first, second, strict=True)
    weights = [w - 0.1 * m / (jnp.sqrt(v) + 1e-8) for w, m, v in moments]
    return (weights, first, second), value


def planned_adam(microbatches: int, limit: int | None):
    rows = 256 * microbatches
    state = tuple([zeros(WIDTH, WIDTH)] * LAYERS for _ in range(3))
    data = zeros(rows, WIDTH), zeros(rows, WIDTH)
    module = outlined(adam_step, state, *data, donate=0, microbatches=microbatches)
    built = problem(module, LINE, MACHINE, microbatches=microbatches, usage_limit=limit)
    solution = solve(built.problem, time_limit_s=30)
    counts = collectives(module, built, solution, LINE, MACHINE)
    return built, solution, counts


WEIGHTS = [f"arg{n}" for n in range(LAYERS)]
MOMENTS = [f"arg{n}" for n in range(LAYERS, 3 * LAYERS)]


def test_zero_1_shards_the_optimizer_and_reduces_gradients_once_per_step():
    """Rajbhandari et al., SC 2020: one reduce-scatter and one all-gather per parameter, 2 Psi."""
    built, solution, counts = planned_adam(2, None)
    whole = whole_of(built, solution.choice, "arg")
    assert [whole[name] for name in WEIGHTS] == [True] * LAYERS
    assert [whole[name] for name in MOMENTS] == [False] * 2 * LAYERS
    assert all(whole_of(built, solution.choice, "acc").values())  # each device has its own sum
    assert not counts["forward"] and not counts["backward"]
    assert (counts["update"]["reduce_scatter"], counts["update"]["all_gather"]) == (3, 3)
    expected = LAYERS * 2 * WEIGHT * GATHER
    assert communication_s(built, solution) == pytest.approx(expected, rel=1e-3)


def test_zero_2_shards_the_gradients_where_their_sums_do_not_fit():
    """Now each microbatch is reduced into the shard that its device keeps."""
    built, solution, counts = planned_adam(2, 402_000)
    whole = whole_of(built, solution.choice, "arg")
    assert [whole[name] for name in WEIGHTS] == [True] * LAYERS
    assert not any(whole_of(built, solution.choice, "acc").values())
    assert counts["backward"]["reduce_scatter"] == LAYERS
    assert counts["update"]["all_gather"] == LAYERS
    expected = LAYERS * (2 + 1) * WEIGHT * GATHER  # twice in the microbatches, once after them
    assert communication_s(built, solution) == pytest.approx(expected, rel=1e-3)


def test_zero_3_gathers_each_weight_where_it_is_used():
    """Forward and backward, 3 Psi: but no backward pass needs the first layer's weight."""
    built, solution, counts = planned_adam(1, 225_000)
    assert not any(whole_of(built, solution.choice, "arg")[name] for name in WEIGHTS + MOMENTS)
    assert counts["forward"]["all_gather"] == LAYERS
    assert counts["backward"] == {"all_gather": LAYERS - 1, "reduce_scatter": LAYERS}
    assert not counts["update"]
    expected = (3 * LAYERS - 1) * WEIGHT * GATHER
    assert communication_s(built, solution) == pytest.approx(expected, rel=1e-3)


def norm(x):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def test_sequence_parallelism_gathers_and_scatters_around_each_split_block():
    """Korthikanti et al., MLSys 2023: an all-gather before, a reduce-scatter behind the products,
    and norms and residuals on a part of the sequence."""
    length, width, hidden = 64, 64, 256

    def two_blocks(x, a, b, c, d):
        h = x + jax.nn.relu(norm(x) @ a) @ b
        return h + jax.nn.relu(norm(h) @ c) @ d

    weights = [zeros(width, hidden), zeros(hidden, width)] * 2
    module = outlined(two_blocks, zeros(1, length, width), *weights)
    # Weights do not fit whole.
    built = problem(module, LINE, MACHINE, usage_limit=125_000)
    solution = solve(built.problem, time_limit_s=30)
    counts = sum(collectives(module, built, solution, LINE, MACHINE).values(), start=Counter())
    assert counts == {"all_gather": 2, "reduce_scatter": 2}
    sent = 4 * length * width * 4 * GATHER
    assert communication_s(built, solution) == pytest.approx(sent, rel=1e-3)


def test_tied_embeddings_are_split_along_the_vocabulary():
    """Shoeybi et al., arXiv:1909.08053: the table is looked up in parts, and so are the logits."""
    rows, length, vocabulary, width = 4, 4, 2048, 16

    def step(params, tokens, labels):
        def loss(params):
            h = jax.nn.relu(params["table"][tokens] @ params["w"])
            logits = jax.nn.log_softmax(h @ params["table"].T)
            return -jnp.mean(jnp.take_along_axis(logits, labels[..., None], -1))

        value, gradients = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value

    params = {"table": zeros(vocabulary, width), "w": zeros(width, width)}
    tokens = np.zeros((rows, length), np.int32)
    module = outlined(step, params, tokens, tokens, donate=0)
    built = problem(module, LINE, MACHINE)
    solution = solve(built.problem, time_limit_s=30)
    table = built.value_options["arg0"][solution.choice[built.value_nodes["arg0"]]]
    assert table.dims == (("x",), ())
    # Activations and statistics of the softmax cross, neither logits nor table.
    assert communication_s(built, solution) < vocabulary * width * 4 * GATHER / 10


def test_experts_are_split_and_tokens_change_hands_four_times():
    """Lepikhin et al., ICLR 2021: to the experts and back, forward and backward."""
    groups, tokens, width, experts, hidden, capacity = 16, 16, 32, 16, 64, 2

    def step(params, x, dispatch):
        def loss(params):
            h = jax.nn.relu(jnp.einsum("gsh,hk->gsk", x, params["dense"]))
            sent = jnp.einsum("gsec,gsh->egch", dispatch, h)
            a = jax.nn.relu(jnp.einsum("egch,ehf->egcf", sent, params["in"]))
            got = jnp.einsum("egcf,efh->egch", a, params["out"])
            return jnp.mean(jnp.einsum("gsec,egch->gsh", dispatch, got) ** 2)

        value, gradients = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value

    params = {
        "dense": zeros(width, width),
        "in": zeros(experts, width, hidden),
        "out": zeros(experts, hidden, width),
    }
    data = zeros(groups, tokens, width), zeros(groups, tokens, experts, capacity)
    module = outlined(step, params, *data, donate=0)
    built = problem(module, LINE, MACHINE)
    solution = solve(built.problem, time_limit_s=30)
    for name in ("arg1", "arg2"):  # the experts' weights
        lies = built.value_options[name][solution.choice[built.value_nodes[name]]]
        assert lies.dims[0] == ("x",)
    counts = collectives(module, built, solution, LINE, MACHINE)
    assert counts["forward"]["all_to_all"] == counts["backward"]["all_to_all"] == 2
    exchanged = 4 * experts * groups * capacity * width * 4 / 4 * GATHER
    # The weight outside the experts is small: its gradient is reduced, or it is split as well.
    assert communication_s(built, solution) == pytest.approx(exchanged, rel=0.01)


def test_heads_are_exchanged_for_the_sequence_around_attention():
    """Jacobs et al., arXiv:2309.14509 (Ulysses): queries, keys, values to heads, results back."""
    length, heads, size = 256, 4, 16
    width = heads * size

    def attention(x, wq, wk, wv, wo):
        q, k, v = (jnp.reshape(x @ w, (1, length, heads, size)) for w in (wq, wk, wv))
        scores = jax.nn.softmax(jnp.einsum("bsnd,btnd->bnst", q, k))
        mixed = jnp.einsum("bnst,btnd->bsnd", scores, v)
        out = jnp.reshape(mixed, (1, length, width)) @ wo
        return out / jnp.sqrt(jnp.sum(out * out, -1, keepdims=True))

    module = outlined(attention, zeros(1, length, width), *[zeros(width, width)] * 4)
    built = problem(module, LINE, MACHINE)
    solution = solve(built.problem, time_limit_s=30)
    counts = sum(collectives(module, built, solution, LINE, MACHINE).values(), start=Counter())
    assert counts == {"all_to_all": 4}
    exchanged = 4 * length * width * 4 / 4 * GATHER
    assert communication_s(built, solution) == pytest.approx(exchanged, rel=1e-3)

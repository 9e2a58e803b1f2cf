"""The sharding problem says what a choice costs, and its best choices are the well-known ones."""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardc.analysis.program.flops import op_cost
from shardc.analysis.program.fusion import fused_traffic
from shardc.analysis.program.stage_table import next_states
from shardc.analysis.shardings.problem_graph import function_facts
from shardc.cost.collectives import all_reduce_over_s
from shardc.cost.links import axis_links
from shardc.cost.reshard import reshard
from shardc.cost.roofline import op_time_s
from shardc.errors import InfeasibleError
from shardc.ir.attributes import KIND, get_str
from shardc.ir.tensor_types import dtype_of, itemsize, num_bytes, shape_of
from shardc.ir.walk import body, functions, ops, planned_ops, symbol, terminator
from shardc.plan.layout import Mesh
from shardc.plan.priced_work import Work
from shardc.solver.problem.problem import evaluate
from shardc.solver.solve import LimitError, solve
from tests.py.analysis.shardings.planned_programs import cluster, outlined, problem, random_choice

LINE = Mesh((("x", 4),), tuple(range(4)))
SQUARE = Mesh((("x", 2), ("y", 2)), tuple(range(4)))
SLOW = cluster(flops_per_s=1e10)  # a matrix product is worth splitting, a relu is not


def ones(*shape):
    return jnp.ones(shape, jnp.float32)


def mlp_step(weights, x, y):
    def loss(weights):
        h = x
        for w in weights:
            h = jax.nn.relu(h @ w)
        return jnp.mean((h - y) ** 2)

    value, gradients = jax.value_and_grad(loss)(weights)
    return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)], value


def mlp(layers, batch, width, microbatches=1):
    weights = [ones(width, width)] * layers
    batch = ones(batch, width), ones(batch, width)
    return outlined(mlp_step, weights, *batch, donate=0, microbatches=microbatches)


def recomputed_s(module, planned, mesh, machine, microbatches):
    """Seconds of a step from the shardings of its functions, by the definition."""
    links = axis_links(machine, mesh)
    total = 0.0
    for function in functions(module.operation):
        chosen = planned[symbol(function)]
        repeats = microbatches if get_str(function, KIND) in ("forward", "backward") else 1
        lies = dict(zip(body(function).arguments, chosen.arguments, strict=True))
        seconds = 0.0

        def seconds_of(value, target, lies=lies):
            size = itemsize(dtype_of(value))
            return reshard(lies[value], target, mesh, shape_of(value), size, links).seconds

        traffic = dict(zip(planned_ops(function), fused_traffic(function), strict=True))
        for op, sharding in zip(ops(function), chosen.ops, strict=True):
            for operand, wanted in zip(op.operands, sharding.operands, strict=True):
                seconds += seconds_of(operand, wanted)
            axes = {a for s in (*sharding.operands, *sharding.results) for a in s.axes}
            shards = math.prod(mesh.size(a) for a in axes)
            cost = op_cost(op)
            moved = traffic[op].num_bytes / shards
            if op.name == "stablehlo.dot_general":
                lying = zip(
                    [*op.operands, *op.results],
                    [*sharding.operands, *sharding.results],
                    strict=True,
                )
                moved = sum(num_bytes(v) / mesh.num_shards(s.axes) for v, s in lying)
            dtype = dtype_of(next(iter([*op.operands, *op.results])))
            seconds += op_time_s(Work(dtype, cost.flops / shards, moved), machine.device)
            if sharding.reduce_axes:
                local = sum(
                    num_bytes(r) // mesh.num_shards(s.axes)
                    for r, s in zip(op.results, sharding.results, strict=True)
                )
                ring = [(mesh.size(a), links[a]) for a in sharding.reduce_axes]
                seconds += all_reduce_over_s(ring, local)
            lies.update(zip(op.results, sharding.results, strict=True))
        for value, target in zip(terminator(function).operands, chosen.results, strict=True):
            seconds += seconds_of(value, target)
        total += repeats * seconds
    return total


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [LINE, SQUARE], ids=["4", "2x2"])
@pytest.mark.parametrize("microbatches", [1, 2])
def test_a_choice_costs_what_its_ops_and_reshards_cost(mesh, microbatches):
    module = mlp(2, 8, 4, microbatches)
    machine = cluster(flops_per_s=1e9, latency_s=1e-6)
    built = problem(module, mesh, machine, microbatches=microbatches)
    rng = np.random.default_rng(0)
    solved = list(solve(built.problem, time_limit_s=20).choice)
    finite = 0
    for k in range(60):
        choice = list(solved)
        for node in rng.integers(len(choice), size=k % 4):
            choice[node] = int(rng.integers(len(built.problem.costs[node])))
        cost = evaluate(built.problem, choice).cost
        with module.context:
            again = recomputed_s(module, built.shardings(choice), mesh, machine, microbatches)
        if math.isfinite(cost):
            finite += 1
            assert cost == pytest.approx(again, rel=1e-9)
    assert finite > 10


def test_an_impossible_choice_costs_infinity():
    """A whole value cannot become partial sums, whoever asks for it."""
    module = mlp(1, 8, 4)
    built = problem(module, LINE, SLOW)
    rng = np.random.default_rng(1)
    costs = [evaluate(built.problem, random_choice(built, rng)).cost for _ in range(50)]
    assert math.inf in costs


@pytest.mark.parametrize("limit", [None, 240])
def test_solve_finds_what_trying_all_choices_finds(limit):
    module = outlined(lambda x, w: x @ w, ones(8, 4), ones(4, 8), batch=(0,))
    machine = cluster(flops_per_s=1e9, latency_s=1e-7)
    built = problem(module, LINE, machine, usage_limit=limit)
    ranges = [range(len(costs)) for costs in built.problem.costs]
    assert math.prod(map(len, ranges)) < 50_000, [len(r) for r in ranges]
    scores = (evaluate(built.problem, choice) for choice in itertools.product(*ranges))
    best = min(score.cost for score in scores if score.feasible)
    assert solve(built.problem).objective == pytest.approx(best, rel=1e-9)


def all_reduce_s(num_bytes):
    """On four devices with 1e9 bytes/s and no latency."""
    return 2 * 3 / 4 * num_bytes / 1e9


def communication_s(built, solution, machine):
    """What the plan takes beyond its arithmetic, split evenly over four devices."""
    return solution.objective - built.num_flops / 4 / machine.device.peak_flops_per_s("float32")


def matmul_shardings(module, planned):
    """(op, OpSharding) of every matrix product."""
    return [
        (op, sharding)
        for function in functions(module.operation)
        for op, sharding in zip(ops(function), planned[symbol(function)].ops, strict=True)
        if op.name == "stablehlo.dot_general"
    ]


def test_a_batch_larger_than_the_width_gives_data_parallelism():
    """One all-reduce per weight (Alpa, test_auto_sharding_mlp.py): nothing else is sent."""
    layers, batch, width = 4, 256, 32
    module = mlp(layers, batch, width)
    built = problem(module, LINE, SLOW)
    solution = solve(built.problem, time_limit_s=30)
    expected = layers * all_reduce_s(4 * width * width)
    assert communication_s(built, solution, SLOW) == pytest.approx(expected, rel=0.02)
    with module.context:
        for op, sharding in matmul_shardings(module, built.shardings(solution.choice)):
            for value, used in zip(op.operands, sharding.operands, strict=True):
                split = [d for d, axes in enumerate(used.dims) if axes]
                assert all(shape_of(value)[d] == batch for d in split)


def test_the_barriers_of_a_checkpoint_leave_each_operand_its_own_sharding():
    """They take activations beside weights; only the former are to be split."""

    def step(weights, x, y):
        def loss(weights):
            h = x
            for w in weights:
                h = jax.checkpoint(lambda h, w: jnp.tanh(h @ w))(h, w)
            return jnp.mean((h - y) ** 2)

        value, gradients = jax.value_and_grad(loss)(weights)
        return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)], value

    layers, batch, width = 2, 256, 32
    data = ones(batch, width), ones(batch, width)
    module = outlined(step, [ones(width, width)] * layers, *data, donate=0, microbatches=1)
    built = problem(module, LINE, SLOW)
    barriers = [
        (op, built.shardings(solve(built.problem, time_limit_s=30).choice)[symbol(f)].ops[i])
        for f in functions(module.operation)
        for i, op in enumerate(ops(f))
        if op.name == "stablehlo.optimization_barrier" and len(op.operands) > 1
    ]
    assert barriers
    for op, sharding in barriers:
        assert sharding.operands == sharding.results
        split = [any(s.dims) for s in sharding.operands if len(s.dims) == 2]
        shapes = [shape_of(value) for value in op.operands if len(shape_of(value)) == 2]
        # An argument costs nothing whole, so it may be split or not.
        assert any(split)
        assert all(shape[0] == batch for shape, s in zip(shapes, split, strict=True) if s)


def scanned_mlp_step(weights, x, y):
    def loss(weights):
        h, _ = jax.lax.scan(lambda h, w: (jax.nn.relu(h @ w), None), x, weights)
        return jnp.mean((h - y) ** 2)

    value, gradients = jax.value_and_grad(loss)(weights)
    return weights - 0.1 * gradients, value


@pytest.mark.parametrize("microbatches", [1, 2])
def test_layers_in_a_loop_are_sharded_and_cost_like_unrolled_ones(microbatches):
    layers, batch, width = 4, 512, 32
    data = ones(batch, width), ones(batch, width)
    module = outlined(
        scanned_mlp_step, ones(layers, width, width), *data, donate=0, microbatches=microbatches
    )
    built = problem(module, LINE, SLOW, microbatches=microbatches)
    unrolled = problem(
        mlp(layers, batch, width, microbatches), LINE, SLOW, microbatches=microbatches
    )
    # The loop also computes a gradient of x, for which an unrolled program has no use.
    unused = 2 * batch * width * width
    assert built.num_flops == pytest.approx(unrolled.num_flops + unused, rel=1e-3)
    solution = solve(built.problem, time_limit_s=30)
    best = solve(unrolled.problem, time_limit_s=30)
    expected = best.objective + unused / 4 / SLOW.device.peak_flops_per_s("float32")
    assert solution.objective == pytest.approx(expected, rel=0.02)
    with module.context:
        chosen = built.shardings(solution.choice)
        dots = [
            sharding
            for function in functions(module.operation)
            for op, sharding in zip(
                planned_ops(function), chosen[symbol(function)].ops, strict=True
            )
            if op.name == "stablehlo.dot_general"
        ]
    assert len(dots) == 3
    assert all(any(s.axes for s in sharding.operands) for sharding in dots)


def test_a_width_larger_than_the_batch_gives_tensor_parallelism():
    """Columns, then rows: L - 1 all-reduces of activations (Alpa, test_auto_sharding_mlp.py)."""
    layers, batch, width = 4, 32, 256
    module = mlp(layers, batch, width)
    built = problem(module, LINE, SLOW)
    solution = solve(built.problem, time_limit_s=30)
    expected = (layers - 1) * all_reduce_s(4 * batch * width)
    assert communication_s(built, solution, SLOW) <= expected * 1.02
    with module.context:
        for op, sharding in matmul_shardings(module, built.shardings(solution.choice)):
            dims = [
                shape_of(v)[d]
                for v, s in [
                    *zip(op.operands, sharding.operands, strict=True),
                    *zip(op.results, sharding.results, strict=True),
                ]
                for d, axes in enumerate(s.dims)
                if axes
            ]
            assert width in dims and batch not in dims


def test_without_its_objective_the_solver_would_not_find_that():
    """The two tests above fail if costs are ignored: some plans cost much more."""
    module = mlp(2, 256, 32)
    built = problem(module, LINE, SLOW)
    blind = dataclasses.replace(
        built.problem,
        costs=[np.zeros_like(costs) for costs in built.problem.costs],
        edge_costs=[np.where(np.isfinite(t), 0.0, np.inf) for t in built.problem.edge_costs],
    )
    best = solve(built.problem, time_limit_s=20).objective
    assert evaluate(built.problem, solve(blind, time_limit_s=20).choice).cost > 1.5 * best


def two_layers(x, w, v):
    return jnp.tanh(x @ w) @ v


def test_a_memory_limit_forces_sharded_parameters():
    """A large batch wants whole weights; they are split where they do not fit."""
    batch, width = 256, 64
    args = ones(batch, width), ones(width, width), ones(width, width // 2)
    module = outlined(two_layers, *args, batch=(0,))
    machine = cluster(flops_per_s=1e8, latency_s=1e-6)

    def plan(limit):
        """Peak bytes, and into how many parts each weight is split."""
        built = problem(module, LINE, machine, usage_limit=limit)
        solution = solve(built.problem, time_limit_s=20)
        planned = built.shardings(solution.choice)["stage0_forward"]
        values = dict(zip(built.function_args["stage0_forward"], planned.arguments, strict=True))
        shards = [LINE.num_shards(values[name].axes) for name in ("arg1", "arg2")]
        return evaluate(built.problem, solution.choice).peak_usage, shards

    _, whole = plan(None)
    assert whole == [1, 1]
    with pytest.raises(LimitError) as too_little:
        plan(1)
    limit = too_little.value.peak_bytes
    peak_bytes, split = plan(limit)
    assert peak_bytes <= limit
    assert split != [1, 1]


def test_a_limit_below_the_state_is_infeasible():
    module = outlined(two_layers, ones(8, 8), ones(8, 8), ones(8, 4), batch=(0,))
    built = problem(module, LINE, SLOW, usage_limit=64)
    with pytest.raises(InfeasibleError) as caught:
        solve(built.problem)
    assert caught.value.code == "SHARDC-220"


def test_state_keeps_its_sharding_from_step_to_step():
    module = mlp(2, 64, 64)
    built = problem(module, SQUARE, SLOW)
    solution = solve(built.problem, time_limit_s=20)
    planned = built.shardings(solution.choice)
    at = {}
    for name, functions_args in built.function_args.items():
        at.update(zip(functions_args, planned[name].arguments, strict=True))
    for name, results in built.function_results.items():
        at.update(zip(results, planned[name].results, strict=True))
    with module.context:
        pairs = next_states(module.operation)
    assert len(pairs) == 2
    for value, argument in pairs.items():
        assert at[value] == at[argument]


def test_facts_that_meshes_share_give_each_the_problem_that_it_has_alone():
    module = mlp(2, 16, 8)
    with module.context:
        facts = function_facts(module.operation)
    for mesh in (LINE, SQUARE, LINE):
        alone, shared = (problem(module, mesh, SLOW, facts=each).problem for each in (None, facts))
        assert alone.edges == shared.edges
        for name in ("costs", "edge_costs", "usages", "intervals"):
            for one, other in zip(getattr(alone, name), getattr(shared, name), strict=True):
                np.testing.assert_array_equal(one, other)

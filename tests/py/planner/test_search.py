"""What the planner makes of requests that leave something to it."""

import math
import warnings
from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.analysis.stages.stage_refusal import nothing_to_cut
from shardc.errors import RequestWarning
from shardc.options import PlanOptions
from shardc.planner import search
from shardc.planner.attempts import Attempts
from shardc.planner.budget import BUDGET
from shardc.planner.search import Planner
from shardc.planner.shapes import FAR
from tests.py.programs import build
from tests.py.table import CLUSTER


@pytest.mark.slow
def test_stages_that_are_asked_for_share_the_work_of_one_microbatch() -> None:
    """Statistics over the batch in every layer: it cannot be cut."""
    step, args, donated, *_ = build("mlp_batch_norm")
    plan = (
        shardc.jit(step, donate_argnums=donated, stages=2, cluster=CLUSTER).lower(*args).plan().plan
    )
    assert (plan.num_stages, plan.num_microbatches) == (2, 1)
    flops: dict[tuple[int, ...], int] = {}
    for stage in plan.stages:
        own = stage.mesh.device_ids
        flops[own] = flops.get(own, 0) + stage.num_flops
    assert min(flops.values()) >= 0.25 * sum(flops.values())


@pytest.mark.slow
def test_stages_that_are_asked_for_come_before_microbatches_left_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a graph network with sums over all graphs in each layer, where nothing can be cut as
    soon as there are microbatches."""
    step, args, donated, *_ = build("mlp")
    planned = shardc.jit(step, donate_argnums=donated, cluster=CLUSTER).lower(*args).plan()
    planner = Planner(planned._prepared, CLUSTER, PlanOptions(stages=2, mesh=(1,)))
    planner.splits.whole(2)
    answers = iter([nothing_to_cut("nothing can be cut", "use stages=1"), None])
    monkeypatch.setattr(search, "promising_shapes", lambda *given: next(answers))
    plan = planner.run()
    assert (plan.num_stages, plan.num_microbatches, plan.unmet) == (2, 1, ())
    assert any("the forward pass has too few layers" in str(note) for note in plan.notes)


@pytest.mark.slow
def test_a_single_stage_is_planned_on_each_mesh_that_seems_as_fast() -> None:
    """Prices of layers leave out the reshards between them, so the plans decide."""
    program = build("mlp_batch_norm")
    step = shardc.jit(program.step, donate_argnums=program.donate_argnums, stages=1)
    module = step.lower(*program.args).plan()._prepared
    planner = Planner(module, CLUSTER, PlanOptions(stages=1))
    best = planner.run()
    assert planner.promising is not None
    prices, count = planner.promising.search.prices, best.num_microbatches
    times = {mesh: prices.all_s(mesh, count) for mesh in prices.open_views(8)}
    near = {mesh for mesh, mesh_s in times.items() if mesh_s <= FAR * min(times.values())}
    judged = {
        proposal.shape.meshes[0]: each
        for proposal, each in planner.tried.judged.items()
        if proposal.shape.num_microbatches == count
    }
    assert len(near) > 1
    assert near <= judged.keys()
    assert all(
        each.exact is None or each.exact.step_time_s >= best.predicted.step_time_s
        for each in judged.values()
    )


@pytest.mark.slow
@pytest.mark.parametrize(("slower", "planned"), [(1, 1), (2, 2)])
def test_the_budget_of_ops_leaves_one_rival_whose_estimate_is_below_the_plan(
    slower: float, planned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def best_s(tried: Attempts) -> float:
        return math.inf if tried.best is None else slower * tried.best.seconds

    program = build("mlp")
    step = shardc.jit(program.step, donate_argnums=program.donate_argnums)
    module = step.lower(*program.args).plan()._prepared
    planner = Planner(module, CLUSTER, PlanOptions(schedule="1f1b"))
    monkeypatch.setattr(search, "BUDGET", replace(BUDGET, ranked_ops=0))
    monkeypatch.setattr(Attempts, "best_s", property(best_s))
    planner.run()
    exact = [each for each in planner.tried.judged.values() if each.exact is not None]
    assert len(exact) == planned
    assert planner.promising is not None
    found = planner.promising.found[0]
    for factor in (0.999, 1.001):  # of the time of the best plan
        pipeline = replace(found.pipeline, step_time_s=factor * planner.tried.best_s)
        may = planner.tried.may_plan(replace(found, pipeline=pipeline), 0)
        assert may == (factor < 1.0 and planned == 1)


@pytest.mark.parametrize(
    "step",
    [
        lambda x: x,
        lambda x: 2 * x,
        lambda x: jnp.sum(x),
        lambda x: jnp.zeros(3),
        lambda x: jnp.sort(x),
        lambda x: jax.lax.fori_loop(0, 4, lambda _, y: jnp.sin(y), x),
        lambda x: jax.lax.scan(lambda y, _: (y @ y, None), jnp.outer(x, x), length=5)[0],
    ],
    ids=["nothing", "one op", "a sum", "constants", "a sort", "a loop", "a scan"],
)
@pytest.mark.parametrize("shape", [(1,), (8,)], ids=str)
def test_tiny_programs_get_one_stage(
    step: Callable[[jax.Array], jax.Array], shape: tuple[int, ...]
) -> None:
    plan = shardc.jit(step, cluster=CLUSTER).lower(np.ones(shape, np.float32)).plan().plan
    assert plan.num_stages == 1


def test_a_batch_of_millions_is_planned_like_any_other() -> None:
    """Neither its divisors nor the schedules of so many microbatches are counted one by one."""

    def step(w: jax.Array, x: jax.Array) -> jax.Array:
        return w - 0.1 * jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)

    w, x = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((8, 8), (1 << 24, 8)))
    plan = shardc.jit(step, cluster=CLUSTER).lower(w, x).plan().plan
    assert 1 <= plan.num_microbatches <= BUDGET.most_microbatches


@pytest.mark.slow
@pytest.mark.parametrize(("layers", "stages"), [(8, 4), (3, 3)])
def test_loops_with_a_small_share_of_the_work_are_cut_into_as_many_stages_as_asked(
    layers: int, stages: int
) -> None:
    """A fifth of the work of this step is the update's: by their share, loops get fewer parts than
    there are stages."""

    def step(w: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        def loss(w: jax.Array) -> jax.Array:
            return jnp.mean(jax.lax.scan(lambda h, row: (jnp.tanh(h @ row), None), x, w)[0] ** 2)

        value, new = jax.value_and_grad(loss)(w)
        for _ in range(30):
            new = jnp.sin(new) + w
        return new, value

    wrapped = shardc.jit(step, cluster=CLUSTER, stages=4, microbatches=2)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", RequestWarning)
        planned = wrapped.lower(jnp.ones((layers, 8, 8)), jnp.ones((16, 8))).plan()
    assert planned.plan.num_stages == stages
    assert any(isinstance(each.message, RequestWarning) for each in said) is (stages < 4)


@pytest.mark.parametrize("asked", [{}, {"stages": 1, "mesh": (1,)}])
def test_one_device_takes_as_many_microbatches_as_it_needs(asked: dict[str, object]) -> None:
    """It was refused unless 64 were enough, or a smaller power of two that divides the batch."""

    def step(weights: list[jax.Array], x: jax.Array) -> tuple[list[jax.Array], jax.Array]:
        def loss(weights: list[jax.Array]) -> jax.Array:
            return jnp.mean((jnp.tanh(jnp.tanh(x @ weights[0])) @ weights[1]) ** 2)

        value, grads = jax.value_and_grad(loss)(weights)
        return [w - 0.1 * g for w, g in zip(weights, grads, strict=True)], value

    weights = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((16, 4096), (4096, 16))]
    x = jax.ShapeDtypeStruct((3**5, 16), jnp.float32)
    planned = shardc.jit(
        step,
        donate_argnums=0,
        cluster=CLUSTER.with_devices(1),
        memory_limit_bytes=1_500_000,
        **asked,
    )
    assert planned.lower(weights, x).plan().plan.num_microbatches > 64


@pytest.mark.slow
def test_stages_that_seem_too_large_are_planned_exactly() -> None:
    """Prices of layers leave no room in any number of microbatches; the plan takes 18.5 KiB."""

    def loss(layers: list[dict[str, jax.Array]], x: jax.Array, y: jax.Array) -> jax.Array:
        hidden = x
        for layer in layers:
            hidden = hidden + jnp.tanh(hidden @ layer["up"]) @ layer["down"]
        return jnp.mean((hidden - y) ** 2)

    layers = [{"up": jnp.ones((32, 64)) / 64, "down": jnp.ones((64, 32)) / 64}] * 2
    limit = {"cluster": "h100-4x2", "memory_limit_bytes": 20 * 1024}
    step = shardc.jit(jax.value_and_grad(loss), stages=2, mesh=(2, 2), **limit)
    plan = step.lower(layers, jnp.ones((16, 32)), jnp.zeros((16, 32))).plan().plan
    assert plan.num_stages == 2
    assert plan.predicted.peak_bytes_per_device <= 20 * 1024

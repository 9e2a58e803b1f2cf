"""What Lowered, Planned and Compiled tell of themselves, and of the function that made them."""

import contextlib
import gc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.api.planning.find import OBJECTS_PER_COLLECTION, collected_seldom
from shardc.api.telling.host_time import ACTION_S
from shardc.errors import ClusterError, InputError
from shardc.report.summary import seconds

X = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
W = np.eye(8, dtype=np.float32)


def step(state: Any, x: Any, key: Any) -> Any:
    def loss(w: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ w["in"]) @ w["out"]) ** 2)

    value, grads = jax.value_and_grad(loss)(state)
    return jax.tree.map(lambda p, g: p - g, state, grads), (x + value, jax.random.split(key))


def arguments() -> Any:
    return {"in": jnp.asarray(W), "out": jnp.asarray(W)}, X, jax.random.key(0)


@pytest.mark.parametrize("stages", [1, 2])
def test_compiled_knows_where_arguments_and_results_lie(stages: int) -> None:
    compiled = (
        shardc.jit(step, stages=stages, microbatches=2, donate_argnums=0)
        .lower(*arguments())
        .compile()
    )
    places, rest = compiled.input_shardings
    assert rest == {} and jax.tree.structure((places, rest)) == compiled.in_tree
    state = jax.device_put(arguments()[0], places[0])
    pointers = [leaf.addressable_shards[0].data.unsafe_buffer_pointer() for leaf in state.values()]
    results = compiled(state, *arguments()[1:])
    # Donated where it lies, so the next state is written in place.
    now = [leaf.addressable_shards[0].data.unsafe_buffer_pointer() for leaf in results[0].values()]
    assert now == pointers
    for result, place in zip(
        jax.tree.leaves(results), jax.tree.leaves(compiled.output_shardings), strict=True
    ):
        assert result.sharding.is_equivalent_to(place, result.ndim)


def test_all_three_have_what_jax_stages_has() -> None:
    f = shardc.jit(step, stages=1, microbatches=1, donate_argnums=0)
    lowered = f.lower(*arguments())
    planned = lowered.plan()
    compiled = planned.compile()
    want = jax.jit(step, donate_argnums=0, keep_unused=True).lower(*arguments())
    for each in (lowered, planned, compiled):
        assert (each.in_tree, each.out_tree) == (want.in_tree, want.out_tree)
        assert each.donate_argnums == want.donate_argnums == (0, 1)
        shapes = jax.tree.map(lambda info: (info.shape, info.dtype), want.args_info)
        assert jax.tree.map(lambda info: (info.shape, info.dtype), each.args_info) == shapes
        results = jax.tree.map(lambda info: (info.shape, info.dtype), want.out_info)
        assert jax.tree.map(lambda info: (info.shape, info.dtype), each.out_info) == results
        assert each.as_text()
        assert "step: 4 arrays in, 4 out" in repr(each)
    assert "not planned, for 'local' of 8 devices with stages=1" in repr(lowered)
    for each in (planned, planned.plan):
        assert "1 stage of 8 devices, 1 microbatch (" in repr(each)
        assert len(repr(each)) < 200
    assert "MiB per device" in repr(planned) and "programs" in repr(compiled)
    # Four products of 16 x 8 by 8 x 8, and the gradient by the input that is not needed is not.
    assert 5 * 2 * 16 * 8 * 8 <= lowered.cost_analysis()["flops"] <= 1.5 * 5 * 2 * 16 * 8 * 8
    assert planned.cost_analysis()["stage0"]["seconds"] > 0
    assert planned.memory_analysis()["stage0"].total == planned.plan.stages[0].peak_bytes
    assert set(compiled.cost_analysis()) == {p.name for p in compiled.executable.programs}


def test_the_plan_that_runs_can_be_asked_for() -> None:
    f = shardc.jit(step, stages=1, microbatches=1)
    for ask in (lambda: f.plan, f.explain):
        with pytest.raises(InputError, match="'step' has no plan before its first call") as caught:
            ask()
        assert caught.value.code == "SHARDC-188"
    assert f.cache_info() == (0, 0, 0, 128)
    for _ in range(2):
        f(*arguments())
    assert f.cache_info() == (2, 1, 1, 128)
    assert f.plan == f.lower(*arguments()).plan().plan
    assert "1 stage, 1 microbatch" in f.explain()
    assert "state['in']" in f.explain("state.in")
    f(arguments()[0], X[:8], arguments()[2])
    assert f.cache_info().programs == 2


def test_the_host_is_named_where_it_takes_longer_than_the_prediction() -> None:
    def explained(**options: Any) -> str:
        text: str = shardc.jit(step, microbatches=2, **options).lower(*arguments()).plan().explain()
        return text

    pipeline = explained(stages=2, schedule="gpipe")
    note = pipeline[pipeline.index("note: not in the prediction") :]
    assert f"the host's time for 12 actions of a step, about {seconds(12 * ACTION_S)} at" in note
    for other in ({"stages": 1}, {"stages": 2, "cluster": "a100-8"}):
        assert "not in the prediction" not in explained(**other)


def test_planning_needs_none_of_the_devices() -> None:
    f = shardc.jit(step, cluster="h100-64", stages=1, microbatches=1, mesh=(16,), time_limit_s=5)
    planned = f.lower(*arguments()).plan()
    assert planned.plan.stages[0].mesh.shape == (16,)
    assert "1 stage of 16 devices" in repr(planned) and "16" in planned.explain()
    for run in (planned.compile, f.lower(*arguments()).compile, lambda: f(*arguments())):
        with pytest.raises(ClusterError, match="there are 8") as caught:
            run()
        assert caught.value.code == "SHARDC-101"


@pytest.mark.parametrize("young", [0, 700, 10 * OBJECTS_PER_COLLECTION])
def test_planning_lets_garbage_be_collected_as_before_afterwards(young: int) -> None:
    before = gc.get_threshold()
    gc.set_threshold(young, *before[1:])
    stack = contextlib.ExitStack()
    try:
        stack.enter_context(collected_seldom())
        assert gc.get_threshold()[0] in (0, max(young, OBJECTS_PER_COLLECTION))
        stack.close()
        assert gc.get_threshold() == (young, *before[1:])
    finally:
        gc.set_threshold(*before)

"""Plans over islands of unlike devices."""

from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

import shardc
from shardc.analysis.stages.stage_refusal import StageRefusal
from shardc.cluster import Bridge, Cluster, Device, Island, Level
from shardc.errors import InfeasibleError
from shardc.plan.decisions import Plan
from shardc.planner import search

FAST = Device("fast", 1 << 34, {"default": 3e12}, 3e11)
THIRD = Device("third", 1 << 34, {"default": 1e12}, 1e11)
NODE = (Level("node", 2, 1e10, 1e-6),)
LAYERS = 8


def islands(fast: Device = FAST, slow: Device = THIRD, bridge: float = 1e10) -> Cluster:
    own = [Island("fast", fast, NODE), Island("slow", slow, NODE)]
    return Cluster.of_islands("mixed", own, [Bridge(("fast", "slow"), bridge, 1e-6)])


def step(state: list[jax.Array], x: jax.Array) -> tuple[list[jax.Array], jax.Array]:
    def loss(state: list[jax.Array]) -> jax.Array:
        h = x
        for w in state:
            h = jnp.tanh(h @ w)
        return jnp.mean(h**2)

    value, gradients = jax.value_and_grad(loss)(state)
    return jax.tree.map(lambda w, g: w - 0.1 * g, state, gradients), value


def planned(cluster: Cluster, **options: Any) -> Plan:
    state = [jax.ShapeDtypeStruct((512, 512), jnp.float32)] * LAYERS
    x = jax.ShapeDtypeStruct((8192, 512), jnp.float32)
    options = {"schedule": "1f1b", "microbatches": 16} | options
    return (
        shardc.jit(step, cluster=cluster, donate_argnums=0, **options).lower(state, x).plan().plan
    )


@pytest.mark.slow
def test_the_faster_island_gets_the_more_layers() -> None:
    plan = planned(islands())
    work: dict[str, int] = {"fast": 0, "slow": 0}
    for stage in plan.stages:
        home, _ = islands().home(stage.mesh.device_ids)
        work[home.name] += stage.num_flops
    assert 2.0 <= work["fast"] / work["slow"] <= 4.0
    own = [Cluster("alone", device, NODE) for device in (FAST, THIRD)]
    assert plan.predicted.step_time_s < 0.9 * min(
        planned(each).predicted.step_time_s for each in own
    )


def test_an_island_behind_a_slow_bridge_is_left_out() -> None:
    plan = planned(islands(bridge=1e5))
    assert {d for stage in plan.stages for d in stage.mesh.device_ids} <= {0, 1}


@pytest.mark.slow
def test_numbers_asked_for_are_searched_on_each_island_too() -> None:
    """Even stages over both islands would wait for the bridge."""
    behind = islands(bridge=1e5)
    for asked in ({"stages": 2}, {"stages": 1}, {}):
        plan = planned(behind, **asked, microbatches=8)
        assert plan.num_microbatches == 8 and not plan.unmet
        assert len(plan.stages) == asked.get("stages", len(plan.stages))
        assert {d for stage in plan.stages for d in stage.mesh.device_ids} <= {0, 1}


@pytest.mark.slow
def test_a_stage_fits_its_own_island() -> None:
    """Only the first island holds the state, however slow the other makes it look."""
    small = msgspec.structs.replace(THIRD, memory_bytes=1 << 20)
    plan = planned(islands(slow=small))
    assert {d for stage in plan.stages for d in stage.mesh.device_ids} == {0, 1}
    with pytest.raises(InfeasibleError):
        planned(islands(msgspec.structs.replace(FAST, memory_bytes=1 << 20), small))


@pytest.mark.slow
def test_a_mesh_asked_for_that_no_island_has_lies_over_several() -> None:
    plan = planned(islands(), mesh=(4,))
    assert [stage.mesh.device_ids for stage in plan.stages] == [(0, 1, 2, 3)]
    plan = planned(islands(), mesh=(2,))
    assert all(len(stage.mesh.device_ids) == 2 for stage in plan.stages)


@pytest.mark.slow
def test_a_plan_says_what_its_own_island_has_room_for() -> None:
    large = msgspec.structs.replace(FAST, memory_bytes=1 << 36)
    plan = planned(islands(fast=large, bridge=1e5))
    assert plan.account is not None and plan.account.limit_bytes == 1 << 36
    small = planned(islands(fast=large, bridge=1e5), memory_limit_bytes=1 << 30)
    assert small.account is not None and small.account.limit_bytes == 1 << 30


@pytest.mark.slow
def test_a_plan_over_islands_gives_the_numbers_of_jit() -> None:
    key = jax.random.key(0)
    state = [jax.random.normal(k, (16, 16)) / 4 for k in jax.random.split(key, LAYERS)]
    x = jax.random.normal(key, (32, 16))
    run = shardc.jit(step, cluster=islands(), stages=2, microbatches=4, schedule="1f1b")
    for got, want in zip(
        jax.tree.leaves(run(state, x)), jax.tree.leaves(jax.jit(step)(state, x)), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_an_island_is_planned_exactly_before_a_program_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On both islands it does not fit, and prices of layers do not show that it fits on one."""
    unknown = StageRefusal(1, "no prices", "none", "SHARDC-160")
    monkeypatch.setattr(search, "promising_shapes", lambda *_: unknown)
    alone = planned(Cluster("alone", FAST, NODE), stages=1, mesh=(2,), microbatches=1)
    peak = alone.predicted.peak_bytes_per_device
    tight = msgspec.structs.replace(FAST, memory_bytes=peak)
    small = msgspec.structs.replace(THIRD, memory_bytes=1 << 20)
    for islands_of in (islands(tight, small), islands(small, tight)):
        plan = planned(islands_of, microbatches=1)
        (stage,) = plan.stages
        home, _ = islands_of.home(stage.mesh.device_ids)
        assert home.device == tight

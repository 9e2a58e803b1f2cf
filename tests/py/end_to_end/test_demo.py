"""The demo's plan: on two nodes with a slow link and little memory, stages and shards both pay."""

import math
from pathlib import Path

import jax
import msgspec
import numpy as np
import optax
import pytest

from examples.gpt_model import Sizes, init, make_train_step
from shardc.cluster import Cluster
from shardc.compiler import prepare
from shardc.importer.from_jax import import_function
from shardc.options import PlanOptions
from shardc.plan.decisions import Plan
from shardc.planner.plan_program import plan_program

CLUSTER = Path(__file__).parents[3] / "examples" / "two_nodes.json"
SIZES = Sizes(vocabulary=512, length=64, width=256, heads=8, hidden=1024, layers=4)


def plan_demo(cluster: Cluster, options: PlanOptions) -> Plan:
    optimizer = optax.adamw(1e-3)

    def state() -> dict[str, object]:
        params = init(jax.random.key(0), SIZES)
        return {"params": params, "optimizer": optimizer.init(params)}

    batch = {k: jax.ShapeDtypeStruct((32, SIZES.length), np.int32) for k in ("tokens", "targets")}
    imported = import_function(
        make_train_step(optimizer), (jax.eval_shape(state), batch), {}, donate_argnums=(0,)
    )
    prepare(imported.module)
    return plan_program(imported.module, cluster, options)


@pytest.mark.slow
def test_a_slow_link_and_little_memory_make_stages_of_shards() -> None:
    plan = plan_demo(Cluster.load(CLUSTER), PlanOptions(time_limit_s=600.0))
    assert plan.num_stages == 2
    assert plan.num_microbatches > 1
    assert all(math.prod(stage.mesh.shape) == 4 for stage in plan.stages)
    assert plan.predicted.peak_bytes_per_device <= Cluster.load(CLUSTER).device.memory_bytes


@pytest.mark.slow
def test_a_fast_link_removes_the_stages() -> None:
    slow = Cluster.load(CLUSTER)
    inside, outside = slow.levels
    fast = msgspec.structs.replace(
        outside,
        bandwidth_bytes_per_s=inside.bandwidth_bytes_per_s,
        latency_s=inside.latency_s,
    )
    cluster = msgspec.structs.replace(slow, levels=(inside, fast))
    plan = plan_demo(cluster, PlanOptions(time_limit_s=600.0))
    assert plan.num_stages == 1
    assert math.prod(plan.stages[0].mesh.shape) == 8

"""Families of schedules give the numbers of `jax.jit`, in the order that was planned."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.errors import ShardcError
from tests.py.programs import Program, build, leaves
from tests.py.table import CLUSTER

# The way of each family, once; p device groups and m microbatches. benchmarks/schedules.py has all.
CELLS = [
    ("zb-h1", "mlp", 4, 4),
    ("zb-h2", "moe", 2, 4),
    ("2bp-1f1b", "conv", 2, 2),
    ("2bp-chimera", "mlp", 2, 2),
    ("zeropp", "mlp", 2, 2),
    ("interleaved-1f1b", "gpt_sgd", 2, 2),
    ("breadth-first", "mlp", 2, 2),
    ("grouped-1f1b", "mlp", 2, 4),
    ("hanayo", "mlp", 2, 2),
    ("zb-v", "mlp", 2, 4),
    ("v-half", "conv", 2, 4),
    ("v-min", "mlp", 2, 8),
    ("1f1b-v", "mlp", 2, 4),
    ("dualpipe-v", "mlp", 2, 4),
    ("chimera", "mlp", 4, 4),
    ("bitpipe", "mlp", 2, 2),
    ("dualpipe", "mlp", 2, 4),
    pytest.param("dualpipe", "gpt_sgd", 2, 4, marks=pytest.mark.slow),
    pytest.param("chimera", "gpt_sgd", 4, 4, marks=pytest.mark.slow),
    pytest.param("bitpipe", "gpt_clip", 2, 2, marks=pytest.mark.slow),
    pytest.param("zb-h2", "gpt_clip", 2, 4, marks=pytest.mark.slow),
    pytest.param("zb-v", "gpt_clip", 2, 4, marks=pytest.mark.slow),
]


def planned(program: Program, **options: Any) -> Any:
    step = shardc.jit(
        program.step, donate_argnums=program.donate_argnums, cluster=CLUSTER, mesh=(1,), **options
    )
    return step.lower(*program.args).plan()


@pytest.mark.parametrize(("schedule", "name", "p", "m"), CELLS)
def test_numbers_equal_jax_jit_in_float64(schedule: str, name: str, p: int, m: int) -> None:
    with jax.enable_x64(True):
        program = build(name, "float64")
        expected = leaves(jax.jit(program.step)(*program.args))
        found = planned(
            program, stages=p, microbatches=m, schedule=schedule, time_limit_s=10, seed=0
        )
        compiled = found.compile()
        got = leaves(compiled(*program.args))
    plan = found.plan
    assert (plan.schedule, plan.num_stages, plan.num_microbatches) == (schedule, p, m)
    assert len(plan.stages) == p * plan.num_chunks * plan.num_replicas and not plan.unmet
    assert compiled.executable.actions == plan.lanes
    ran = list(dict.fromkeys(action for action, _ in compiled.interpreter.last_trace))
    assert any(action[1] in "BX" for action in ran)
    for lane in plan.lanes:
        assert [action for action in ran if action in lane] == [a for a in lane if a in ran]
    for key, value in expected.items():
        limit = 1e-9 * np.max(np.abs(value), initial=1e-30)
        np.testing.assert_allclose(got[key], value, rtol=0, atol=limit, err_msg=key)


@pytest.mark.parametrize(
    ("one", "other"), [("zb-h1", "2bp-1f1b"), ("interleaved-1f1b", "breadth-first")]
)
def test_families_of_the_same_cut_share_their_programs(one: str, other: str) -> None:
    """Byte for byte, so that JAX's cache compiles each once for all of them."""
    programs = []
    for schedule in (one, other):
        found = planned(
            build("mlp"), stages=2, microbatches=4, schedule=schedule, time_limit_s=10, seed=0
        )
        made = found.compile().executable
        programs.append({(p.stage, p.kind, p.round): p.module for p in made.programs})
    assert programs[0] == programs[1]


@pytest.mark.parametrize("schedule", ["auto", "zb-v", "interleaved-1f1b", "bitpipe"])
def test_a_function_without_gradients_runs_its_forwards_alone(schedule: str) -> None:
    def infer(weights: list[jax.Array], x: jax.Array) -> tuple[jax.Array, jax.Array]:
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return x, jnp.argmax(x, -1)

    draw = np.random.default_rng(0)
    weights = [draw.normal(size=(16, 16)).astype(np.float32) / 4 for _ in range(4)]
    x = draw.normal(size=(16, 16)).astype(np.float32)
    step = shardc.jit(
        infer, cluster=CLUSTER, mesh=(1,), stages=2, microbatches=4, schedule=schedule
    )
    for got, want in zip(step(weights, x), jax.jit(infer)(weights, x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    plan = step.plan
    assert (plan.num_stages, plan.num_microbatches, plan.unmet) == (2, 4, ())
    assert {action[1] for lane in plan.lanes for action in lane} <= {"F", "P", "U"}
    forwards = sum(action[1] == "F" for lane in plan.lanes for action in lane)
    assert forwards == 4 * len(plan.own_stages)


def test_stages_of_one_device_group_lie_on_its_devices_and_share_its_memory() -> None:
    plan = planned(build("mlp"), stages=2, microbatches=4, schedule="zb-v", time_limit_s=10).plan
    assert [stage.mesh.device_ids for stage in plan.stages] == [(0,), (1,), (1,), (0,)]
    held = [plan.stages[s].peak_bytes + plan.stages[3 - s].peak_bytes for s in (0, 1)]
    assert plan.predicted.peak_bytes_per_device == max(held)
    limit = int(0.98 * max(held))
    with pytest.raises(ShardcError) as caught:
        planned(
            build("mlp"),
            stages=2,
            microbatches=4,
            schedule="zb-v",
            time_limit_s=10,
            memory_limit_bytes=min(limit, max(held) // 2),
        )
    assert caught.value.code == "SHARDC-220"


@pytest.mark.parametrize(
    ("schedule", "stages", "microbatches", "code", "said"),
    [
        ("interleaved-1f1b", 2, 3, "SHARDC-242", "takes a multiple of 2 microbatches"),
        ("zb-v", 4, 4, "SHARDC-242", "runs 2 stages on each of 4 device groups, but .* 5 layers"),
        ("chimera", 2, 3, "SHARDC-242", "takes a multiple of 2 microbatches"),
        ("seq1f1b", 2, 4, "SHARDC-165", "needs the sum over all tokens"),
    ],
)
def test_what_a_schedule_cannot_take_is_refused(
    schedule: str, stages: int, microbatches: int, code: str, said: str
) -> None:
    program = build("mlp", batch=12)
    with pytest.raises(ShardcError, match=said) as caught:
        planned(program, stages=stages, microbatches=microbatches, schedule=schedule)
    assert caught.value.code == code and caught.value.help

"""Rank 0's plan is everybody's, and a rank that would run something else is named."""

import dataclasses
import types

import jax
import msgspec
import numpy as np
import pytest

import shardc
from shardc.api.processes.agreed import agreed_plan, check_built_for_several, check_programs
from shardc.api.processes.feeding import batch_sharding, is_fed
from shardc.errors import InputError, PlanError, RequestWarning, StageError
from tests.py.runtime.processes.fake_job import on_all
from tests.py.runtime.toy_step import toy_executable


def lowered(rows=8):
    def step(w, x):
        return w - 0.1 * jax.grad(lambda w: jax.numpy.mean((x @ w) ** 2))(w)

    f = shardc.jit(step, stages=1, microbatches=1, batch_argnums=1, devices=jax.devices()[:1])
    return f.lower(np.ones((4, 4), np.float32), np.ones((rows, 4), np.float32))


def plan_on(job, given, find, rows=8, **changes):
    own = lowered(rows)
    own.options = msgspec.structs.replace(own.options, **changes)
    own.given_plan = given
    return agreed_plan(find, own, "digest", job)


def never():
    raise AssertionError("only rank 0 plans")


def test_one_rank_plans_and_all_have_the_plan():
    plan = lowered().plan().plan
    found = on_all(lambda job: plan_on(job, None, (lambda: plan) if job.rank == 0 else never))
    assert found == [plan] * 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"seed": 3}, "its options"), ({"rows": 16}, "its arguments: '")],
)
def test_all_ranks_are_told_which_rank_differs_and_in_what(changes, said):
    plan = lowered().plan().plan
    found = on_all(
        lambda job: plan_on(job, None, lambda: plan, **(changes if job.rank == 2 else {}))
    )
    for error in found:
        assert isinstance(error, PlanError) and error.code == "SHARDC-280"
        assert f"rank 2 differs from rank 0 in {said}" in str(error)


def test_what_the_planner_refuses_on_rank_0_is_refused_on_all():
    def refuse():
        raise StageError("no layers", code="SHARDC-160")

    found = on_all(lambda job: plan_on(job, None, refuse))
    assert [error.code for error in found] == ["SHARDC-160"] * 3
    assert all("no layers" in str(error) for error in found)


def test_a_given_plan_must_be_the_same_on_all():
    plan = lowered().plan().plan
    other = msgspec.structs.replace(plan, fingerprint="another")
    found = on_all(lambda job: plan_on(job, other if job.rank == 1 else plan, lambda: plan))
    assert all("rank 1 differs from rank 0 in its given plan" in str(error) for error in found)


def test_other_stage_programs_are_named():
    good = toy_executable()
    first = msgspec.structs.replace(good.programs[0], module=b"another")
    bad = msgspec.structs.replace(good, programs=(first, *good.programs[1:]))
    assert on_all(lambda job: check_programs(good, job)) == [None] * 3
    found = on_all(lambda job: check_programs(bad if job.rank == 1 else good, job))
    assert all("its program stage0_forward" in str(error) for error in found)


def test_callbacks_run_in_one_process_as_yet():
    own = lowered()
    check_built_for_several(own.imported, own.devices)
    calls = dataclasses.replace(own.imported, host_calls=(print,))
    with pytest.raises(InputError, match="callbacks to the host") as caught:
        check_built_for_several(calls, own.devices)
    assert caught.value.code == "SHARDC-283"


def test_gpus_of_several_processes_need_a_flag_of_xla(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    gpu = types.SimpleNamespace(platform="gpu", process_index=0)
    with pytest.raises(InputError, match="--xla_gpu_shard_autotuning=false") as caught:
        check_built_for_several(lowered().imported, [gpu])
    assert caught.value.code == "SHARDC-283"


def test_other_devices_than_cpus_are_said_to_be_untested(monkeypatch):
    own = lowered()
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_shard_autotuning=false")
    gpu = types.SimpleNamespace(platform="gpu", process_index=0)
    with pytest.warns(RequestWarning, match="several processes on gpu devices are untested"):
        check_built_for_several(own.imported, [gpu])


def test_rows_that_are_fed_wish_for_no_sharding():
    rows = jax.make_array_from_process_local_data(batch_sharding(), np.ones((16, 4), np.float32))
    assert is_fed(rows) and not is_fed(np.ones(3))
    f = shardc.jit(
        lambda w, x: w - 0.1 * jax.grad(lambda w: jax.numpy.mean((x @ w) ** 2))(w),
        stages=1,
        microbatches=2,
        batch_argnums=1,
    )
    w = np.eye(4, dtype=np.float32)
    whole = np.ones((16, 4), np.float32)
    np.testing.assert_allclose(f(w, rows), f(w, whole), rtol=1e-6)
    assert f.cache_info().programs == 1

"""A pipeline by hand: it is planned as it says, it runs, and what does not fit is refused."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.errors import InfeasibleError, ShardcError
from shardc.plan.layout import TensorSharding
from shardc.plan.notes import NoteCode
from shardc.plan.stages_spec import StageSpec, StagesSpec
from tests.py.end_to_end.test_scanned_layers import initial, train_step
from tests.py.programs import build

MEGATRON = {"*.up": "-,-,y", "*.down": "-,y", "batch.*": "x", "*": "-"}


def planned(spec: StagesSpec, layers: int = 4) -> Any:
    state, batch = initial(layers)
    step = shardc.jit(train_step, donate_argnums=0, cluster="cpu8", plan=spec)
    return step.lower(state, batch).plan()


@pytest.mark.slow
def test_numbers_of_an_uneven_pipeline_with_its_own_meshes_equal_one_device() -> None:
    spec = StagesSpec(
        1,
        (StageSpec(1, (2, 2)), StageSpec(3, (2, 1), shardings={"*.up": "-,x"})),
        microbatches=2,
        schedule="gpipe",
    )
    state, batch = initial(4)
    step = shardc.jit(train_step, donate_argnums=0, plan=spec)
    expected = jax.tree.map(jnp.copy, state)
    for _ in range(3):
        state, loss = step(state, batch)
        expected, wanted = jax.jit(train_step)(expected, batch)
        np.testing.assert_allclose(loss, wanted, rtol=1e-5)
    plan = step.plan
    assert (plan.num_stages, plan.num_microbatches, plan.schedule) == (2, 2, "gpipe")
    assert [stage.mesh.shape for stage in plan.stages] == [(2, 2), (2, 1)]
    assert "2 of 8 devices stay idle" in map(str, plan.notes)
    assert plan.loop_cuts == (1,)  # an iteration, and three with what is behind the loop
    for own, other in zip(jax.tree.leaves(state), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_numbers_and_memory_of_stages_that_make_values_again() -> None:
    step, args, donated, *_ = build("mlp")
    kept, again = (
        StagesSpec(
            1,
            tuple(StageSpec(2, (4,), recompute=recompute) for _ in range(2)),
            microbatches=4,
            schedule="gpipe",
        )
        for recompute in ("user", "full")
    )
    given = [jax.tree.map(jnp.copy, args) for _ in range(3)]
    plans = [
        shardc.jit(step, donate_argnums=donated, plan=spec).lower(*args).plan().plan
        for spec in (kept, again)
    ]
    assert [stage.recompute for stage in plans[1].stages] == [4, 4]  # gpipe holds all
    for before, after in zip(plans[0].stages, plans[1].stages, strict=True):
        assert after.memory.stash < before.memory.stash
        assert after.num_flops > before.num_flops
    wanted = jax.jit(step)(*given[0])
    for plan in (again, plans[1]):  # as it is asked for, and as it was saved
        found = shardc.jit(step, donate_argnums=donated, plan=plan)(*given.pop())
        for own, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schedule", "firsts"),
    [
        ("interleaved-1f1b", [0, 4, 0, 4]),
        ("zb-v", [0, 4, 4, 0]),
        ("bitpipe", [0, 4, 4, 0, 4, 0, 0, 4]),  # with the second copies
    ],
)
def test_chunks_share_the_devices_that_their_schedule_gives_them(
    schedule: str, firsts: list[int]
) -> None:
    step, args, donated, *_ = build("mlp")
    spec = StagesSpec(1, (StageSpec(1, (4,)),) * 4, 4, schedule, chunks=2)
    own = shardc.jit(step, donate_argnums=donated, plan=spec)
    plan = own.lower(*args).plan().plan
    assert (plan.num_stages, plan.num_chunks, len(plan.own_stages)) == (2, 2, 4)
    assert [stage.mesh.device_ids[0] for stage in plan.stages] == firsts
    wanted = jax.jit(step)(*jax.tree.map(jnp.copy, args))
    for one, other in zip(jax.tree.leaves(own(*args)), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_arguments_lie_as_asked_in_every_function_of_every_stage() -> None:
    spec = StagesSpec(1, (StageSpec(2), StageSpec(2)), 2, mesh=(2, 2), shardings=MEGATRON)
    plan = planned(spec).plan
    up, down = TensorSharding(((), (), ("y",))), TensorSharding(((), ("y",), ()))
    for stage in range(2):
        forward = plan.shardings[f"stage{stage}_forward"].arguments
        assert forward.count(up) == forward.count(down) == 1
        assert TensorSharding(((), ("x",), ())) in forward  # the batch, behind its microbatches
        update = plan.shardings[f"stage{stage}_update_0"]
        assert up in update.arguments  # parameters and moments
        assert up in update.results


@pytest.mark.slow
def test_results_of_ops_lie_as_asked() -> None:
    spec = StagesSpec(1, (StageSpec(mesh=(2, 4), values={"tanh": "x,y"}),))
    ops = [op.results for each in planned(spec).plan.shardings.values() for op in each.ops]
    assert (TensorSharding((("x",), ("y",))),) in ops
    spec = StagesSpec(1, (StageSpec(mesh=(2, 4), values={"tanh": "y,-"}),))
    ops = [op.results for each in planned(spec).plan.shardings.values() for op in each.ops]
    assert (TensorSharding((("y",), ())),) in ops


@pytest.mark.slow
def test_meshes_and_layers_that_are_left_out_are_planned() -> None:
    plan = planned(StagesSpec(1, (StageSpec(), StageSpec()), microbatches=4)).plan
    assert [len(stage.mesh.device_ids) for stage in plan.stages] == [4, 4]
    assert NoteCode.IDLE not in {note.code for note in plan.notes}
    assert plan.num_microbatches == 4


def test_layers_of_an_unrolled_program() -> None:
    step, args, donated, *_ = build("mlp")
    spec = StagesSpec(1, (StageSpec(1, (4,)), StageSpec(3, (4,))), microbatches=2)
    plan = shardc.jit(step, donate_argnums=donated, plan=spec).lower(*args).plan().plan
    assert [stage.layers for stage in plan.stages] == [(0,), (1, 2, 3)]
    first, second = (stage.num_flops for stage in plan.stages)
    assert first < second


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (StagesSpec(1, (StageSpec(2, (8,)), StageSpec(2, (8,)))), "SHARDC-207"),
        (StagesSpec(1, (StageSpec(2, (4,)), StageSpec(2))), "SHARDC-207"),
        (StagesSpec(1, (StageSpec(2, (2,), (0, 1)), StageSpec(2, (2,), (1, 2)))), "SHARDC-207"),
        (StagesSpec(1, (StageSpec(2, (2,), (8, 9)), StageSpec(2, (2,), (1, 2)))), "SHARDC-207"),
        (StagesSpec(1, (StageSpec(2, (2,), (0, 1)), StageSpec(2, (2,)))), "SHARDC-207"),
        (StagesSpec(1, (StageSpec(), StageSpec(), StageSpec()), chunks=2), "SHARDC-206"),
        (StagesSpec(1, (StageSpec(), StageSpec()), chunks=2, microbatches=2), "SHARDC-242"),
        (StagesSpec(1, (StageSpec(2, (4,)), StageSpec(7, (4,)))), "SHARDC-208"),
        (StagesSpec(1, (StageSpec(mesh=(8,)),), shardings={"q": "x"}), "SHARDC-209"),
        (StagesSpec(1, (StageSpec(mesh=(8,)),), values={"sort": "x"}), "SHARDC-209"),
        (StagesSpec(1, (StageSpec(mesh=(8,)),), values={"tanh": "z"}), "SHARDC-110"),
        (StagesSpec(1, (StageSpec(mesh=(8,)),), microbatches=3), "SHARDC-142"),
        (StagesSpec(1, (StageSpec(mesh=(8,)),), schedule="best"), "SHARDC-240"),
    ],
)
def test_what_does_not_fit_is_refused(spec: StagesSpec, code: str) -> None:
    with pytest.raises(ShardcError) as refused:
        planned(spec)
    assert refused.value.code == code
    assert refused.value.help


@pytest.mark.parametrize(("recompute", "advised"), [("user", True), ("full", False)])
def test_a_plan_that_does_not_fit_is_advised_to_recompute(recompute: Any, advised: bool) -> None:
    """Unless it does."""
    step, args, donated, *_ = build("mlp")
    stages = tuple(StageSpec(2, (4,), recompute=recompute) for _ in range(2))
    spec = StagesSpec(1, stages, microbatches=4, schedule="gpipe")
    with pytest.raises(InfeasibleError) as refused:
        shardc.jit(
            step, donate_argnums=donated, cluster="cpu8", plan=spec, memory_limit_bytes=4000
        ).lower(*args).plan()
    assert ('"recompute": "full"' in str(refused.value.help)) == advised
    assert "raise the memory limit" in str(refused.value.help)

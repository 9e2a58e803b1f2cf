"""What a program does not allow is not done and said so; what makes no sense or does not fit is
refused in the user's words, with a code and a way out."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.errors import ShardcError
from shardc.plan.decisions import Plan
from tests.py.programs import Program, build
from tests.py.table import CLUSTER

ONE_STAGE = {"stages": 1, "mesh": (8,)}


def plan(program: Program, **options: Any) -> Plan:
    sharded = shardc.jit(
        program.step, donate_argnums=program.donate_argnums, cluster=CLUSTER, **options
    )
    made: Plan = sharded.lower(*program.args).plan().plan
    return made


def refusal(program: Program, **options: Any) -> ShardcError:
    with pytest.raises(ShardcError) as caught:
        plan(program, **options)
    assert caught.value.exit_code in (2, 3)
    assert caught.value.help
    return caught.value


def decay(params: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A step that has no batch: everything it takes is state."""
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean(jnp.tanh(w @ w.T)))(params)
    return params - 0.1 * gradient, loss


DECAY = Program(decay, (np.ones((16, 16), np.float32),))


def test_batch_norm_runs_with_one_microbatch_and_names_its_op_and_line() -> None:
    with pytest.warns(shardc.RequestWarning, match="1 microbatch instead of 2") as caught:
        made = plan(build("mlp_batch_norm"), microbatches=2, **ONE_STAGE)
    assert made.num_microbatches == 1
    assert list(map(str, made.unmet)) == [str(warning.message) for warning in caught]
    assert re.search(r"'stablehlo\.\w+' needs a sum .*\(programs\.py:\d+", str(made.unmet[0]))
    assert made.unmet[0] in made.notes


def test_a_schedule_that_wants_refused_microbatches_says_why_there_are_none() -> None:
    asked = {"stages": 2, "microbatches": 4, "schedule": "interleaved-1f1b"}
    error = refusal(build("mlp_batch_norm"), **asked)
    assert error.code == "SHARDC-242"
    assert "not 1; 1 microbatch instead of 4: microbatches would change" in error.message
    assert error.help == "take another schedule, such as 1f1b"


@pytest.mark.parametrize(("rows", "possible"), [(30, 3), (17, 1), (6, 3), (10, 2)])
@pytest.mark.parametrize("stages", [1, 2])
def test_batch_that_does_not_divide_is_cut_as_far_as_possible(
    rows: int, possible: int, stages: int
) -> None:
    instead = f"{possible} microbatch(es)? instead of 4: the batch dim of argument 'batch.*', size"
    with pytest.warns(shardc.RequestWarning, match=rf"{instead} {rows}.*\(programs\.py:\d+"):
        made = plan(build("mlp", batch=rows), microbatches=4, stages=stages, mesh=(2,))
    assert (made.num_stages, made.num_microbatches) == (stages, possible)
    assert made.unmet[0] in made.notes


def test_results_that_reshape_the_batch_are_cut_as_far_as_possible() -> None:
    def halves(w: Any, x: Any) -> Any:
        return jnp.tanh(x @ w).reshape(2, -1)

    program = Program(halves, (np.ones((8, 8), np.float32), np.ones((16, 8), np.float32)), ())
    with pytest.warns(shardc.RequestWarning, match="2 microbatches instead of 4: .*reshape"):
        assert plan(program, microbatches=4, **ONE_STAGE).num_microbatches == 2


def test_a_batch_by_name_that_does_not_divide_is_cut_as_far_as_possible() -> None:
    with pytest.warns(shardc.RequestWarning, match="3 microbatches instead of 4"):
        made = plan(build("mlp", batch=30), microbatches=4, batch_argnums=1, **ONE_STAGE)
    assert made.num_microbatches == 3


def three_products(w: Any, x: Any) -> Any:
    for each in w:
        x = jnp.tanh(x @ each)
    return x


def replay_buffer(state: Any, x: Any, i: Any) -> Any:
    """Learns from random rows of a buffer, of which the batch is one."""
    rows = state["rows"].at[i].set(x)
    some = rows[jax.random.randint(jax.random.key(0), (16,), 0, 64)]
    loss = jax.value_and_grad(lambda w: (three_products(w, some) ** 2).mean())
    value, gradient = loss(state["w"])
    return {"w": jax.tree.map(lambda p, g: p - 0.1 * g, state["w"], gradient), "rows": rows}, value


def shuffled(order: Any, w: Any, x: Any) -> Any:
    """Compares what the model makes of the rows, in another order, with the rows."""

    def loss(w: Any) -> Any:
        return ((order @ three_products(w, x) - x) ** 2).mean()

    value, gradient = jax.value_and_grad(loss)(w)
    return jax.tree.map(lambda p, g: p - 0.1 * g, w, gradient), value


def same_order(w: Any, x: Any) -> Any:
    return shuffled(jax.nn.one_hot(jnp.arange(16), 16), w, x)


def ordered_first(w: Any, x: Any) -> Any:
    def loss(w: Any) -> Any:
        return (three_products(w, jax.nn.one_hot(jnp.arange(16), 16) @ x) ** 2).mean()

    value, gradient = jax.value_and_grad(loss)(w)
    return jax.tree.map(lambda p, g: p - 0.1 * g, w, gradient), value


WEIGHTS = [np.random.default_rng(n).normal(size=(16, 16)).astype(np.float32) / 4 for n in range(3)]
ROWS = np.random.default_rng(3).normal(size=(16, 16)).astype(np.float32)


@pytest.mark.parametrize(
    ("step", "args"),
    [
        (replay_buffer, ({"w": WEIGHTS, "rows": np.zeros((64, 16), np.float32)}, ROWS[0], 3)),
        (ordered_first, (WEIGHTS, ROWS)),
    ],
)
def test_stages_come_first_where_the_microbatches_would_leave_no_layers(
    step: Any, args: Any
) -> None:
    """Earlier runs of the microbatches, or what waits for all of them, hold the products."""
    program = Program(step, args, ())
    with pytest.warns(shardc.RequestWarning, match="1 microbatch instead of 2: with 2 the forward"):
        made = plan(program, stages=2, microbatches=2, mesh=(2,))
    assert (made.num_stages, made.num_microbatches) == (2, 1)
    assert plan(program, stages=2, microbatches=1, mesh=(2,)).num_stages == 2


def test_a_loss_that_waits_for_all_rows_keeps_its_microbatches_in_stages() -> None:
    """JAX's locations tell the forward pass: the loss, after the microbatches, needs no product."""
    run = shardc.jit(same_order, stages=2, microbatches=2, mesh=(2,))
    got, expected = run(WEIGHTS, ROWS), jax.jit(same_order)(WEIGHTS, ROWS)
    assert run.plan is not None
    assert (run.plan.num_stages, run.plan.num_microbatches) == (2, 2)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def unlike_batches(w: Any, x: jax.Array, other: jax.Array) -> tuple[Any, jax.Array]:
    """8 examples and 12, of which no microbatch of each makes one of all 20."""

    def loss(w: Any) -> jax.Array:
        z = jnp.tanh(jnp.concatenate([x, other]) @ w[0]) @ w[1]
        return jnp.mean(z[:8] ** 2) + jnp.mean(jnp.abs(z[8:]))

    value, gradient = jax.value_and_grad(loss)(w)
    return jax.tree.map(lambda p, g: p - 0.1 * g, w, gradient), value


def test_microbatches_that_would_share_no_work_are_not_made_and_stages_are() -> None:
    weights = [np.ones((16, 16), np.float32)] * 2
    batches = np.ones((8, 16), np.float32), np.ones((12, 16), np.float32)
    with pytest.warns(
        shardc.RequestWarning, match=r"'stablehlo\.concatenate' needs the whole batch"
    ):
        made = plan(
            Program(unlike_batches, (weights, *batches)), stages=2, microbatches=2, mesh=(2,)
        )
    assert (made.num_stages, made.num_microbatches) == (2, 1)


def test_a_step_without_a_batch_runs_with_one_microbatch() -> None:
    with pytest.warns(shardc.RequestWarning, match="1 microbatch instead of 2: no argument"):
        assert plan(DECAY, microbatches=2, **ONE_STAGE).num_microbatches == 1
    made = plan(DECAY, microbatches="auto", mesh=(8,))
    assert made.num_microbatches == 1
    assert not made.unmet


def test_named_batch_that_is_none_is_refused() -> None:
    error = refusal(build("mlp"), microbatches=2, batch_argnums=(0, 1), **ONE_STAGE)
    assert error.code == "SHARDC-141"


@pytest.mark.parametrize("microbatches", [2, "auto"])
def test_more_stages_than_layers(microbatches: Any) -> None:
    with pytest.warns(shardc.RequestWarning, match="stages instead of 8.* the forward pass has"):
        made = plan(build("mlp"), stages=8, microbatches=microbatches, mesh=(1,))
    assert 1 < made.num_stages < 8


def masked_blocks(scanned: bool) -> Program:
    """Gradient accumulation over four blocks, with a mean over what a mask leaves of each."""

    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        def layer(h: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
            return jnp.tanh(h @ w), None

        h = jax.lax.scan(layer, x, w)[0] if scanned else layer(layer(x, w[0])[0], w[1])[0]
        return jnp.sum(h**2) / jnp.sum(h > 0)

    def step(w: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        def one(total: Any, block: jax.Array) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, total, jax.value_and_grad(loss)(w, block)), None

        zeros = jnp.zeros(()), jnp.zeros_like(w)
        (value, gradient), _ = jax.lax.scan(one, zeros, x.reshape(4, -1, 16))
        return w - gradient / 4, value / 4

    return Program(step, (np.ones((2, 16, 16), np.float32), np.ones((16, 16), np.float32)))


def until_small(w: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Iterations whose number depends on data."""
    last = jax.lax.while_loop(lambda x: jnp.max(x) > 0.1, lambda x: 0.1 * jnp.tanh(x @ w), x)
    return w, last.mean()


@pytest.mark.parametrize(
    ("program", "microbatches", "said"),
    [
        (
            masked_blocks(False),
            2,
            r"loop at .*\(step\).* do not depend on each .*=4 allows 2 stages$",
        ),
        (masked_blocks(True), 2, r"loop at .*\(step\).* iterations do not depend on each other$"),
        (masked_blocks(True), 4, r"loop at .*\(loss\) .* it stands inside another loop$"),
        (
            Program(until_small, (np.eye(16), np.eye(16))),
            1,
            "number of iterations is not constant$",
        ),
    ],
)
def test_loops_that_are_no_layers_are_named(program: Program, microbatches: int, said: str) -> None:
    """And a number of microbatches that takes the loop away, if there is one."""
    with pytest.warns(shardc.RequestWarning, match=f"has 1 layer .*{said}"):
        made = plan(program, stages=2, microbatches=microbatches, mesh=(2,))
    assert (made.num_stages, made.num_microbatches) == (1, microbatches)


def test_neither_stages_nor_microbatches() -> None:
    with pytest.warns(shardc.RequestWarning) as caught:
        made = plan(DECAY, stages=2, microbatches=2)
    assert (made.num_stages, made.num_microbatches) == (1, 1)
    assert len(caught) == len(made.unmet) == 2
    assert caught[0].filename == __file__


def test_more_stages_than_devices() -> None:
    error = refusal(build("mlp"), stages=9, microbatches=2)
    assert error.code == "SHARDC-162"
    assert "8 devices" in error.message


def test_stages_whose_meshes_need_more_devices() -> None:
    for microbatches in (2, "auto"):
        error = refusal(build("mlp"), stages=2, microbatches=microbatches, mesh=(8,))
        assert error.code == "SHARDC-101"


def test_a_stage_that_does_not_fit_says_on_which_devices_how_much_is_missing() -> None:
    options = {"stages": 2, "microbatches": 2, "mesh": (4,), "memory_limit_bytes": 9_000}
    error = refusal(build("mlp"), **options)
    assert error.code == "SHARDC-220"
    assert "stage 1, on devices 4-7: " in error.message  # misses most
    assert "too many" in error.message


def test_mesh_that_is_larger_than_the_cluster() -> None:
    error = refusal(build("mlp"), stages=1, microbatches=1, mesh=(4, 4))
    assert error.code == "SHARDC-101"
    assert "4x4" in error.message


def test_mesh_that_divides_no_dim_names_a_heavy_op() -> None:
    """Every dim of the MLP is a power of two: an axis of seven devices can split none of them."""
    error = refusal(build("mlp"), stages=1, microbatches=1, mesh=(7,))
    assert error.code == "SHARDC-102"
    assert "7" in error.message
    assert "stablehlo.dot_general" in error.message
    assert "programs.py:" in str(error.where)


def test_auto_plans_one_microbatch_instead() -> None:
    made = plan(build("mlp_batch_norm"), microbatches="auto")
    assert made.num_microbatches == 1
    assert any("microbatch" in str(note) for note in made.notes)


def test_auto_cuts_an_odd_batch_into_parts_of_its_own() -> None:
    assert plan(build("mlp", batch=15), microbatches="auto").num_microbatches in (1, 3, 5, 15)


def test_unknown_custom_call_is_replicated_and_listed() -> None:
    """A pure_callback-like op has no sharding rule; nothing runs here."""

    def step(w: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        def loss_fn(w: jax.Array) -> jax.Array:
            return jnp.mean((x @ w) ** 2)

        loss, gradient = jax.value_and_grad(loss_fn)(w)
        strange = jax.ffi.ffi_call("strange_target", jax.ShapeDtypeStruct(w.shape, w.dtype))
        return w - 0.1 * strange(gradient), loss

    args = (np.ones((64, 64), np.float32), np.ones((32, 64), np.float32))
    made = plan(Program(step, args), microbatches=1, **ONE_STAGE)
    assert any("strange_target" in str(note) for note in made.notes)


def test_microbatches_until_it_fits() -> None:
    """Nearly all memory are activations, also if they are made again; the state fits many times."""

    def step(w: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        def loss_fn(w: jax.Array) -> jax.Array:
            hidden = x
            for _ in range(6):
                hidden = jnp.tanh(hidden @ w)
            return jnp.mean(hidden**2)

        loss, gradient = jax.value_and_grad(loss_fn)(w)
        return w - 0.1 * gradient, loss

    program = Program(step, (np.ones((64, 64), np.float32), np.ones((4096, 64), np.float32)))
    whole = plan(program, microbatches=1, **ONE_STAGE)
    limit = {"memory_limit_bytes": whole.predicted.peak_bytes_per_device // 8}
    error = refusal(program, microbatches=1, **ONE_STAGE, **limit)
    assert error.code == "SHARDC-220"
    assert "every choice needs at least" in error.message
    fitting = plan(program, microbatches="auto", **ONE_STAGE, **limit)
    assert fitting.num_microbatches > 1
    assert fitting.predicted.peak_bytes_per_device <= limit["memory_limit_bytes"]


def test_what_does_not_fit_tells_why_there_are_no_more_microbatches() -> None:
    program = build("mlp_batch_norm")
    error = refusal(program, stages="auto", mesh=(8,), memory_limit_bytes=9_000)
    assert "1 microbatch: " in str(error.help)

"""What cannot be cut or does not fit is refused in the user's words, with a code and a way out."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.errors import ShardcError
from shardc.plan import Plan
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


def gram(params: Any, x: jax.Array) -> tuple[Any, jax.Array]:
    """A step without a batch: x and its transpose are mixed."""
    loss, gradient = jax.value_and_grad(lambda w: jnp.sum(jnp.tanh(x @ x.T @ w)))(params)
    return params - 0.1 * gradient, loss


GRAM = Program(gram, (np.ones((16, 4), np.float32), np.ones((16, 16), np.float32)))


def test_batch_norm_names_its_op_and_line() -> None:
    error = refusal(build("mlp_batch_norm"), microbatches=2, **ONE_STAGE)
    assert error.code == "SHARDC-140"
    assert "stablehlo." in error.message
    assert "programs.py:" in str(error.where)


def test_batch_that_does_not_divide_names_the_argument_and_sizes() -> None:
    error = refusal(build("mlp", batch=30), microbatches=4, **ONE_STAGE)
    assert error.code == "SHARDC-142"
    assert "batch" in error.message
    assert "30" in error.message
    assert "4" in error.message


def test_no_batch_argument() -> None:
    error = refusal(GRAM, microbatches=2, **ONE_STAGE)
    assert error.code in ("SHARDC-140", "SHARDC-141")


def test_more_stages_than_layers() -> None:
    error = refusal(build("mlp"), stages=8, microbatches=2, mesh=(1,))
    assert error.code == "SHARDC-160"
    assert "8" in error.message


def test_mesh_that_is_larger_than_the_cluster() -> None:
    error = refusal(build("mlp"), stages=1, microbatches=1, mesh=(3, 5))
    assert error.code == "SHARDC-101"
    assert "3x5" in error.message


def test_mesh_that_divides_no_dim_replicates_and_says_so_or_refuses() -> None:
    """Every dim of the MLP is a power of two: an axis of seven devices can split none of them."""
    try:
        made = plan(build("mlp"), stages=1, microbatches=1, mesh=(7,))
    except ShardcError as error:
        assert error.code.startswith("SHARDC-")
        assert error.help
    else:
        assert any("7" in note for note in made.notes)


@pytest.mark.parametrize(
    "program",
    [functools.partial(build, "mlp_batch_norm"), functools.partial(build, "mlp", batch=15)],
    ids=["batch norm", "odd batch"],
)
def test_auto_plans_one_microbatch_instead(program: Any) -> None:
    made = plan(program(), microbatches="auto")
    assert made.num_microbatches == 1
    assert any("microbatch" in note for note in made.notes)


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
    assert any("strange_target" in note for note in made.notes)

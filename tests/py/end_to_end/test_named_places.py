"""What does not divide is named with the user's own line, wherever in his program it stands."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import shardc
from shardc.errors import ShardcError
from tests.py.table import CLUSTER

MESH = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
IN_FOUR = NamedSharding(MESH, PartitionSpec(None, "model"))
FILE = __file__.rpartition("/")[2]


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def place(function: Callable[..., Any], words: str) -> str:
    """The place of the only line of `function` that has `words`."""
    lines, first = inspect.getsourcelines(function)
    (line,) = (number for number, text in enumerate(lines, first) if words in text)
    return f"{FILE}:{line}"


def in_the_step(w: Any, x: Any) -> Any:
    return lax.with_sharding_constraint(x @ w, IN_FOUR) * 2


def in_a_scan(w: Any, x: Any) -> Any:
    def layer(x: Any, _: None) -> tuple[Any, None]:
        return lax.with_sharding_constraint(jnp.tanh(x @ w), IN_FOUR), None

    return lax.scan(layer, x, length=3)[0]


def in_a_branch(w: Any, x: Any) -> Any:
    def scaled(x: Any) -> Any:
        return lax.with_sharding_constraint(x * 2, IN_FOUR)

    return lax.cond(x.sum() > 0, scaled, jnp.tanh, x @ w)


def in_a_loss(w: Any, x: Any) -> Any:
    def loss(w: Any) -> Any:
        hidden = lax.with_sharding_constraint(jnp.tanh(x @ w), IN_FOUR)
        return jnp.sum(hidden**2)

    return jax.value_and_grad(loss)(w)


def in_a_checkpoint(w: Any, x: Any) -> Any:
    @jax.checkpoint
    def layer(w: Any) -> Any:
        return jnp.sin(lax.with_sharding_constraint(x @ w, IN_FOUR))

    return jax.grad(lambda w: jnp.sum(layer(w)))(w)


@pytest.mark.parametrize("step", [in_the_step, in_a_scan, in_a_branch, in_a_loss, in_a_checkpoint])
def test_a_sharding_that_does_not_divide_is_named_by_its_line(step: Callable[..., Any]) -> None:
    with pytest.raises(ShardcError, match="6 does not divide into 4 parts") as caught:
        shardc.jit(step).lower(ones(6, 6), ones(8, 6)).plan()
    assert caught.value.code == "SHARDC-203"
    assert place(step, "IN_FOUR") in str(caught.value.where)


def test_an_argument_whose_sharding_does_not_divide_is_named_by_a_line_of_the_step() -> None:
    step = shardc.jit(in_a_loss, shardings={"w": PartitionSpec(None, "model")}, mesh=MESH.shape)
    with pytest.raises(ShardcError, match=r"argument 'w' of shape \(6, 6\)") as caught:
        step.lower(ones(6, 6), ones(8, 6)).plan()
    assert caught.value.code == "SHARDC-203"
    assert FILE in str(caught.value.where)


def a_product(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w).sum()  # 30 rows


def a_loop_over_rows(w: Any, x: Any) -> Any:
    def row(total: Any, z: Any) -> tuple[Any, None]:
        return total + jnp.tanh(z @ w).sum(), None

    return lax.scan(row, 0.0, x)[0]  # 30 rows


def a_loss(w: Any, x: Any) -> Any:
    def loss(w: Any) -> Any:
        return jnp.mean(jnp.tanh(x @ w) ** 2)  # 30 rows

    value, gradient = jax.value_and_grad(loss)(w)
    return w - 0.1 * gradient, value


def taken_apart(w: Any, x: Any) -> Any:
    z = jnp.tanh(x @ w)
    return z.reshape(3, -1)  # 30 rows


def a_sharding(w: Any, x: Any) -> Any:
    x = lax.with_sharding_constraint(x, NamedSharding(MESH, PartitionSpec("data")))  # 30 rows
    return jnp.tanh(x @ w).sum()


@pytest.mark.parametrize(
    ("step", "asked", "possible", "options"),
    [
        (a_product, 4, 3, {}),
        (a_product, 4, 3, {"batch_argnums": 1}),
        (a_loop_over_rows, 4, 3, {}),
        (a_loss, 4, 3, {}),
        (a_loss, 4, 3, {"stages": 2, "mesh": (2,)}),
        (taken_apart, 5, 3, {}),
        (a_sharding, 6, 5, {"mesh": MESH.shape}),
    ],
)
def test_a_batch_that_does_not_divide_is_named_by_the_line_that_takes_it(
    step: Callable[..., Any], asked: int, possible: int, options: dict[str, Any]
) -> None:
    run = shardc.jit(step, cluster=CLUSTER, microbatches=asked, **{"stages": 1, **options})
    with pytest.warns(shardc.RequestWarning) as caught:
        made = run.lower(ones(8, 8), ones(30, 8)).plan().plan
    assert made.num_microbatches == possible
    told = next(str(warning.message) for warning in caught if "microbatch" in str(warning.message))
    assert place(step, "# 30 rows") in told

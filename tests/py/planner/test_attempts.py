"""A program of which no plan fits is told what fills the devices, and what helps."""

import jax
import jax.numpy as jnp
import pytest

import shardc
from shardc.errors import InfeasibleError
from tests.py.programs import build


def refusal(limit: int) -> InfeasibleError:
    step, args, donated, *_ = build("mlp")
    f = shardc.jit(step, donate_argnums=donated, cluster="cpu8", memory_limit_bytes=limit)
    with pytest.raises(InfeasibleError) as refused:
        f.lower(*args).plan()
    assert refused.value.code == "SHARDC-220"
    return refused.value


def test_a_state_that_is_too_large_asks_for_devices() -> None:
    _, (state, *_), *_ = build("mlp")
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(jax.tree.map(jnp.asarray, state)))
    error = refusal(1000)
    assert f"the state alone is {held:,} bytes" in str(error.help)
    assert f"use at least {-(-held // 1000)} devices" in str(error.help)


@pytest.mark.slow
def test_activations_that_are_too_large_ask_for_recomputation() -> None:
    error = refusal(9000)
    assert "jax.checkpoint" in str(error.help) and "smaller batch" in str(error.help)

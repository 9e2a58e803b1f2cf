"""A batch that is indexed by its own position is cut and sharded like any other."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.backend.stage_text import program_text
from tests.py.table import CLUSTER


def step(w: jax.Array, x: jax.Array, labels: jax.Array) -> Any:
    """Picks each row's label by arange, in the old style; its gradient scatters the same way."""

    def loss_of(w: jax.Array) -> jax.Array:
        logits = x @ w
        picked = logits[jnp.arange(len(labels))[:, None], jnp.arange(3)[None], labels]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)

    loss, gradient = jax.value_and_grad(loss_of)(w)
    return w - 0.1 * gradient, loss


@pytest.mark.slow
def test_labels_picked_by_position_are_split() -> None:
    random = np.random.default_rng(0)
    with jax.enable_x64(True):
        x, w = random.normal(size=(16, 3, 4)), random.normal(size=(4, 8))
        args = w, x, random.integers(0, 8, (16, 3))
        options = {"cluster": CLUSTER, "stages": 1, "microbatches": 2, "mesh": (4,)}
        compiled = shardc.jit(step, donate_argnums=0, **options).lower(*args).compile()
        got, want = compiled(*args), jax.jit(step)(*args)
    assert not compiled.plan.unmet
    assert not {"rule", "strategy"} & {note.data.get("why") for note in compiled.plan.notes}
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-12, atol=1e-12)
    text = "".join(program_text(each) for each in compiled.executable.programs)
    assert "operand_batching_dims = [0, 1]" in text
    assert "tensor<2x3x8xf64>" in text  # an eighth of the logits: a microbatch's, on a device

"""XLA communicates what shardc planned: the collectives of the plan, its MLIR and HLO are the same.

Bytes are compared per kind and replica group, after undoing what XLA's CPU compiler does to
collectives: it combines several into one over a tuple, sends bfloat16 as float32, and does not
gather what every device knows to be one constant.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.api.stages import Compiled
from shardc.backend.stage_text import program_text
from tests.py.compiled_step import compiled_collectives, planned_collectives
from tests.py.hlo_text import hlo_collectives, known_everywhere, mlir_collectives
from tests.py.parallel_gpt import tight_gpt
from tests.py.table import CLUSTER


def bfloat16_mlp() -> Compiled:
    """Two stages of a small MLP whose weights and activations are bfloat16."""

    def loss_fn(params: list[jax.Array], x: jax.Array) -> jax.Array:
        for w in params:
            x = jnp.tanh(x @ w)
        return jnp.mean(x.astype(jnp.float32) ** 2)

    def step(params: list[jax.Array], x: jax.Array) -> tuple[list[jax.Array], jax.Array]:
        loss, gradients = jax.value_and_grad(loss_fn)(params, x)
        return [p - 0.1 * g for p, g in zip(params, gradients, strict=True)], loss

    params = [np.ones((64, 64), jnp.bfloat16) for _ in range(4)]
    options: dict[str, Any] = {"stages": 2, "microbatches": 2, "mesh": (2, 2), "cluster": CLUSTER}
    options["schedule"] = "1f1b"  # of four stages with a layer each none has collectives
    sharded = shardc.jit(step, donate_argnums=0, **options)
    compiled: Compiled = sharded.lower(params, np.ones((32, 64), jnp.bfloat16)).compile()
    return compiled


@pytest.mark.slow
@pytest.mark.parametrize("make", [tight_gpt, bfloat16_mlp])
def test_compiled_collectives_are_those_of_the_program(make: Callable[[], Compiled]) -> None:
    compiled = make()
    texts = compiled.hlo_texts()
    for program in compiled.executable.programs:
        text = program_text(program)
        found = hlo_collectives(texts[program.name])
        found.update(known_everywhere(text))
        assert found == mlir_collectives(text), program.name
    for stage in range(compiled.plan.num_stages):
        planned = planned_collectives(compiled.plan, stage)
        assert compiled_collectives(compiled, stage) == planned, stage
        assert planned.total() > 0

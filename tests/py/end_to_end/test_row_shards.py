"""Tables split by rows: each device makes the gradients of its own rows; all numbers are jit's."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import shardc

DEVICES, ENTRIES, WIDTH, ROWS = 4, 4096, 6, 16
SCATTER = re.compile(r"= f64\[([\d,]+)\]\S* scatter\(")
PART = ENTRIES // DEVICES
ENDS = [n * PART + beside for n in range(-DEVICES, 2 * DEVICES) for beside in (-1, 0)]
# Of ids that are no rows, jit clamps those that look up and drops those that add.
IDS = {
    "anywhere": np.random.default_rng(1).integers(0, ENTRIES, ROWS),
    "negative and out of range": np.random.default_rng(2).integers(-2 * ENTRIES, 2 * ENTRIES, ROWS),
    "at the ends of parts": np.array(ENDS[ROWS // 2 :]),
    "one row": np.full(ROWS, 5),
    "rows of the last device": ENTRIES - PART + np.arange(ROWS) % 5,
}


def step(params: Any, batch: Any) -> Any:
    def loss(params: Any) -> Any:
        found = params["table"][batch["ids"]]
        return jnp.mean(jnp.tanh(found * batch["x"] @ params["w"]) ** 2)

    value, gradients = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 0.5 * g, params, gradients), value


def arguments(ids: np.ndarray) -> Any:
    random = np.random.default_rng(0)
    params = {"table": random.normal(size=(ENTRIES, WIDTH)), "w": random.normal(size=(WIDTH, 8))}
    return params, {"ids": ids.astype(np.int32), "x": random.normal(size=(ROWS, WIDTH))}


def planned(batch: P, microbatches: int, args: Any) -> Any:
    wrapped = shardc.jit(
        step,
        devices=jax.devices()[:DEVICES],
        stages=1,
        mesh={"x": DEVICES},
        microbatches=microbatches,
        shardings={"params['table']": P("x"), "params['w']": P(), "batch*": batch},
    )
    return wrapped.lower(*args).plan()


@pytest.mark.parametrize("microbatches", [1, 2])
def test_gradients_of_rows_are_never_whole(microbatches: int) -> None:
    with jax.enable_x64(True):
        made = planned(P(), microbatches, arguments(IDS["anywhere"]))
        texts = made.compile().hlo_texts()
    [scattered] = [found for text in texts.values() for found in set(SCATTER.findall(text))]
    assert scattered == f"{PART},{WIDTH}"


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
@pytest.mark.parametrize("microbatches", [1, 2])
@pytest.mark.parametrize("batch", [P(), P("x")], ids=["whole batch", "split batch"])
def test_steps_equal_those_of_jit(batch: P, microbatches: int, ids: np.ndarray) -> None:
    with jax.enable_x64(True):
        args = arguments(ids)
        expected = jax.jit(step)(*args)
        got = planned(batch, microbatches, args).compile()(*args)
        for own, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-12, atol=1e-14)

"""Layers in a `lax.scan` are sharded and cut into microbatches like unrolled ones."""

from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.check.numerics import compare
from shardc.cluster import Cluster, Device, Level
from tests.py.hlo_text import dot_flops
from tests.py.programs import leaves
from tests.py.table import CLUSTER

LAYERS, WIDTH, BATCH, TOKENS = 4, 16, 16, 8
# Links on which gradients, a few bytes each, are better added up once per step.
SLOW_LINKS = Cluster(
    "slow links",
    Device("slow", 1 << 30, {"default": 1e8}, 1e10),
    (Level("links", 8, 1e9, 1e-6),),
)


def step(params: Any, x: jax.Array, y: jax.Array) -> Any:
    """A transformer whose layers are recomputed, one of them left out now and then; SGD."""

    def loss_of(params: Any) -> jax.Array:
        def layer(h: jax.Array, each: Any) -> tuple[jax.Array, None]:
            weights = jax.nn.softmax((h @ each["q"]) @ (h @ each["k"]).mT / WIDTH**0.5)
            h = h + weights @ (h @ each["v"])
            wide = jnp.tanh(h @ each["up"])
            return jax.lax.cond(each["on"] > 0, lambda: h + wide @ each["down"], lambda: h), None

        h, _ = jax.lax.scan(jax.checkpoint(layer), x, params["layers"])
        return ((h @ params["out"] - y) ** 2).mean()

    loss, gradients = jax.value_and_grad(loss_of)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), loss


def arguments(dtype: str) -> tuple[Any, ...]:
    random = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return (random.normal(size=shape) / shape[-2] ** 0.5).astype(dtype)

    layers = {name: normal(LAYERS, WIDTH, WIDTH) for name in "qkv"}
    layers["up"] = normal(LAYERS, WIDTH, 4 * WIDTH)
    layers["down"] = normal(LAYERS, 4 * WIDTH, WIDTH)
    layers["on"] = np.array([1, -1, 1, 1], dtype)
    params = {"layers": layers, "out": normal(WIDTH, WIDTH)}
    return params, normal(BATCH, TOKENS, WIDTH), normal(BATCH, TOKENS, WIDTH)


def planned(dtype: str, cluster: Cluster, **options: Any) -> Any:
    wrapped = shardc.jit(step, donate_argnums=0, cluster=cluster, stages=1, **options)
    return wrapped.lower(*arguments(dtype)).compile()


@pytest.mark.parametrize("lowering", ["local", "xla"])
@pytest.mark.parametrize("microbatches", [1, 2])
@pytest.mark.parametrize("cluster", [CLUSTER, SLOW_LINKS], ids=["fast", "slow"])
def test_results_equal_one_device(cluster: Cluster, microbatches: int, lowering: str) -> None:
    with jax.enable_x64(True):
        compiled = planned(
            "float64", cluster, mesh=(2, 4), microbatches=microbatches, lowering=lowering
        )
        args = arguments("float64")
        exact = leaves(jax.jit(step)(*args))
        report = compare(exact, None, leaves(compiled(*args)))
    assert report.passed, str(report)


def test_dots_in_loops_are_divided_between_the_devices() -> None:
    """Those that the program computes again are kept: beside the step without checkpoints."""
    with mock.patch.object(jax, "checkpoint", lambda layer: layer):
        lowered = jax.jit(lambda *args: step(*args)).lower(*arguments("float32"))
    whole = dot_flops(lowered.compile().as_text())
    compiled = planned("float32", SLOW_LINKS, mesh=(8,), microbatches=1)
    on_each = sum(map(dot_flops, compiled.hlo_texts().values()))
    assert on_each == pytest.approx(whole / 8, rel=0.1)

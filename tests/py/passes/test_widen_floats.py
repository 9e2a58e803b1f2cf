"""The widened module computes in float64 what the module computes in its own precision."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.importer.from_jax import import_function
from shardc.ir.pass_manager import run_passes
from shardc.passes.pipeline import NORMALIZE
from shardc.passes.widen_floats import WidenFloats


def evaluate(module: ir.Module, *args: Any) -> list[np.ndarray]:
    """Results by StableHLO's interpreter; uint32 arguments are told apart from int32."""
    with module.context, ir.Location.unknown():
        uint32 = ir.IntegerType.get_unsigned(32)
        values = [
            ir.DenseElementsAttr.get(arg, type=uint32 if arg.dtype == np.uint32 else None)
            for arg in map(np.asarray, args)
        ]
        return [np.array(ir.DenseElementsAttr(v)) for v in stablehlo.eval_module(module, values)]


def net(w: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    def loss(w: jax.Array) -> jax.Array:
        hidden = jnp.tanh(x @ w).astype(jnp.bfloat16)
        scores = jax.nn.log_softmax((hidden @ hidden.T).astype(jnp.float32))
        return -jnp.mean(jnp.diagonal(scores))

    return jax.value_and_grad(loss)(w)


def net64(w: np.ndarray, x: np.ndarray) -> float:
    hidden = np.tanh(x @ w)
    scores = hidden @ hidden.T
    return float(np.mean(np.log(np.exp(scores).sum(1)) - np.diagonal(scores)))


def test_a_bf16_net_becomes_exact_to_float64() -> None:
    chance = np.random.default_rng(0)
    w, x = chance.normal(size=(4, 3)), chance.normal(size=(5, 4))
    imported = import_function(net, (np.float32(w), np.float32(x)))
    for passes in ([WidenFloats()], NORMALIZE, [WidenFloats()]):
        run_passes(imported.module, passes)
        loss, gradient = evaluate(imported.module, w, x)
        assert loss.dtype == gradient.dtype == np.float64
        np.testing.assert_allclose(loss, net64(w, x), rtol=1e-14)
        step = np.zeros_like(w)
        step[1, 2] = 1e-6
        slope = (net64(w + step, x) - net64(w - step, x)) / 2e-6
        np.testing.assert_allclose(gradient[1, 2], slope, rtol=1e-6)


def test_random_numbers_stay_the_same_numbers() -> None:
    def draw(key: jax.Array) -> jax.Array:
        return jax.random.uniform(key, (6,)) + jax.random.bernoulli(key, 0.5, (6,))

    key = jax.random.key(3)
    imported = import_function(draw, (key,))
    run_passes(imported.module, [*NORMALIZE, WidenFloats()])
    (drawn,) = evaluate(imported.module, jax.random.key_data(key))
    np.testing.assert_allclose(drawn, draw(key), atol=1e-6)

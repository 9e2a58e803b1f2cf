"""A GPT whose layers are one `lax.scan`, clipped and trained with adamw, as MaxText writes it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tests.py.programs import Program

WIDTH, HEADS, LENGTH, VOCABULARY = 32, 4, 8, 64


def scanned_gpt(
    layers: int = 4, batch: int = 16, axis: int = 0, dtype: Any = jnp.float32, width: int = WIDTH
) -> Program:
    """The training step and its arguments; the state is donated.

    Args:
        axis: of the layers in each stacked parameter.
        dtype: of parameters and state; the layers compute in bfloat16 where that is float32.
    """
    optimizer = optax.chain(optax.clip_by_global_norm(0.1), optax.adamw(1e-2))
    compute = jnp.bfloat16 if dtype == jnp.bfloat16 else dtype
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return (rng.normal(size=shape) / np.sqrt(shape[0])).astype(dtype)

    def stacked(*shape: int) -> Any:
        return np.stack([normal(*shape) for _ in range(layers)], axis)

    def layer(h: Any, w: Any) -> tuple[Any, None]:
        scaled = h * jax.lax.rsqrt(jnp.mean(h * h, -1, keepdims=True) + 1e-6)
        q, k, v = jnp.moveaxis(jnp.einsum("btd,dchn->bcthn", scaled, w["qkv"]), 1, 0)
        scores = jnp.einsum("bthn,bshn->bhts", q, k) / np.sqrt(q.shape[-1]).astype(compute)
        scores = jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), scores, -1e9)
        mixed = jnp.einsum("bhts,bshn->bthn", jax.nn.softmax(scores), v)
        h = h + jnp.einsum("bthn,hnd->btd", mixed, w["out"])
        return h + jax.nn.gelu(h @ w["up"] + w["bias"]) @ w["down"], None

    def loss_of(params: Any, tokens: Any) -> Any:
        h = params["embed"][tokens[:, :-1]]
        h, _ = jax.lax.scan(
            jax.checkpoint(layer),
            h,
            jax.tree.map(lambda w: jnp.moveaxis(w, axis, 0), params["layers"]),
        )
        logits = (h @ params["head"]).astype(jnp.promote_types(compute, jnp.float32))
        return jnp.mean(
            optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
        ).astype(logits.dtype)

    def step(state: Any, tokens: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(state["params"], tokens)
        updates, opt = optimizer.update(grads, state["opt"], state["params"])
        return {"params": optax.apply_updates(state["params"], updates), "opt": opt}, loss

    params = {
        "embed": normal(VOCABULARY, width),
        "layers": {
            "qkv": stacked(width, 3, HEADS, width // HEADS),
            "out": stacked(HEADS, width // HEADS, width),
            "up": stacked(width, 4 * width),
            "bias": stacked(4 * width),
            "down": stacked(4 * width, width),
        },
        "head": normal(width, VOCABULARY),
    }
    tokens = rng.integers(0, VOCABULARY, (batch, LENGTH + 1)).astype(np.int32)
    return Program(step, ({"params": params, "opt": jax.jit(optimizer.init)(params)}, tokens))

"""A small encoder-decoder, in plain JAX, for the programs of `hand_made.py`."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

HEADS = 4


def parameters(width: int, vocabulary: int, layers: int) -> Any:
    """One embedding for both sides; each layer of the decoder also attends to the encoder."""

    def attention() -> dict[str, np.ndarray]:
        return {name: normal(width, width) for name in ("query", "key", "value", "out")}

    def layer() -> dict[str, Any]:
        return {
            "self": attention(),
            "up": normal(width, 4 * width),
            "down": normal(4 * width, width),
        }

    return {
        "embedding": normal(vocabulary, width),
        "encoder": [layer() for _ in range(layers)],
        "decoder": [{**layer(), "cross": attention()} for _ in range(layers)],
    }


COLUMNS = {
    **{f"*.{name}": 1 for name in ("query", "key", "value", "up")},
    **{f"*.{name}": 0 for name in ("out", "down", "embedding")},
}  # what Megatron's plan splits, and along which dim


def loss(params: Any, batch: Any) -> jax.Array:
    """Mean cross entropy of `targets`, given `source` and the targets before."""
    memory = params["embedding"][batch["source"]]
    for layer in params["encoder"]:
        memory += _attend(_norm(memory), _norm(memory), layer["self"])
        memory += jax.nn.gelu(_norm(memory) @ layer["up"]) @ layer["down"]
    x = params["embedding"][batch["tokens"]]
    mask = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
    for layer in params["decoder"]:
        x += _attend(_norm(x), _norm(x), layer["self"], mask)
        x += _attend(_norm(x), memory, layer["cross"])
        x += jax.nn.gelu(_norm(x) @ layer["up"]) @ layer["down"]
    logits = _norm(x) @ params["embedding"].T
    right = jnp.take_along_axis(jax.nn.log_softmax(logits), batch["targets"][..., None], axis=-1)
    return -right.mean()


def _norm(x: jax.Array) -> jax.Array:
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def _attend(x: jax.Array, to: jax.Array, weights: Any, mask: jax.Array | None = None) -> jax.Array:
    def heads(values: jax.Array, name: str) -> jax.Array:
        rows, length, width = values.shape
        return (values @ weights[name]).reshape(rows, length, HEADS, width // HEADS)

    q, k, v = heads(x, "query"), heads(to, "key"), heads(to, "value")
    scores = jnp.einsum("bshd,bthd->bhst", q, k) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = jnp.where(mask, scores, -1e9)
    y = jnp.einsum("bhst,bthd->bshd", jax.nn.softmax(scores), v)
    return y.reshape(x.shape) @ weights["out"]


def normal(*shape: int) -> np.ndarray:
    """Seeded by the shape, so that the same sizes give the same program."""
    rng = np.random.default_rng(math.prod(shape))
    return (rng.normal(size=shape) / math.sqrt(shape[0])).astype(np.float32)

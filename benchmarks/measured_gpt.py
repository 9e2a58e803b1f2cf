"""A plain JAX GPT with Megatron's shardings: the training step that the measured runs ran.

Float32 master weights, products in 16-bit floats, Adam, learned positions, a tied output layer,
layers under `lax.scan`, each computed again in the backward pass. bfloat16
stands for the runs' float16: it is as fast and as large, and its sums over devices and microbatches
may be taken in any order, which shardc does not do to float16 (docs/proofs.md).
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

HALF = jnp.bfloat16
WHOLE = ("norm", "bias", "positions")  # parameters that stay float32


@dataclass(frozen=True)
class Gpt:
    """Sizes of the model and of a batch; what the sources do not say is a switch each.

    Attributes:
        vocabulary: where devices split it, padded to a multiple of 128 for each of them.
        recompute: whether layers are computed again in the backward pass.
        dropout: share of the activations that is dropped, behind attention and both halves.
    """

    layers: int
    hidden: int
    heads: int
    length: int
    batch: int
    tensor: int
    data: int
    vocabulary: int = 50257
    recompute: bool = True
    dropout: float = 0.0

    @property
    def padded(self) -> int:
        unit = 128 * self.tensor if self.tensor > 1 else 1
        return math.ceil(self.vocabulary / unit) * unit

    @property
    def mesh(self) -> AbstractMesh:
        return AbstractMesh(
            (self.data, self.tensor), ("data", "tensor"), axis_types=(AxisType.Auto,) * 2
        )


def step_of(gpt: Gpt) -> tuple[Any, tuple[Any, Any], tuple[Any, Any]]:
    """The training step, the shapes of its arguments, and their shardings."""
    mesh = gpt.mesh
    shapes, shardings = _parameters(gpt, mesh)
    kept = {
        name: where.spec[1:]
        for name, where in shardings["layers"].items()
        if not name.startswith("norm")
    }

    def lies(value: jax.Array, *spec: str | None) -> jax.Array:
        return jax.lax.with_sharding_constraint(value, NamedSharding(mesh, P(*spec)))

    def dropped(value: jax.Array, key: jax.Array, number: int) -> jax.Array:
        if not gpt.dropout:
            return value
        kept = jax.random.bernoulli(jax.random.fold_in(key, number), 1 - gpt.dropout, value.shape)
        return jnp.where(kept, value / (1 - gpt.dropout), 0).astype(value.dtype)

    def norm(x: jax.Array, w: Any) -> jax.Array:
        y = x.astype(jnp.float32)
        y = y - y.mean(-1, keepdims=True)
        y = y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5)
        return lies((y * w["scale"] + w["bias"]).astype(HALF), "data", None, None)

    def plus(x: jax.Array, bias: jax.Array) -> jax.Array:
        return (x.astype(jnp.float32) + bias).astype(HALF)

    @jax.custom_vjp
    def stays(w: Any) -> Any:
        """Weights of a layer, split where they are used as where they are kept; their gradients
        lie as they come."""
        return {name: lies(part, *kept[name]) if name in kept else part for name, part in w.items()}

    stays.defvjp(lambda w: (stays(w), None), lambda _, g: (g,))

    def layer(x: jax.Array, w: Any) -> jax.Array:
        w, key = stays(w), jax.random.key(0)
        y = jnp.einsum("bsh,hkad->bskad", norm(x, w["norm1"]), w["qkv"])
        y = plus(lies(y, "data", None, None, "tensor", None), w["qkv_bias"])
        q, k, v = y[:, :, 0], y[:, :, 1], y[:, :, 2]
        scores = lies(jnp.einsum("bsad,btad->bast", q, k), "data", "tensor", None, None)
        mask = jnp.tril(jnp.ones((gpt.length, gpt.length), bool))
        scores = jnp.where(mask, scores / math.sqrt(gpt.hidden // gpt.heads), -1e4)
        shares = dropped(jax.nn.softmax(scores, axis=-1), key, 0)
        y = lies(jnp.einsum("bast,btad->bsad", shares, v), "data", None, "tensor", None)
        y = lies(jnp.einsum("bsad,adh->bsh", y, w["out"]), "data", None, None)
        x = x + dropped(plus(y, w["out_bias"]), key, 1)
        y = jnp.einsum("bsh,hf->bsf", norm(x, w["norm2"]), w["up"])
        y = jax.nn.gelu(plus(lies(y, "data", None, "tensor"), w["up_bias"]), approximate=True)
        y = lies(jnp.einsum("bsf,fh->bsh", y, w["down"]), "data", None, None)
        return lies(x + dropped(plus(y, w["down_bias"]), key, 2), "data", None, None)

    @jax.custom_vjp
    def recomputed(x: jax.Array, w: Any) -> jax.Array:
        """A layer that is computed again as a whole on the way back, as Megatron's checkpoints do;
        `jax.checkpoint` leaves out what nothing reads: its last product and sum over devices."""
        return layer(x, w)

    def again(kept: tuple[jax.Array, Any], g: jax.Array) -> tuple[jax.Array, Any]:
        y, pull = jax.vjp(layer, *jax.lax.optimization_barrier(kept))
        dx, dw = pull(g)
        return dx + 0 * y, dw

    recomputed.defvjp(lambda x, w: (layer(x, w), (x, w)), again)

    def loss_of(params: Any, batch: Any) -> jax.Array:
        params = jax.tree_util.tree_map_with_path(
            lambda path, w: w if any(n in str(path) for n in WHOLE) else w.astype(HALF), params
        )
        run = recomputed if gpt.recompute else layer
        x = plus(params["embedding"][batch["tokens"]], params["positions"])
        x = lies(x, "data", None, None)
        x, _ = jax.lax.scan(lambda x, w: (run(x, w), None), x, params["layers"])
        y = jnp.einsum("bsh,vh->bsv", norm(x, params["norm"]), params["embedding"])
        logits = lies(y, "data", None, "tensor").astype(jnp.float32)
        target = batch["targets"][..., None] == jnp.arange(gpt.padded)
        right = jnp.where(target, logits, 0).sum(-1)
        return (jax.nn.logsumexp(logits, axis=-1) - right).mean()

    def step(state: Any, batch: Any) -> tuple[Any, jax.Array]:
        loss, g = jax.value_and_grad(loss_of)(state["params"], batch)
        g = jax.tree.map(jax.lax.with_sharding_constraint, g, shardings)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["m"], g)
        v = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, state["v"], g)
        params = jax.tree.map(
            lambda p, m, v: p - 1e-4 * (m / (jnp.sqrt(v) + 1e-8) + 0.1 * p), state["params"], m, v
        )
        return {"params": params, "m": m, "v": v}, loss

    tokens = jax.ShapeDtypeStruct((gpt.batch, gpt.length), jnp.int32)
    split = NamedSharding(mesh, P("data"))
    names = ("params", "m", "v")
    arguments = dict.fromkeys(names, shapes), {"tokens": tokens, "targets": tokens}
    return step, arguments, (dict.fromkeys(names, shardings), {"tokens": split, "targets": split})


def _parameters(gpt: Gpt, mesh: AbstractMesh) -> tuple[Any, Any]:
    """Shapes and shardings of the parameters; those of layers are stacked."""
    n, h, heads = gpt.layers, gpt.hidden, gpt.heads
    whole: dict[str, tuple[tuple[int, ...], P]] = {"scale": ((h,), P()), "bias": ((h,), P())}
    stacked = {name: ((n, *shape), spec) for name, (shape, spec) in whole.items()}
    depth = h // heads
    table: Any = {
        "embedding": ((gpt.padded, h), P("tensor")),
        "positions": ((gpt.length, h), P()),
        "norm": whole,
        "layers": {
            "norm1": stacked,
            "norm2": stacked,
            "qkv": ((n, h, 3, heads, depth), P(None, None, None, "tensor")),
            "qkv_bias": ((n, 3, heads, depth), P(None, None, "tensor")),
            "out": ((n, heads, depth, h), P(None, "tensor")),
            "out_bias": ((n, h), P()),
            "up": ((n, h, 4 * h), P(None, None, "tensor")),
            "up_bias": ((n, 4 * h), P(None, "tensor")),
            "down": ((n, 4 * h, h), P(None, "tensor")),
            "down_bias": ((n, h), P()),
        },
    }

    def is_entry(entry: Any) -> bool:
        return isinstance(entry, tuple)

    return (
        jax.tree.map(lambda e: jax.ShapeDtypeStruct(e[0], jnp.float32), table, is_leaf=is_entry),
        jax.tree.map(lambda e: NamedSharding(mesh, e[1]), table, is_leaf=is_entry),
    )

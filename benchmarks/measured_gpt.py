"""A plain JAX GPT with Megatron's shardings: the training step that the measured runs ran.

Float32 master weights, products in 16-bit floats, Adam, learned positions, a tied output layer,
layers under `lax.scan`. bfloat16
stands for the runs' float16: it is as fast and as large, and its sums over devices and microbatches
may be taken in any order, which shardc does not do to float16 (docs/proofs.md).
"""

import functools
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

HALF = jnp.bfloat16
WHOLE = ("norm", "bias", "positions")  # parameters that stay float32


@dataclass(frozen=True)
class Gpt:
    """Sizes of the model and of a batch; what the sources do not say is a switch each.

    Attributes:
        vocabulary: where devices split it, padded to a multiple of 128 for each of them.
        recompute: what is computed again in the backward pass: "full" layers, the "selective" core
            of attention between its two products of weights, or "none".
        sequence: between the products of a layer, tensor ranks split the sequence.
        dropout: share of the activations that is dropped: behind the softmax, in a kernel of its
            own, and behind both halves of a layer, as Megatron does by default.
        keeps: what is not computed again is kept as "megatron" does, or the "least". Megatron
            keeps the masks of dropout, a byte each, gelu's input and result, and the attention
            shares before and after dropout; the least are hashes, gelu's input and the shares.
            With full recomputation it makes no difference.
    """

    layers: int
    hidden: int
    heads: int
    length: int
    batch: int
    tensor: int
    data: int
    vocabulary: int = 50257
    recompute: str = "full"
    dropout: float = 0.1
    sequence: bool = False
    keeps: str = "megatron"

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
    along = "tensor" if gpt.sequence else None
    shapes, shardings = _parameters(gpt, mesh)
    kept = {
        name: where.spec[1:]
        for name, where in shardings["layers"].items()
        if not name.startswith("norm")
    }

    def lies(value: jax.Array, *spec: str | None) -> jax.Array:
        return jax.lax.with_sharding_constraint(value, NamedSharding(mesh, P(*spec)))

    keeps_all = gpt.recompute != "full" and gpt.keeps == "megatron"

    def dropped(value: jax.Array, name: str) -> jax.Array:
        """Drops by a hash of the place: as random bits are, it is made inside the kernel. A mask
        that is kept also depends on the values; one of places alone would be made again."""
        if not gpt.dropout:
            return value
        place = sum(
            jax.lax.broadcasted_iota(jnp.uint32, value.shape, i) * (40503 + 2 * i)
            for i in range(value.ndim)
        )
        if keeps_all:
            place += (jax.lax.stop_gradient(value) > 0).astype(jnp.uint32)
        bits = (place ^ (place >> 7)) * jnp.uint32(2654435761) >> 16
        mask = bits >= jnp.uint32(gpt.dropout * 2**16)
        if keeps_all:
            mask = checkpoint_name(mask, name)
        return jnp.where(mask, value / (1 - gpt.dropout), 0).astype(value.dtype)

    def kept_along(value: jax.Array) -> jax.Array:
        """Split over tensor ranks where it is made, kept and read again."""
        value = checkpoint_name(lies(value, "data", along, None), "kept")
        return lies(value, "data", along, None)

    def norm(x: jax.Array, w: Any) -> jax.Array:
        y = x.astype(jnp.float32)
        y = y - y.mean(-1, keepdims=True)
        y = y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5)
        y = (y * w["scale"] + w["bias"]).astype(HALF)
        return lies(kept_along(y), "data", None, None)

    def plus(x: jax.Array, bias: jax.Array) -> jax.Array:
        return (x.astype(jnp.float32) + bias).astype(HALF)

    @jax.custom_vjp
    def stays(w: Any) -> Any:
        """Weights of a layer, split where they are used as where they are kept; their gradients
        lie as they come."""
        return {name: lies(part, *kept[name]) if name in kept else part for name, part in w.items()}

    stays.defvjp(lambda w: (stays(w), None), lambda _, g: (g,))

    def layer(x: jax.Array, w: Any) -> jax.Array:
        w = stays(w)
        y = jnp.einsum("bsh,hkad->bskad", norm(x, w["norm1"]), w["qkv"])
        y = plus(lies(y, "data", None, None, "tensor", None), w["qkv_bias"])
        y = checkpoint_name(y, "kept")
        q, k, v = y[:, :, 0], y[:, :, 1], y[:, :, 2]
        scores = lies(jnp.einsum("bsad,btad->bast", q, k), "data", "tensor", None, None)
        mask = jnp.tril(jnp.ones((gpt.length, gpt.length), bool))
        scores = jnp.where(mask, scores / math.sqrt(gpt.hidden // gpt.heads), -1e4)
        softmax = kept_softmax if keeps_all else jax.nn.softmax
        shares = jax.lax.optimization_barrier(softmax(scores, axis=-1))
        shares = dropped(checkpoint_name(shares, "shares"), "shares")
        shares = checkpoint_name(shares, "shares") if keeps_all else shares
        y = lies(jnp.einsum("bast,btad->bsad", shares, v), "data", None, "tensor", None)
        y = checkpoint_name(y, "kept")
        y = lies(jnp.einsum("bsad,adh->bsh", y, w["out"]), "data", along, None)
        x = kept_along(x + dropped(plus(y, w["out_bias"]), "kept"))
        y = jnp.einsum("bsh,hf->bsf", norm(x, w["norm2"]), w["up"])
        y = checkpoint_name(lies(y, "data", None, "tensor"), "kept")
        y = jax.nn.gelu(plus(y, w["up_bias"]), approximate=True)
        y = checkpoint_name(y, "kept") if keeps_all else y
        y = lies(jnp.einsum("bsf,fh->bsh", y, w["down"]), "data", along, None)
        return lies(x + dropped(plus(y, w["down_bias"]), "kept"), "data", along, None)

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
        names = ("kept", "shares") if gpt.recompute == "none" else ("kept",)
        policy = jax.checkpoint_policies.save_only_these_names(*names)
        run = recomputed if gpt.recompute == "full" else jax.checkpoint(layer, policy=policy)
        x = plus(params["embedding"][batch["tokens"]], params["positions"])
        x = lies(x, "data", along, None)
        x, _ = jax.lax.scan(lambda x, w: (run(x, w), None), x, params["layers"])
        y = jnp.einsum("bsh,vh->bsv", norm(x, params["norm"]), params["embedding"])
        return cross_entropy(lies(y, "data", None, "tensor"), batch["targets"]).mean()

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


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def kept_softmax(scores: jax.Array, axis: int) -> jax.Array:
    """Whose backward pass reads its result, named "shares", and computes nothing again."""
    return _softmax_and_shares(scores, axis)[0]


def _softmax_and_shares(scores: jax.Array, axis: int) -> tuple[jax.Array, jax.Array]:
    shares = checkpoint_name(jax.nn.softmax(scores, axis=axis), "shares")
    return shares, shares


def _softmax_back(axis: int, shares: jax.Array, g: jax.Array) -> tuple[jax.Array]:
    return (shares * (g - (shares * g).sum(axis, keepdims=True)),)


kept_softmax.defvjp(_softmax_and_shares, _softmax_back)


@jax.custom_vjp
def cross_entropy(logits: jax.Array, target: jax.Array) -> jax.Array:
    """Of each token, in the kernels of Megatron's `vocab_parallel_cross_entropy`: nothing is fused,
    so the logits go through memory seven times, in float32.

    Args:
        logits: [batch, length, vocabulary], 16 bits.
        target: [batch, length], indices.
    """
    return _entropy_and_shares(logits, target)[0]


def _entropy_and_shares(
    logits: jax.Array, target: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    kernel = jax.lax.optimization_barrier
    x = kernel(logits.astype(jnp.float32))
    x = x - kernel(x.max(-1, keepdims=True))
    right = jnp.where(_is_at(target, x), x, 0).sum(-1, keepdims=True)
    e = kernel(jnp.exp(kernel(x)))
    total = kernel(e.sum(-1, keepdims=True))
    return (jnp.log(total) - right)[..., 0], (kernel(e / total), target)


def _entropy_back(kept: tuple[jax.Array, jax.Array], g: jax.Array) -> tuple[jax.Array, None]:
    shares, target = kept
    dx = jax.lax.optimization_barrier((shares - _is_at(target, shares)) * g[..., None])
    return dx.astype(HALF), None


def _is_at(target: jax.Array, x: jax.Array) -> jax.Array:
    return target[..., None] == jnp.arange(x.shape[-1])


cross_entropy.defvjp(_entropy_and_shares, _entropy_back)


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

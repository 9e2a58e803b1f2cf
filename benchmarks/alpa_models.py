"""The mixture of experts and the Wide-ResNet of Alpa's evaluation, as plain JAX training steps.

Sources of the models: Zheng et al., Alpa, OSDI 2022, section 8 and appendix B, and the models of
its repository: every second layer of the transformer has experts under top-2 gating (GShard), its
layers are computed again in the backward pass; the Wide-ResNet's bottleneck widens the middle
convolution and is trained in float32 by SGD with momentum.

Two changes. bfloat16 stands for float16 (docs/proofs.md). Batch normalisation averages over the
positions of one image instead of a microbatch: the same reads and writes, and a step that may be
split into microbatches.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from measured_gpt import HALF

Step = tuple[Any, tuple[Any, Any]]  # a training step, and the shapes of its arguments


@dataclass(frozen=True)
class Experts:
    """A transformer with experts in every second layer.

    Attributes:
        layers: of both kinds together.
        group: tokens among which the gate distributes the places of the experts.
        recompute: keep only what lies between pairs of layers.
    """

    hidden: int
    layers: int
    heads: int
    experts: int
    batch: int = 1024
    length: int = 1024
    vocabulary: int = 32000
    group: int = 2048
    recompute: bool = True

    @property
    def flops(self) -> float:
        """Of a step as Alpa counts them, in `compute_moe_tflops`: recomputation included."""
        tokens, h, s = self.batch * self.length, self.hidden, self.length
        dense = tokens * h * h * (8 + 4 * 8) + 4 * tokens * s * h
        routed = tokens * h * h * (8 + 8 * 8) + 4 * tokens * s * h
        routed += 2 * tokens * (h * self.experts + 2 * self.group + 4 * h * self.group)
        return 4 * (dense + routed) * self.layers / 2 + 6 * tokens * h * self.vocabulary


def experts_step(of: Experts) -> Step:
    """Tokens come as [groups, sequences of a group, length]."""
    n, h, heads, e = of.layers // 2, of.hidden, of.heads, of.experts
    per_group = of.group // of.length
    attention = {
        "qkv": (n, h, 3, heads, h // heads),
        "qkv_bias": (n, 3, heads, h // heads),
        "out": (n, heads, h // heads, h),
        "out_bias": (n, h),
        "scale": (n, h),
        "shift": (n, h),
    }
    table: Any = {
        "embedding": (of.vocabulary, h),
        "positions": (of.length, h),
        "routed": {
            **attention,
            "gate": (n, h, e),
            "first": (n, e, h, 8 * h),
            "second": (n, e, 8 * h, h),
            "scale2": (n, h),
            "shift2": (n, h),
        },
        "dense": {
            **attention,
            "first": (n, h, 8 * h),
            "first_bias": (n, 8 * h),
            "second": (n, 8 * h, h),
            "second_bias": (n, h),
            "scale2": (n, h),
            "shift2": (n, h),
        },
    }

    def norm(x: jax.Array, scale: jax.Array, shift: jax.Array) -> jax.Array:
        y = x.astype(jnp.float32)
        y = y - y.mean(-1, keepdims=True)
        y = y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-12)
        return y.astype(HALF) * scale + shift

    def attended(x: jax.Array, w: Any) -> jax.Array:
        y = jnp.einsum("gbsh,hkad->gbskad", x, w["qkv"]) + w["qkv_bias"]
        q, k, v = y[..., 0, :, :], y[..., 1, :, :], y[..., 2, :, :]
        scores = jnp.einsum("gbsad,gbtad->gbast", q, k) / math.sqrt(h // heads)
        shares = jax.nn.softmax(scores, axis=-1)
        y = jnp.einsum("gbast,gbtad->gbsad", shares, v)
        y = jnp.einsum("gbsad,adh->gbsh", y, w["out"]) + w["out_bias"]
        return norm(x + y, w["scale"], w["shift"])

    def routed(x: jax.Array, w: Any) -> jax.Array:
        tokens = x.reshape(x.shape[0], of.group, h)
        gates = jax.nn.softmax(jnp.einsum("gsm,me->gse", tokens, w["gate"]), axis=-1)
        combine = top2(gates, 2 * of.group // e)
        sent = jnp.einsum("gsec,gsm->egcm", (combine > 0).astype(HALF), tokens)
        y = jax.nn.relu(jnp.einsum("egcm,emh->egch", sent, w["first"]))
        y = jnp.einsum("egch,ehm->gecm", y, w["second"])
        return jnp.einsum("gsec,gecm->gsm", combine, y).reshape(x.shape)

    def pair(x: jax.Array, both: Any) -> tuple[jax.Array, None]:
        w, v = both
        x = attended(x, w)
        x = norm(x + routed(x, w), w["scale2"], w["shift2"])
        x = attended(x, v)
        y = jax.nn.gelu(x @ v["first"] + v["first_bias"], approximate=True)
        return norm(x + y @ v["second"] + v["second_bias"], v["scale2"], v["shift2"]), None

    def loss_of(params: Any, batch: Any) -> jax.Array:
        w = jax.tree.map(lambda p: p.astype(HALF), params)
        x = w["embedding"][batch["tokens"]] + w["positions"]
        run = jax.checkpoint(pair) if of.recompute else pair
        x, _ = jax.lax.scan(run, x, (w["routed"], w["dense"]))
        y = jnp.einsum("gbsh,vh->gbsv", x, w["embedding"]).astype(jnp.float32)
        right = jnp.take_along_axis(y, batch["targets"][..., None], -1)[..., 0]
        return (jax.nn.logsumexp(y, axis=-1) - right).mean()

    def step(state: Any, batch: Any) -> tuple[Any, jax.Array]:
        loss, g = jax.value_and_grad(loss_of)(state["params"], batch)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["m"], g)
        v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, state["v"], g)
        params = jax.tree.map(
            lambda p, m, v: p - 1e-4 * (m / (jnp.sqrt(v) + 1e-8)), state["params"], m, v
        )
        return {"params": params, "m": m, "v": v}, loss

    tokens = jax.ShapeDtypeStruct((of.batch // per_group, per_group, of.length), jnp.int32)
    state = dict.fromkeys(("params", "m", "v"), _shapes(table))
    return step, (state, {"tokens": tokens, "targets": tokens})


def top2(gates: jax.Array, places: int) -> jax.Array:
    """The weight of each place of each expert for each token, by GShard's products.

    Source: Lepikhin et al., arXiv:2006.16668, algorithm 1, as Alpa's model has it.

    Args:
        gates: [group, token, expert], shares that add up to 1.
        places: of one expert in one group; later tokens than it has places for are dropped.
    Returns:
        [group, token, expert, place], at most two of a token's above 0.
    """

    def placed(chosen: jax.Array, taken: jax.Array) -> tuple[jax.Array, jax.Array]:
        place = (jnp.cumsum(chosen, axis=1) - chosen + taken[:, None]) * chosen
        kept = chosen * (place < places)
        return (place * kept).sum(-1), kept

    def weighed(weight: jax.Array, place: jax.Array, kept: jax.Array) -> jax.Array:
        at = jax.nn.one_hot(place, places, dtype=gates.dtype)
        return jnp.einsum("gse,gsc->gsec", weight[..., None] * kept, at)

    e = gates.shape[-1]
    first = jax.nn.one_hot(gates.argmax(-1), e, dtype=jnp.int32)
    second = jax.nn.one_hot((gates * (1 - first)).argmax(-1), e, dtype=jnp.int32)
    place1, kept1 = placed(first, jnp.zeros_like(first[:, 0]))
    place2, kept2 = placed(second, kept1.sum(1))
    weights = [jnp.einsum("gse,gse->gs", gates, kept) for kept in (kept1, kept2)]
    total = jnp.maximum(weights[0] + weights[1], 1e-6)
    return weighed(weights[0] / total, place1, kept1) + weighed(weights[1] / total, place2, kept2)


@dataclass(frozen=True)
class WideResNet:
    """Attributes:
    blocks: bottlenecks of each of the four sizes of image.
    channels: of the first convolution.
    widen: the middle convolution of a bottleneck over the first.
    """

    channels: int
    widen: int = 2
    blocks: tuple[int, ...] = (3, 4, 6, 3)
    batch: int = 1536
    image: int = 224
    classes: int = 1024


def wide_resnet_step(of: WideResNet) -> Step:
    """Images come as [batch, height, width, 3]."""
    table: Any = {"stem": {"w": (7, 7, 3, of.channels), **_norm(of.channels)}, "blocks": []}
    before = of.channels
    for size, many in enumerate(of.blocks):
        own = of.channels * 2**size
        for number in range(many):
            block: Any = {
                "a": {"w": (1, 1, before, own), **_norm(own)},
                "b": {"w": (3, 3, own, own * of.widen), **_norm(own * of.widen)},
                "c": {"w": (1, 1, own * of.widen, own * 4), **_norm(own * 4)},
            }
            if number == 0:
                block["skip"] = {"w": (1, 1, before, own * 4), **_norm(own * 4)}
            table["blocks"].append(block)
            before = own * 4
    table["last"] = {"w": (before, of.classes), "shift": (of.classes,)}
    first = {sum(of.blocks[:size]) for size in range(1, 4)}  # these halve the image

    def conv(x: jax.Array, w: Any, stride: int = 1) -> jax.Array:
        y = jax.lax.conv_general_dilated(
            x, w["w"], (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        y = y - y.mean((1, 2), keepdims=True)
        y = y * jax.lax.rsqrt((y * y).mean((1, 2), keepdims=True) + 1e-5)
        return y * w["scale"] + w["shift"]

    def loss_of(params: Any, batch: Any) -> jax.Array:
        x = jax.nn.relu(conv(batch["images"], params["stem"], 2))
        window = (1, 3, 3, 1), (1, 2, 2, 1), "SAME"
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, *window)
        for number, w in enumerate(params["blocks"]):
            stride = 2 if number in first else 1
            with jax.named_scope("block"):
                y = jax.nn.relu(conv(x, w["a"]))
                y = jax.nn.relu(conv(y, w["b"], stride))
                y = conv(y, w["c"])
                skip = conv(x, w["skip"], stride) if "skip" in w else x
                x = jax.nn.relu(skip + y)
        y = x.mean((1, 2)) @ params["last"]["w"] + params["last"]["shift"]
        right = jnp.take_along_axis(y, batch["labels"][:, None], -1)[:, 0]
        return (jax.nn.logsumexp(y, axis=-1) - right).mean()

    def step(state: Any, batch: Any) -> tuple[Any, jax.Array]:
        loss, g = jax.value_and_grad(loss_of)(state["params"], batch)
        m = jax.tree.map(lambda m, g: 0.9 * m + g, state["m"], g)
        params = jax.tree.map(lambda p, m, g: p - 0.1 * (0.9 * m + g), state["params"], m, g)
        return {"params": params, "m": m}, loss

    images = jax.ShapeDtypeStruct((of.batch, of.image, of.image, 3), jnp.float32)
    labels = jax.ShapeDtypeStruct((of.batch,), jnp.int32)
    state = dict.fromkeys(("params", "m"), _shapes(table))
    return step, (state, {"images": images, "labels": labels})


def _norm(channels: int) -> dict[str, tuple[int, ...]]:
    return {"scale": (channels,), "shift": (channels,)}


def _shapes(table: Any) -> Any:
    def is_shape(entry: Any) -> bool:
        return isinstance(entry, tuple)

    return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s, jnp.float32), table, is_leaf=is_shape)

"""Layers around which something stands: element types, checkpoints, shard_map, custom rules."""

from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec

from tests.py.fuzz.layers import Layer

POLICIES = (
    "everything_saveable",
    "nothing_saveable",
    "dots_saveable",
    "dots_with_no_batch_dims_saveable",
)


def mixed_types(random: Random, rows: int) -> Layer:
    """Computes in another element type, weights and activations each in their own."""
    inside = random.choice(["float32", "bfloat16", "float16", "float64"])
    weights = random.choice(["same", "float32", "bfloat16"])
    sums = random.choice(["same", "float32", "float64"])
    count = random.random() < 0.3
    kept = random.choice(["same", "inside", "inside", "inside", "int8"])

    def apply(h: Any, w: Any, y: Any) -> Any:
        kind = jnp.dtype(inside)
        z = h.astype(kind)
        weight = w[0].astype(inside if weights == "same" else weights).astype(kind)
        made = jnp.dot(
            z, weight, preferred_element_type=kind if sums == "same" else jnp.dtype(sums)
        )
        out = jnp.tanh(made)
        if count:
            near = (z > 0).astype(jnp.int8)
            out = out + jnp.sum(near, 1, dtype=jnp.int32)[:, None].astype(out.dtype) / 8
        if kept == "int8":  # whatever stands in front of it gets no gradient
            steps = jnp.round(16 * (h + out.astype(h.dtype)))
            return jnp.clip(lax.stop_gradient(steps), -127, 127).astype(jnp.int8)
        return (h + out.astype(h.dtype)).astype(inside if kept == "inside" else h.dtype)

    what = f"in {inside}, weights {weights}, sums {sums}, counts {count}, gives {kept}"
    return Layer(what, 1, apply)


def cast_layers(random: Random, rows: int) -> Layer:
    """A loop over layers, each of which casts its weights to a narrower type."""
    inside = random.choice(["float32", "bfloat16", "float16"])
    first = random.random() < 0.7  # the dim along which layers are stacked
    both = random.random() < 0.3  # whether the weights are used as they are, too
    nested, remat = random.random() < 0.3, random.random() < 0.5

    def apply(h: Any, w: Any, y: Any) -> Any:
        stack = jnp.stack(w, 0 if first else 1)

        def layer(z: Any, weight: Any) -> tuple[Any, None]:
            weight = weight if first else weight.reshape(h.shape[1], -1)
            a = jnp.tanh(z.astype(inside) @ weight.astype(inside)).astype(z.dtype)
            return z + (a @ weight if both else a), None

        body = jax.checkpoint(layer) if remat else layer
        over = stack if first else jnp.moveaxis(stack, 1, 0)
        if nested:
            return lax.scan(lambda z, _: (lax.scan(body, z, over)[0], None), h, None, length=2)[0]
        return lax.scan(body, h, over)[0]

    what = f"in {inside}, stacked {'first' if first else 'second'}, uncast too {both}"
    return Layer(f"cast layers {what}, nested {nested}, remat {remat}", 3, apply)


def checkpointed(random: Random, rows: int) -> Layer:
    """Under `jax.checkpoint` with some policy, in a loop or not, once or twice."""
    policy = random.choice([*POLICIES, "names", "but names", "default"])
    looped, nested = random.random() < 0.5, random.random() < 0.3

    def apply(h: Any, w: Any, y: Any) -> Any:
        def block(z: Any, weight: Any) -> Any:
            a = checkpoint_name(jnp.tanh(z @ weight), "first")
            b = checkpoint_name(jnp.sin(a @ weight.T), "second")
            return z + b

        policies = jax.checkpoint_policies
        chosen = {
            "names": lambda: policies.save_only_these_names("first"),
            "but names": lambda: policies.save_anything_except_these_names("second"),
            "default": lambda: None,
        }.get(policy, lambda: getattr(policies, policy))()
        f = jax.checkpoint(block, policy=chosen)
        if nested:
            once = f
            f = jax.checkpoint(lambda z, weight: once(jnp.cos(z), weight))
        if looped:
            return lax.scan(lambda z, weight: (f(z, weight), None), h, jnp.stack(w))[0]
        return f(f(h, w[0]), w[1])

    return Layer(f"checkpoint {policy}, looped {looped}, nested {nested}", 2, apply)


def mapped_over_one_device(random: Random, rows: int) -> Layer:
    """Inside `jax.shard_map` over a mesh of one device, with collectives of that one."""
    what = random.choice(["psum", "pmean", "all_gather", "axis_index", "ppermute", "nothing"])
    over = random.choice(["rows", "nothing"])

    def apply(h: Any, w: Any, y: Any) -> Any:
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",))
        spec = PartitionSpec("d" if over == "rows" else None)

        def inner(z: Any, weight: Any) -> Any:
            out = jnp.tanh(z @ weight)
            if what == "psum":
                return out + lax.psum(jnp.mean(out, 1, keepdims=True), "d")
            if what == "pmean":
                return out - lax.pmean(out, "d") / 2
            if what == "all_gather":
                return out + lax.all_gather(out, "d", axis=0, tiled=True)
            if what == "axis_index":
                return out * (1 + lax.axis_index("d").astype(out.dtype))
            return lax.ppermute(out, "d", [(0, 0)]) if what == "ppermute" else out

        f = jax.shard_map(
            inner, mesh=mesh, in_specs=(spec, PartitionSpec()), out_specs=spec, check_vma=False
        )
        return h + f(h, w[0])

    return Layer(f"shard_map over {over} with {what}", 1, apply)


def own_rules(random: Random, rows: int) -> Layer:
    """With derivatives of its own, `jax.custom_vjp` or `jax.custom_jvp`."""
    what = random.choice(["straight through", "clipped", "reversed", "mean in backward", "jvp"])

    @jax.custom_vjp
    def f(z: Any, weight: Any) -> Any:
        return jnp.round(z * 4) / 4 @ weight if what == "straight through" else jnp.tanh(z @ weight)

    def forward(z: Any, weight: Any) -> Any:
        return f(z, weight), (z, weight)

    def backward(kept: Any, g: Any) -> Any:
        z, weight = kept
        if what == "clipped":
            norm = jnp.sqrt(jnp.sum(g * g, 1, keepdims=True) + 1e-6)
            g = g / jnp.maximum(1, 5 * norm)
        elif what == "reversed":
            g = -g
        elif what == "mean in backward":
            g = g - jnp.mean(g, 0)
        return g @ weight.T, z.T @ g

    f.defvjp(forward, backward)

    @jax.custom_jvp
    def smooth(z: Any) -> Any:
        return jnp.where(z > 0, z, jnp.expm1(z))

    @smooth.defjvp
    def _rule(primals: Any, tangents: Any) -> Any:
        (z,), (t,) = primals, tangents
        return smooth(z), jnp.where(z > 0, t, jnp.exp(z) * t)

    def apply(h: Any, w: Any, y: Any) -> Any:
        return h + (smooth(h @ w[0]) if what == "jvp" else f(h, w[0]))

    return Layer(f"own rule, {what}", 1, apply)

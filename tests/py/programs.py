"""The programs that shardc must run: ordinary JAX training steps that know nothing of shardc.

`build(name)` gives a step, arguments to call it with (seeded, on the host) and what to donate. The
same program with `dtype="float64"` computes everything in float64, the reference of the numerical
contract; it needs JAX's x64 mode when it runs.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from examples import gpt_model
from examples.gpt_model import Batch, Params, Sizes, State

BATCH = 16
SIZES = Sizes()  # of gpt_sgd: a whole block for each of four stages
FEW = Sizes(layers=2)  # of the other GPTs: half as much to compile


class Program(NamedTuple):
    """A step and what to call it with.

    Attributes:
        step: as a user would give it to `jax.jit`.
        args: NumPy leaves (random keys are JAX arrays).
        donate_argnums: the state's position.
        direct: which results rule (b) of `shardc.check.numerics` applies to: "all", "loss" (adam
            divides by gradient magnitudes, so that its state amplifies the order of additions), or
            "none" (bfloat16 inside).
        any_order: whether the rows of the batch may stand in any order.
        smooth: whether a rounding changes the results by little (not where it changes an argmax).
    """

    step: Callable[..., Any]
    args: tuple[Any, ...]
    donate_argnums: tuple[int, ...] = (0,)
    direct: str = "all"
    any_order: bool = True
    smooth: bool = True

    def kinds(self, names: list[str]) -> dict[str, str]:
        """Per leaf of the results (named by `leaves`) its kind for `numerics.compare`."""
        direct = {
            "all": lambda name: True,
            "loss": lambda name: name == "[1]",
            "none": lambda name: False,
        }[self.direct]
        return {name: "direct" if direct(name) else "amplified" for name in names}


def build(name: str, dtype: str = "float32", batch: int | None = None) -> Program:
    """The program called `name`, computing in `dtype`, on `batch` rows."""
    program = _built(name, dtype, BATCH if batch is None else batch)
    return program._replace(args=jax.tree.map(_copy, program.args))


@functools.cache
def _built(name: str, dtype: str, rows: int) -> Program:
    return PROGRAMS[name](dtype, rows)


def _copy(leaf: Any) -> Any:
    """A leaf that the caller may write to or donate."""
    if isinstance(leaf, np.ndarray):
        return leaf.copy()
    return jax.random.wrap_key_data(np.asarray(jax.random.key_data(leaf)))


def leaves(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a pytree by path, on the host; random keys as their bits."""
    found = {}
    for path, leaf in jax.tree.leaves_with_path(tree):
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        found[jax.tree_util.keystr(path)] = np.asarray(leaf)
    return found


def _in_dtype(tree: Any, dtype: str) -> Any:
    """Leaves on the host, the floating ones in `dtype`; random keys are left alone."""

    def convert(leaf: Any) -> Any:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return leaf
        array = np.asarray(leaf)
        return array.astype(dtype) if np.issubdtype(array.dtype, np.floating) else array

    return jax.tree.map(convert, tree)


def _random(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


# ---- small programs with SGD -------------------------------------------------------------------


def _sgd(loss_fn: Callable[[Params, Batch], jax.Array], rate: float) -> Callable[..., Any]:
    """The step that takes `rate` times the gradient off every parameter."""

    def step(params: Params, batch: Batch) -> tuple[Params, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_fn)(params, batch)
        return jax.tree.map(lambda p, g: p - rate * g, params, gradients), loss

    return step


def _mlp_args(dtype: str, rows: int) -> tuple[Any, ...]:
    widths = [32, 64, 64, 64, 64, 8]
    params = {
        f"layer{i}": {
            "w": _random(n, m, seed=i) / np.sqrt(n, dtype=np.float32),
            "b": np.zeros(m, np.float32),
        }
        for i, (n, m) in enumerate(itertools.pairwise(widths))
    }
    batch = {"x": _random(rows, 32, seed=100), "y": _random(rows, 8, seed=101)}
    args: tuple[Any, ...] = _in_dtype((params, batch), dtype)
    return args


def mlp(dtype: str, rows: int) -> Program:
    """Five dense layers with tanh, squared error, SGD."""

    def loss_fn(params: Params, batch: Batch) -> jax.Array:
        x = batch["x"]
        for i in range(4):
            x = jnp.tanh(x @ params[f"layer{i}"]["w"] + params[f"layer{i}"]["b"])
        prediction = x @ params["layer4"]["w"] + params["layer4"]["b"]
        return jnp.mean((prediction - batch["y"]) ** 2)

    return Program(_sgd(loss_fn, 0.1), _mlp_args(dtype, rows))


def mlp_batch_norm(dtype: str, rows: int) -> Program:
    """The same with batch normalisation: microbatches would change what it computes."""

    def loss_fn(params: Params, batch: Batch) -> jax.Array:
        x = batch["x"]
        for i in range(4):
            x = x @ params[f"layer{i}"]["w"]
            x = (x - jnp.mean(x, axis=0)) * jax.lax.rsqrt(jnp.var(x, axis=0) + 1e-5)
            x = jnp.tanh(x + params[f"layer{i}"]["b"])
        prediction = x @ params["layer4"]["w"] + params["layer4"]["b"]
        return jnp.mean((prediction - batch["y"]) ** 2)

    return Program(_sgd(loss_fn, 0.1), _mlp_args(dtype, rows))


def conv(dtype: str, rows: int) -> Program:
    """Five 3x3 convolutions, the last four residual with layer norm; 8 classes."""
    channels = 16
    params = {
        "stem": _random(3, 3, 8, channels, seed=0) / 8,
        "blocks": [
            {
                "kernel": _random(3, 3, channels, channels, seed=i) / 12,
                "scale": np.ones(channels, np.float32),
                "bias": np.zeros(channels, np.float32),
            }
            for i in range(1, 5)
        ],
        "head": _random(channels, 8, seed=5) / 4,
    }
    labels = np.random.default_rng(7).integers(0, 8, rows).astype(np.int32)
    batch = {"images": _random(rows, 8, 8, 8, seed=6), "labels": labels}

    def convolve(x: jax.Array, kernel: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    def loss_fn(params: Params, batch: Batch) -> jax.Array:
        x = convolve(batch["images"], params["stem"])
        for block in params["blocks"]:
            x = x + jax.nn.relu(convolve(gpt_model.layer_norm(block, x), block["kernel"]))
        logits = jnp.mean(x, axis=(1, 2)) @ params["head"]
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, batch["labels"]))

    return Program(_sgd(loss_fn, 0.1), _in_dtype((params, batch), dtype))


# ---- GPTs ---------------------------------------------------------------------------------------


@functools.cache
def _gpt_leaves(sizes: Sizes) -> Params:
    params: Params = jax.tree.map(np.asarray, gpt_model.init(jax.random.key(0), sizes))
    return params


def _gpt_params(sizes: Sizes = FEW) -> Params:
    """A tree of its own, of leaves that all share."""
    params: Params = jax.tree.map(lambda leaf: leaf, _gpt_leaves(sizes))
    return params


def _gpt_batch(rows: int) -> dict[str, np.ndarray]:
    tokens = np.random.default_rng(1).integers(0, SIZES.vocabulary, (rows, SIZES.length + 1))
    return {
        "tokens": tokens[:, :-1].astype(np.int32),
        "targets": tokens[:, 1:].astype(np.int32),
    }


def _training(
    optimizer: optax.GradientTransformation,
    loss_fn: Callable[[Params, Batch], jax.Array],
    params: Params,
    batch: dict[str, np.ndarray],
    dtype: str,
    direct: str = "loss",
) -> Program:
    """A program of `gpt_model.make_train_step`."""
    state = {"params": params, "optimizer": optimizer.init(params)}
    args = _in_dtype((state, batch), dtype)
    return Program(gpt_model.make_train_step(optimizer, loss_fn), args, direct=direct)


def _adamw() -> optax.GradientTransformation:
    return optax.adamw(1e-3)


def gpt(dtype: str, rows: int) -> Program:
    """Two layers, tied embeddings, adamw."""
    return _training(_adamw(), gpt_model.loss_fn, _gpt_params(), _gpt_batch(rows), dtype)


def gpt_sgd(dtype: str, rows: int, sizes: Sizes = SIZES) -> Program:
    """Four layers if nothing is said, momentum SGD: the program of examples/gpt.mlir."""
    optimizer = optax.sgd(0.1, momentum=0.9)
    params, batch = _gpt_params(sizes), _gpt_batch(rows)
    return _training(optimizer, gpt_model.loss_fn, params, batch, dtype, direct="all")


def gpt_clip(dtype: str, rows: int) -> Program:
    """With gradient clipping by global norm: every gradient is needed before any update."""
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), _adamw())
    return _training(optimizer, gpt_model.loss_fn, _gpt_params(), _gpt_batch(rows), dtype)


def gpt_mask(dtype: str, rows: int) -> Program:
    """With a loss mask: sum(mask) over the whole batch is the denominator."""
    batch = _gpt_batch(rows)
    batch["mask"] = np.random.default_rng(2).random(batch["tokens"].shape) < 0.7

    def loss_fn(params: Params, batch: Batch) -> jax.Array:
        logits = gpt_model.forward(params, batch["tokens"])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"])
        mask = batch["mask"].astype(losses.dtype)
        return jnp.sum(losses * mask) / jnp.sum(mask)

    return _training(_adamw(), loss_fn, _gpt_params(), batch, dtype)


def gpt_checkpoint(dtype: str, rows: int) -> Program:
    """With `jax.checkpoint` around each block."""
    block = jax.checkpoint(gpt_model.block)

    def loss_fn(params: Params, batch: Batch) -> jax.Array:
        x = gpt_model.embed(params, batch["tokens"])
        for block_params in params["blocks"]:
            x = block(block_params, x)
        logits = gpt_model.unembed(params, x)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"])
        return jnp.mean(losses)

    return _training(_adamw(), loss_fn, _gpt_params(), _gpt_batch(rows), dtype)


def gpt_bf16(dtype: str, rows: int) -> Program:
    """bfloat16 compute, float32 master weights and optimizer (in float64 no bfloat16 at all)."""
    compute = jnp.bfloat16 if dtype == "float32" else jnp.dtype(dtype)

    def loss_fn(params: Params, batch: Batch) -> jax.Array:
        low = jax.tree.map(lambda p: p.astype(compute), params)
        logits = gpt_model.forward(low, batch["tokens"]).astype(dtype)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"])
        return jnp.mean(losses)

    return _training(_adamw(), loss_fn, _gpt_params(), _gpt_batch(rows), dtype, direct="none")


def _dropout(key: jax.Array, x: jax.Array, rate: float = 0.1) -> jax.Array:
    # The bits are drawn in float32 whatever x is, so that float64 drops the same values.
    keep = jax.random.bernoulli(key, jnp.float32(1 - rate), x.shape)
    return jnp.where(keep, x / (1 - rate), 0)


def _dropout_loss(params: Params, batch: Batch, key: jax.Array) -> jax.Array:
    x = gpt_model.embed(params, batch["tokens"])
    for block, block_key in zip(params["blocks"], jax.random.split(key, FEW.layers), strict=True):
        key1, key2 = jax.random.split(block_key)
        mixed = gpt_model.attention(block, gpt_model.layer_norm(block["norm1"], x))
        x = x + _dropout(key1, mixed)
        hidden = gpt_model.mlp(block, gpt_model.layer_norm(block["norm2"], x))
        x = x + _dropout(key2, hidden)
    logits = gpt_model.unembed(params, x)
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"]))


def gpt_dropout(dtype: str, rows: int) -> Program:
    """With dropout; the random key lives in the state and is split every step."""
    optimizer, params = _adamw(), _gpt_params()

    def step(state: State, batch: Batch) -> tuple[State, jax.Array]:
        next_key, key = jax.random.split(state["key"])
        loss, gradients = jax.value_and_grad(_dropout_loss)(state["params"], batch, key)
        updates, optimizer_state = optimizer.update(gradients, state["optimizer"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, "optimizer": optimizer_state, "key": next_key}, loss

    state = {"params": params, "optimizer": optimizer.init(params), "key": jax.random.key(3)}
    args = _in_dtype((state, _gpt_batch(rows)), dtype)
    return Program(step, args, direct="loss", any_order=False)


def gpt_dropout_key_argument(dtype: str, rows: int) -> Program:
    """With dropout; the caller gives a key of the old style (uint32[2]) to each step."""
    optimizer, params = _adamw(), _gpt_params()

    def step(state: State, batch: Batch, key: jax.Array) -> tuple[State, jax.Array]:
        loss, gradients = jax.value_and_grad(_dropout_loss)(state["params"], batch, key)
        updates, optimizer_state = optimizer.update(gradients, state["optimizer"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, "optimizer": optimizer_state}, loss

    state = {"params": params, "optimizer": optimizer.init(params)}
    key = np.asarray(jax.random.PRNGKey(3))
    args = (*_in_dtype((state, _gpt_batch(rows)), dtype), key)
    return Program(step, args, direct="loss", any_order=False)


# ---- mixture of experts -------------------------------------------------------------------------


def _experts(params: Params, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Top-1 routing with capacity, one group per sequence, by one-hot einsums.

    Source: Lepikhin et al., GShard (arXiv 2006.16668), algorithm 1 with one expert per token.
    Returns the mixed tokens and the mean over groups of the load-balancing loss.
    """
    num_experts = params["router"].shape[-1]
    capacity = 2 * x.shape[1] // num_experts
    gates = jax.nn.softmax(jnp.einsum("gsd,de->gse", x, params["router"]))
    chosen = jax.nn.one_hot(jnp.argmax(gates, axis=-1), num_experts, dtype=x.dtype)
    position = (jnp.cumsum(chosen, axis=1) - 1) * chosen
    slot = jax.nn.one_hot(position.astype(jnp.int32), capacity, dtype=x.dtype)
    dispatch = slot * chosen[..., None]
    combine = dispatch * gates[..., None]
    tokens = jnp.einsum("gsec,gsd->egcd", dispatch, x)
    hidden = jax.nn.relu(jnp.einsum("egcd,edf->egcf", tokens, params["up"]))
    mixed = jnp.einsum("egcf,efd->egcd", hidden, params["down"])
    balance = jnp.mean(chosen, axis=1) * jnp.mean(gates, axis=1) * num_experts
    return jnp.einsum("gsec,egcd->gsd", combine, mixed), jnp.mean(jnp.sum(balance, axis=-1))


def moe(dtype: str, rows: int, sizes: Sizes = FEW) -> Program:
    """A GPT whose MLPs are eight experts each."""
    experts, hidden = 8, 64
    params = _gpt_params(sizes)
    for i, block in enumerate(params["blocks"]):
        for name in ("up", "up_bias", "down", "down_bias"):
            del block[name]
        block["router"] = jnp.asarray(_random(SIZES.width, experts, seed=10 + i) / 8)
        block["up"] = jnp.asarray(_random(experts, SIZES.width, hidden, seed=20 + i) / 8)
        block["down"] = jnp.asarray(_random(experts, hidden, SIZES.width, seed=30 + i) / 8)

    def loss_fn(params: Params, batch: Batch) -> jax.Array:
        x = gpt_model.embed(params, batch["tokens"])
        balance = jnp.zeros((), x.dtype)
        for block in params["blocks"]:
            x = x + gpt_model.attention(block, gpt_model.layer_norm(block["norm1"], x))
            mixed, block_balance = _experts(block, gpt_model.layer_norm(block["norm2"], x))
            x, balance = x + mixed, balance + block_balance
        logits = gpt_model.unembed(params, x)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"])
        return jnp.mean(losses) + 0.01 * balance

    program = _training(_adamw(), loss_fn, params, _gpt_batch(rows), dtype)
    return program._replace(smooth=False)


PROGRAMS: dict[str, Callable[[str, int], Program]] = {
    "mlp": mlp,
    "gpt": gpt,
    "gpt_sgd": gpt_sgd,
    "gpt_clip": gpt_clip,
    "gpt_mask": gpt_mask,
    "gpt_dropout": gpt_dropout,
    "gpt_dropout_key_argument": gpt_dropout_key_argument,
    "gpt_bf16": gpt_bf16,
    "gpt_checkpoint": gpt_checkpoint,
    "moe": moe,
    "conv": conv,
    "mlp_batch_norm": mlp_batch_norm,
}

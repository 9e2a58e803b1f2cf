"""The programs of `schedules.py`: GPTs, an encoder-decoder, experts, a U-Net, all in float64."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import encoder_decoder
from tests.py import programs
from tests.py.programs import Program
from tests.py.scanned_gpt import scanned_gpt

ROWS = programs.BATCH


def _float64(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.astype(np.float64), tree)


def _descent(loss_of: Callable[[Any, Any], jax.Array], params: Any, batch: Any) -> Program:
    """One step of gradient descent."""

    def step(params: Any, batch: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(params, batch)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), loss

    return Program(step, (params, batch))


def seq2seq() -> Program:
    """A Transformer: every layer of its decoder attends to what the last of its encoder made."""
    width, length, vocabulary, layers = 32, 8, 64, 3
    params = _float64(encoder_decoder.parameters(width, vocabulary, layers))
    draw = np.random.default_rng(1)
    words = ("source", "tokens", "targets")
    batch = {name: draw.integers(0, vocabulary, (ROWS, length)).astype(np.int32) for name in words}
    return _descent(encoder_decoder.loss, params, batch)


SIDE, COLOURS, CHANNELS = 8, 3, (8, 16, 16)  # images of a U-Net; channels from fine to coarse


def _convolved(x: jax.Array, kernel: jax.Array, stride: int = 1) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _unet_block(block: Any, x: jax.Array, level: jax.Array) -> jax.Array:
    """Residual: normalised over an image and its channels, told the level of noise, convolved."""
    mean = x.mean((1, 2, 3), keepdims=True)
    h = (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean((1, 2, 3), keepdims=True) + 1e-5)
    h = h * block["scale"] + (level @ block["level"])[:, None, None, :]
    return _convolved(x, block["skip"]) + _convolved(jax.nn.silu(h), block["kernel"])


def _unet_loss(params: Any, batch: Any) -> jax.Array:
    """How far the noise that it sees in `images` is from the noise added to them."""
    level = jnp.tanh(batch["level"][:, None] * params["level"])
    x = _convolved(batch["images"], params["stem"])
    seen = []
    for block, down in zip(params["down"], params["halve"], strict=True):
        x = _unet_block(block, x, level)
        seen.append(x)
        x = _convolved(x, down, stride=2)
    x = _unet_block(params["middle"], x, level)
    for block, up in zip(params["up"], params["double"], strict=True):
        x = _convolved(jnp.repeat(jnp.repeat(x, 2, 1), 2, 2), up)
        x = _unet_block(block, jnp.concatenate([x, seen.pop()], -1), level)
    return jnp.mean((_convolved(x, params["head"]) - batch["noise"]) ** 2)


def unet() -> Program:
    """A convolutional U-Net that removes noise: each level up also reads that on the way down."""
    draw = np.random.default_rng(2)

    def kernel(size: int, inward: int, outward: int) -> np.ndarray:
        shape = (size, size, inward, outward)
        return draw.normal(size=shape) / np.sqrt(size * size * inward)

    def block(inward: int, outward: int) -> Any:
        return {
            "scale": np.ones(inward),
            "level": draw.normal(size=(8, inward)) / 3,
            "kernel": kernel(3, inward, outward),
            "skip": kernel(1, inward, outward),
        }

    fine, *_, coarse = CHANNELS
    inward = (fine, *CHANNELS[:-1])
    levels = list(zip(inward, CHANNELS, strict=True))
    params = {
        "level": draw.normal(size=8),
        "stem": kernel(3, COLOURS, fine),
        "down": [block(a, b) for a, b in levels],
        "halve": [kernel(3, b, b) for _, b in levels],
        "middle": block(coarse, coarse),
        "double": [kernel(3, b, b) for _, b in reversed(levels)],
        "up": [block(2 * b, a) for a, b in reversed(levels)],
        "head": kernel(3, fine, COLOURS),
    }
    images, noise = (draw.normal(size=(ROWS, SIDE, SIDE, COLOURS)) for _ in range(2))
    batch = {"images": images, "noise": noise, "level": draw.random(ROWS)}
    return _descent(_unet_loss, params, batch)


MADE: dict[str, Callable[[], Program]] = {
    "gpt4": lambda: programs.build("gpt_sgd", "float64"),
    "gpt8": lambda: programs.gpt_sgd("float64", ROWS, programs.Sizes(layers=8)),
    "scanned_gpt": lambda: scanned_gpt(layers=8, dtype=jnp.float64),
    "encoder_decoder": seq2seq,
    "moe": lambda: programs.moe("float64", ROWS, programs.SIZES),
    "unet": unet,
}

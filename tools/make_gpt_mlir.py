"""Writes examples/gpt.mlir: the training step of a GPT as `jax.jit(...).lower(...).as_text()`.

The step is that of examples/gpt_model.py with momentum SGD, its state donated. The text depends on
the release of jax, so this is run by hand, from the root of the repository:

    python tools/make_gpt_mlir.py
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import optax

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from examples.gpt_model import Sizes, init, make_train_step  # noqa: E402  (needs the path above)

BATCH = 16


def gpt_text(sizes: Sizes, batch: int) -> str:
    """StableHLO text of one training step on `batch` sequences."""
    optimizer = optax.sgd(0.1, momentum=0.9)
    params = jax.eval_shape(lambda key: init(key, sizes), jax.random.key(0))
    state = {"params": params, "optimizer": jax.eval_shape(optimizer.init, params)}
    tokens = jax.ShapeDtypeStruct((batch, sizes.length), jnp.int32)
    step = jax.jit(make_train_step(optimizer), donate_argnums=0)
    return step.lower(state, {"tokens": tokens, "targets": tokens}).as_text()


if __name__ == "__main__":
    path = ROOT / "examples" / "gpt.mlir"
    path.write_text(gpt_text(Sizes(), BATCH))
    print(f"wrote {path.relative_to(ROOT)} with jax {jax.__version__}")

"""The main job: train a small GPT for five steps with shardc.jit, beside jax.jit.

The model (gpt_model.py) knows nothing of parallelism. The cluster file says what there is: two
nodes of four devices, a slow link between them, and too little memory on each device to hold the
training state. Stages, meshes, shardings and microbatches are shardc's choice.

Run it by `make demo`; it uses 8 virtual CPU devices and needs no GPU.
"""

import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from gpt_model import Sizes, init, make_train_step

import shardc

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)  # before anything starts the backend

STEPS = 5
SIZES = Sizes(vocabulary=512, length=64, width=256, heads=8, hidden=1024, layers=4)
BATCH = 32


def batches() -> list[dict[str, np.ndarray]]:
    """Seeded token sequences with some structure to learn."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(STEPS):
        start = rng.integers(0, SIZES.vocabulary, (BATCH, 1))
        text = ((start + 3 * np.arange(SIZES.length + 1)) % SIZES.vocabulary).astype(np.int32)
        found.append({"tokens": text[:, :-1], "targets": text[:, 1:]})
    return found


def bytes_per_device(tree: object) -> list[int]:
    """Bytes of a pytree's arrays on each device."""
    held = dict.fromkeys(jax.devices(), 0)
    for leaf in jax.tree.leaves(tree):
        for shard in leaf.addressable_shards:
            held[shard.device] += shard.data.nbytes
    return list(held.values())


def largest_difference(tree: object, reference: object) -> float:
    """Largest difference of any leaf, relative to the leaf's largest magnitude."""

    def one(a: jax.Array, b: jax.Array) -> float:
        x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
        return float(np.max(np.abs(x - y)) / max(np.max(np.abs(y)), 1e-30))

    return max(jax.tree.leaves(jax.tree.map(one, tree, reference)))


def main() -> None:
    optimizer = optax.adamw(1e-3)
    train_step = make_train_step(optimizer)

    def fresh_state() -> dict[str, object]:
        params = init(jax.random.key(0), SIZES)
        return {"params": params, "optimizer": optimizer.init(params)}

    data = batches()
    cluster = Path(__file__).parent / "two_nodes.json"
    step = shardc.jit(train_step, donate_argnums=0, cluster=str(cluster))

    start_s = time.perf_counter()
    planned = step.lower(fresh_state(), data[0]).plan()
    print(planned.explain())
    print(f"planned in {time.perf_counter() - start_s:.1f} s\n", flush=True)

    reference = jax.jit(train_step, donate_argnums=0)
    state, expected = fresh_state(), fresh_state()
    whole = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    print(f"{'step':>4} {'shardc.jit':>12} {'jax.jit':>12} {'difference':>12}")
    worst = 0.0
    for i, batch in enumerate(data):
        state, loss = step(state, batch)
        expected, expected_loss = reference(expected, batch)
        difference = abs(float(loss) - float(expected_loss))
        worst = max(worst, difference / abs(float(expected_loss)))
        print(f"{i:>4} {float(loss):>12.6f} {float(expected_loss):>12.6f} {difference:>12.2e}")
    print(f"\nlargest relative difference of a loss: {worst:.2e}")
    print(
        f"largest relative difference of a state leaf: {largest_difference(state, expected):.2e}"
        " (adam divides noise by noise where a gradient vanishes; in float64 it is below 1e-9)"
    )
    held = bytes_per_device(state)
    print(
        f"parameters and optimizer state: {whole / 2**20:.1f} MiB;"
        f" per device {', '.join(f'{b / 2**20:.1f}' for b in held)} MiB"
        f" ({max(held) / whole * len(held):.2f} x an even eighth at most)"
    )
    assert jnp.isfinite(loss)
    if worst > 1e-5:
        sys.exit(f"the losses differ by {worst:.1e}, more than 1e-5")


if __name__ == "__main__":
    main()

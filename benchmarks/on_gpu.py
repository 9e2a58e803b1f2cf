"""Training steps by `shardc.jit` on one GPU, beside `jax.jit`: numbers, time, and the prediction.

    JAX_PLATFORMS=cuda,cpu python benchmarks/on_gpu.py [--programs gpt-350m,mlp]
        [--cluster FILE] [-o FILE.jsonl]

Each program is a process of its own. Its step is compiled by `jax.jit`, and by `shardc.jit` in one
and in several microbatches, and all take turns on one state, which they donate. A turn runs the
step once more to warm up, then `--repeat` times without waiting in between, as a training loop
does. Per variant: the median over the turns, its ratio to `jax.jit`'s in the same turn, the step
time that shardc predicts, and how far loss and gradients are from those of `jax.jit` with float32
products of the highest precision (of the leaf that is furthest off, by norms; the gradients are
read from the state). `jax.jit`'s own errors say how much of that is rounding.

Predictions are made for the built-in cluster of the GPU's name, cut down to one device, and again
for `--cluster`, which `shardc calibrate` may have measured on the same device.
"""

import argparse
import datetime
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import hand_made  # sets the platform unless JAX_PLATFORMS says otherwise
import jax
import jax.numpy as jnp
import measured_gpt
import msgspec
import numpy as np

import shardc
from shardc.cluster import Cluster

Row = dict[str, Any]
Step = Callable[[Any, Any], tuple[Any, jax.Array]]


@dataclass(frozen=True)
class Case:
    """A training step with its first arguments; `gradients` are read from the next state."""

    step: Step
    state: Callable[[], Any]
    batch: Any
    gradients: Callable[[Any, Any], Any]
    microbatches: tuple[int, ...] = (1, 4)


def gpt(layers: int, hidden: int, heads: int, batch: int, recompute: str) -> Case:
    """The GPT of the measured runs on one device: bfloat16 products, Adam in float32."""
    sizes = measured_gpt.Gpt(
        layers, hidden, heads, 1024, batch, tensor=1, data=1, recompute=recompute, dropout=0.0
    )
    step, (shapes, _), _ = measured_gpt.step_of(sizes)

    def state() -> Any:
        keys = iter(jax.random.split(jax.random.key(0), len(jax.tree.leaves(shapes["params"]))))

        def normal(path: Any, leaf: Any) -> jax.Array:
            if "scale" in str(path):
                return jnp.ones(leaf.shape, leaf.dtype)
            return 0.02 * jax.random.normal(next(keys), leaf.shape, leaf.dtype)

        params = jax.tree_util.tree_map_with_path(normal, shapes["params"])
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes["m"])
        return {"params": params, "m": zeros, "v": jax.tree.map(jnp.copy, zeros)}

    tokens = np.random.default_rng(0).integers(0, sizes.vocabulary, (batch, 1025), np.int32)
    return Case(
        step,
        state,
        {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]},
        lambda before, after: jax.tree.map(lambda m: 10 * m, after["m"]),
    )


def by_hand(name: str, scale: int) -> Case:
    """A program of `hand_made.py`: float32, which GPUs multiply as TF32, and plain descent."""
    program = hand_made.PROGRAMS[name](scale)
    return Case(
        program.step,
        lambda: jax.tree.map(jnp.asarray, program.params),
        program.batch,
        lambda before, after: jax.tree.map(lambda p, q: (p - q) / 0.01, before, after),
    )


CASES: dict[str, Callable[[], Case]] = {
    "gpt-124m": lambda: gpt(12, 768, 12, 16, "none"),
    "gpt-350m": lambda: gpt(24, 1024, 16, 16, "selective"),
    "gpt-1.3b": lambda: gpt(24, 2048, 16, 16, "selective"),
    "gpt-2.7b": lambda: gpt(32, 2560, 32, 16, "full"),
    "mlp": lambda: by_hand("mlp", 64),
    "conv": lambda: by_hand("conv", 16),
    "moe": lambda: by_hand("moe", 64),
    "seq2seq": lambda: by_hand("seq2seq", 12),
    "small": lambda: by_hand("gpt", 2),
}
LISTED = tuple(name for name in CASES if name != "small")


def apart(got: Any, expected: Any) -> float:
    """The largest relative error of a leaf, by norms."""
    errors = jax.tree.map(
        lambda a, b: float(jnp.linalg.norm((a - b).ravel()) / jnp.linalg.norm(b.ravel())),
        got,
        expected,
    )
    return max(jax.tree.leaves(errors))


def exact(name: str, batch: Any) -> Step:
    """The program's step by `jax.jit`, all of it in float32."""
    with (
        mock.patch.object(measured_gpt, "HALF", jnp.float32),
        jax.default_matmul_precision("highest"),
    ):
        case = CASES[name]()
        step = jax.jit(case.step, donate_argnums=0)
        return step.lower(jax.eval_shape(case.state), batch).compile()


def first_step(case: Case, run: Step, batch: Any) -> tuple[float, Any]:
    """Loss and gradients of a step on the first state."""
    state = case.state()
    before = jax.tree.map(jnp.copy, state)
    after, loss = run(state, batch)
    return float(loss), case.gradients(before, after)


def timed(run: Step, state: Any, batch: Any, repeat: int) -> tuple[float, Any]:
    """Seconds of a step, and the state behind the last one."""
    state, loss = run(state, batch)
    jax.block_until_ready((state, loss))
    start_s = time.perf_counter()
    for _ in range(repeat):
        state, loss = run(state, batch)
    jax.block_until_ready((state, loss))
    return (time.perf_counter() - start_s) / repeat, state


def measure(name: str, clusters: dict[str, Cluster], turns: int, repeat: int) -> Row:
    """The row of a program."""
    case = CASES[name]()
    batch = jax.tree.map(jnp.asarray, case.batch)
    start_s = time.perf_counter()
    lowered = jax.jit(case.step, donate_argnums=0).lower(jax.eval_shape(case.state), batch)
    reference = lowered.compile()
    variants: dict[str, Step] = {"jax.jit": reference}
    rows: dict[str, Row] = {"jax.jit": {"compile_s": time.perf_counter() - start_s}}
    for count in case.microbatches:
        title = f"shardc.jit, {count}"
        predicted, row = {}, {}
        for made_for, cluster in clusters.items():
            start_s = time.perf_counter()
            asked: Any = {"stages": 1, "microbatches": count, "donate_argnums": 0}
            step = shardc.jit(case.step, cluster=cluster, **asked)
            planned = step.lower(jax.eval_shape(case.state), batch).plan()
            row["plan_s"] = time.perf_counter() - start_s
            predicted[made_for] = planned.plan.predicted.step_time_s
            row["predicted_peak_bytes"] = planned.plan.predicted.peak_bytes_per_device
        start_s = time.perf_counter()
        variants[title] = planned.compile()
        rows[title] = {
            **row,
            "predicted_s": predicted,
            "compile_s": time.perf_counter() - start_s,
            "ran": [planned.plan.num_stages, planned.plan.num_microbatches],
            "notes": [note.code for note in planned.plan.notes],
        }
    expected_loss, expected = first_step(case, exact(name, batch), batch)
    for title, run in variants.items():
        loss, gradients = first_step(case, run, batch)
        rows[title]["loss"] = loss
        rows[title]["loss_error"] = abs(loss / expected_loss - 1)
        rows[title]["gradient_error"] = apart(gradients, expected)
        del gradients
    del expected
    state = case.state()
    taken: dict[str, list[float]] = {title: [] for title in variants}
    for _ in range(turns):
        for title, run in variants.items():
            seconds, state = timed(run, state, batch, repeat)
            taken[title].append(seconds)
    for title, seconds in taken.items():
        rows[title]["step_s"] = statistics.median(seconds)
        ratios = [a / b for a, b in zip(seconds, taken["jax.jit"], strict=True)]
        rows[title]["over_jax_jit"] = statistics.median(ratios)
        rows[title]["spread"] = max(seconds) / min(seconds) - 1
    return {
        "program": name,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "jax": jax.__version__,
        "device": jax.local_devices()[0].device_kind,
        "variants": rows,
    }


def text(row: Row) -> str:
    """Lines of a row for the terminal."""
    lines = [f"{row['program']} on {row['device']}, jax {row['jax']}"]
    for title, each in row["variants"].items():
        line = f"  {title:15} {1e3 * each['step_s']:9.2f} ms {each['over_jax_jit']:7.3f}"
        line += f"  loss {each['loss_error']:.1e}, gradients {each['gradient_error']:.1e}"
        if "predicted_s" in each:
            predicted = ", ".join(
                f"{name} {1e3 * s:.2f} ms ({s / each['step_s']:.2f})"
                for name, s in each["predicted_s"].items()
            )
            line += f"  predicted: {predicted}"
        lines.append(line)
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", default=",".join(LISTED))
    parser.add_argument("--cluster", type=Path, help="predict for this one, too")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--here", action="store_true", help="one program, in this process")
    parser.add_argument("-o", "--output", type=Path, help="a row of JSON per program is added")
    asked = parser.parse_args()
    names = asked.programs.split(",")
    if not asked.here:
        failed = 0
        for name in names:
            command = [sys.executable, *sys.argv, "--programs", name, "--here"]
            failed += subprocess.run(command, check=False).returncode != 0
        return int(failed > 0)
    clusters = {"built-in": Cluster.local()}
    if asked.cluster is not None:
        clusters["calibrated"] = Cluster.load(asked.cluster).with_devices(1)
    row = measure(names[0], clusters, asked.turns, asked.repeat)
    print(text(row), flush=True)
    if asked.output is not None:
        with asked.output.open("ab") as out:
            out.write(msgspec.json.encode(row) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

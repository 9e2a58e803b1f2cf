"""Runs families of schedules on programs of several kinds, beside `jax.jit`, on 8 virtual devices.

    python -m benchmarks.schedules [--family zb-v ...] [--program gpt8 ...] [--out FILE]
                                   [--cache FOLDER]

One line per pair: the largest error of a leaf in float64, or the refusal; and what is predicted.
What families share is compiled once, by JAX's cache; --cache keeps it for the next run, so that
the families can be run in parts. --out appends rows of JSON.
Ends with 1 if a pair differs by more than 1e-9 of a leaf's largest magnitude.
"""

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import shardc
from shardc.errors import ShardcError
from shardc.schedule.registry import built_in
from tests.py import programs
from tests.py.scanned_gpt import scanned_gpt
from tests.py.table import CLUSTER

LIMIT = 1e-9
WIDTH, DEPTH, ROWS = 32, 4, 16


def _weights(count: int) -> list[Any]:
    draw = np.random.default_rng(0)
    return [draw.normal(size=(WIDTH, WIDTH)) / np.sqrt(WIDTH) for _ in range(count)]


def _step(loss_of: Callable[..., Any], count: int) -> programs.Program:
    """One step of gradient descent on `count` square weights and two inputs."""

    def step(weights: list[Any], x: Any, t: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(weights, x, t)
        return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)], loss

    draw = np.random.default_rng(1)
    x, t = (draw.normal(size=(ROWS, WIDTH)) for _ in range(2))
    return programs.Program(step, (_weights(count), x, t))


def unet() -> programs.Program:
    """Layers down, layers up; each layer up also reads what its opposite layer down has made."""

    def loss_of(weights: list[Any], x: Any, t: Any) -> Any:
        down, up = weights[:DEPTH], weights[DEPTH:]
        made = [x]
        for w in down:
            made.append(jnp.tanh(made[-1] @ w))
        h = made.pop()
        for w in up:
            h = jnp.tanh(h @ w) + made.pop()
        return jnp.mean((h - t) ** 2)

    return _step(loss_of, 2 * DEPTH)


def encoder_decoder() -> programs.Program:
    """Layers over one input, then layers over another of which each reads what the first gave."""

    def loss_of(weights: list[Any], x: Any, t: Any) -> Any:
        memory = x
        for w in weights[:DEPTH]:
            memory = jnp.tanh(memory @ w)
        h = t
        for w, cross in itertools.batched(weights[DEPTH:], 2):
            h = jnp.tanh(h @ w + memory @ cross)
        return jnp.mean((h - t) ** 2)

    return _step(loss_of, 3 * DEPTH)


def gpt8() -> programs.Program:
    """The tests' GPT with eight layers."""
    four = programs.SIZES
    try:
        programs.SIZES = programs.Sizes(layers=8)
        return programs.gpt_sgd("float64", programs.BATCH)  # `build` keeps that of four layers
    finally:
        programs.SIZES = four


PROGRAMS: dict[str, Callable[[], programs.Program]] = {
    "gpt4": lambda: programs.build("gpt_sgd", "float64"),
    "gpt8": gpt8,
    "scanned_gpt": lambda: scanned_gpt(layers=8, dtype=jnp.float64),
    "encoder_decoder": encoder_decoder,
    "moe": lambda: programs.build("moe", "float64"),
    "unet": unet,
}


def worst_error(program: programs.Program, compiled: Any) -> float:
    """The largest error of a result, as a share of its largest magnitude."""
    expected = programs.leaves(jax.jit(program.step)(*program.args))
    got = programs.leaves(compiled(*program.args))
    return max(
        float(np.max(np.abs(got[key] - value), initial=0) / np.max(np.abs(value), initial=1e-30))
        for key, value in expected.items()
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    families = [name for name, family in built_in().items() if not family.moves]
    parser.add_argument("--family", nargs="*", default=families)
    parser.add_argument("--program", nargs="*", default=list(PROGRAMS), choices=list(PROGRAMS))
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--microbatches", type=int, default=4)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--cache", type=Path)
    asked = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", 8)
    jax.config.update("jax_enable_x64", True)
    with tempfile.TemporaryDirectory() as passing:
        jax.config.update("jax_compilation_cache_dir", str(asked.cache or passing))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        pairs = itertools.product(asked.program, asked.family)
        rows = (row(name, family, asked.stages, asked.microbatches) for name, family in pairs)
        return max([_told(each, asked.out) for each in rows], default=0)


def _told(found: dict[str, Any], out: Path | None) -> int:
    """Prints a row, and appends it to a file; 1 if the numbers differ."""
    head = f"{found['program']:16} {found['schedule']:22}"
    if "refused" in found:
        print(f"{head} refused {found['refused']}: {found['why']}", flush=True)
    else:
        print(
            f"{head} error {found['error']:.1e}  {1e3 * found['step_time_s']:8.4g} ms"
            f"  {found['idle']:5.1%} idle  {found['peak_bytes']:,} bytes",
            flush=True,
        )
    if out is not None:
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")
    return int(found.get("error", 0.0) > LIMIT)


def row(name: str, family: str, stages: int, microbatches: int) -> dict[str, Any]:
    """One program with one schedule."""
    found = {
        "program": name,
        "schedule": family,
        "stages": stages,
        "microbatches": microbatches,
    }
    program = PROGRAMS[name]()
    step = shardc.jit(
        program.step,
        cluster=CLUSTER,
        stages=stages,
        microbatches=microbatches,
        schedule=family,
        mesh=(1,),
        time_limit_s=20,
    )
    try:
        planned = step.lower(*program.args).plan()
        error = worst_error(program, planned.compile())
    except ShardcError as refusal:
        return found | {"refused": refusal.code, "why": refusal.message}
    predicted = planned.plan.predicted
    return found | {
        "error": error,
        "step_time_s": predicted.step_time_s,
        "idle": predicted.bubble_fraction,
        "peak_bytes": predicted.peak_bytes_per_device,
        "num_replicas": planned.plan.num_replicas,
    }


if __name__ == "__main__":
    sys.exit(main())

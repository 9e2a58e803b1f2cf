"""Plans that people make by hand, beside shardc's own.

    python benchmarks/hand_made.py                         predicted, six programs on six meshes
    python benchmarks/hand_made.py --run --meshes 8        compiled and run, too (small sizes)
    python benchmarks/hand_made.py --programs mlp,moe --format json -o hand_made.json

A hand-made plan fixes where parameters and batch lie, as its paper says, and leaves all else to the
same planner, which makes the best of it:

data      parameters whole, the batch split over all devices
fsdp      parameters and batch split over all devices
megatron  columns and rows of weights split over all devices, the batch whole
2-d       the batch over the first axis, columns and rows over the others (meshes of several axes)

The ratio is predicted step time over that of shardc's free plan: below 1 shardc would have missed a
better plan that it can express. With --run each plan is compiled for 8 virtual CPU devices (and
predicted for them, unless --cluster says otherwise): FLOPs and bytes of collectives as XLA has
them, peak memory beside the predicted one, and the median time of a step; and how the plans of a
program on a mesh rank by each (Spearman's correlation with the prediction). Virtual devices share
the cores: measured times say little about real ones.
"""

import argparse
import datetime
import itertools
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

import encoder_decoder
import gpt_model
import jax
import jax.numpy as jnp
import numpy as np
from encoder_decoder import normal
from jax.sharding import PartitionSpec as P

import shardc
from shardc.errors import InfeasibleError
from shardc.importer.requested_shardings import matches
from tests.py.hlo_text import hlo_collectives

MESHES = ((8,), (2, 4), (4, 2), (2, 2, 2), (4,), (2, 2))
AXES = ("x", "y", "z")
RANKED_BY = {
    "XLA's FLOPs": "xla_flops",
    "collective bytes": "xla_collective_bytes",
    "step time": "step_s",
}
Row = dict[str, Any]


@dataclass(frozen=True)
class Program:
    """A training step, its arguments, and what of its parameters Megatron's plan splits.

    Attributes:
        columns: patterns of parameters -> the dim that is split.
    """

    step: Callable[..., Any]
    params: Any
    batch: Any
    columns: dict[str, int]


def descent(loss: Callable[[Any, Any], jax.Array]) -> Callable[..., Any]:
    def step(params: Any, batch: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, batch)
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, gradients), value

    return step


def mlp(scale: int) -> Program:
    width, rows = 64 * scale, 128 * scale
    params = [{"up": normal(width, 4 * width), "down": normal(4 * width, width)} for _ in range(4)]

    def loss(params: Any, x: jax.Array) -> jax.Array:
        h = x
        for layer in params:
            h = jax.nn.relu(h @ layer["up"]) @ layer["down"]
        return jnp.mean((h - x) ** 2)

    return Program(descent(loss), params, normal(rows, width), {"*.up": 1, "*.down": 0})


def gpt(scale: int) -> Program:
    width = 64 * scale
    sizes = gpt_model.Sizes(
        vocabulary=512 * scale, length=32 * scale, width=width, heads=8, hidden=4 * width, layers=2
    )
    params = jax.tree.map(np.asarray, gpt_model.init(jax.random.key(0), sizes))
    tokens = np.random.default_rng(0).integers(0, sizes.vocabulary, (16, sizes.length + 1))
    tokens = tokens.astype(np.int32)
    batch = {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}
    columns = {
        **{f"*.{name}": 1 for name in ("query", "key", "value", "up")},
        **{f"*.{name}": 0 for name in ("out", "down", "up_bias", "embedding")},
    }
    return Program(descent(gpt_model.loss_fn), params, batch, columns)


def moe(scale: int) -> Program:
    width, experts, rows, capacity = 32 * scale, 16, 16, 2
    params = {
        "dense": normal(width, width),
        "up": normal(experts, width, 2 * width),
        "down": normal(experts, 2 * width, width),
    }
    batch = {"x": normal(rows, 32, width), "to": normal(rows, 32, experts, capacity)}

    def loss(params: Any, batch: Any) -> jax.Array:
        h = jax.nn.relu(batch["x"] @ params["dense"])
        sent = jnp.einsum("gsec,gsh->egch", batch["to"], h)
        sent = jax.nn.relu(jnp.einsum("egch,ehf->egcf", sent, params["up"]))
        got = jnp.einsum("egcf,efh->egch", sent, params["down"])
        return jnp.mean(jnp.einsum("gsec,egch->gsh", batch["to"], got) ** 2)

    return Program(descent(loss), params, batch, {"up": 0, "down": 0})


def conv(scale: int) -> Program:
    channels, rows = 16 * scale, 16
    kernels = {f"k{i}": normal(3, 3, channels, channels) for i in range(4)}
    numbers = ("NHWC", "HWIO", "NHWC")

    def loss(params: Any, x: jax.Array) -> jax.Array:
        h = x
        for i in range(4):
            h = jax.lax.conv_general_dilated(
                h, params[f"k{i}"], (1, 1), "SAME", dimension_numbers=numbers
            )
            h = jax.nn.relu(h)
        return jnp.mean((h - x) ** 2)

    columns = {f"k{i}": 3 - i % 2 for i in range(4)}
    return Program(descent(loss), kernels, normal(rows, 16, 16, channels), columns)


def dlrm(scale: int) -> Program:
    rows, tables, entries, width = 128, 4, 1024 * scale, 16 * scale
    params = {
        "tables": [normal(entries, width) for _ in range(tables)],
        "up": normal((tables + 1) * width, 64 * scale),
        "down": normal(64 * scale, 8),
        "dense": normal(16, width),
    }
    ids = np.random.default_rng(0).integers(0, entries, (rows, tables)).astype(np.int32)
    batch = {"ids": ids, "x": normal(rows, 16)}

    def loss(params: Any, batch: Any) -> jax.Array:
        found = [table[batch["ids"][:, i]] for i, table in enumerate(params["tables"])]
        h = jnp.concatenate([*found, batch["x"] @ params["dense"]], axis=1)
        return jnp.mean((jax.nn.relu(h @ params["up"]) @ params["down"]) ** 2)

    return Program(descent(loss), params, batch, {"tables.*": 0, "up": 1, "down": 0})


def seq2seq(scale: int) -> Program:
    width, vocabulary = 64 * scale, 256 * scale
    ids = np.random.default_rng(0).integers(0, vocabulary, (16, 65)).astype(np.int32)
    batch = {"source": ids[:, :48], "tokens": ids[:, :-1], "targets": ids[:, 1:]}
    params = encoder_decoder.parameters(width, vocabulary, layers=2)
    return Program(descent(encoder_decoder.loss), params, batch, encoder_decoder.COLUMNS)


PROGRAMS = {"mlp": mlp, "gpt": gpt, "moe": moe, "conv": conv, "dlrm": dlrm, "seq2seq": seq2seq}


def on_dim(dim: int, axes: tuple[str, ...]) -> P:
    return P(*[None] * dim, axes)


def divides(size: int, axes: tuple[str, ...], mesh: dict[str, int]) -> bool:
    return size % math.prod(mesh[axis] for axis in axes) == 0


def by_hand(program: Program, mesh: dict[str, int]) -> dict[str, dict[str, P]]:
    """Name of a plan -> patterns of arguments -> how they lie."""
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(program.params)]
    leaves = dict(zip(names, jax.tree.leaves(program.params), strict=True))
    batch = [f"batch{jax.tree_util.keystr(p)}" for p, _ in jax.tree.leaves_with_path(program.batch)]
    every = tuple(mesh)

    def largest(leaf: np.ndarray) -> P:
        fit = [d for d, size in enumerate(leaf.shape) if divides(size, every, mesh)]
        return on_dim(max(fit, key=lambda d: leaf.shape[d]), every) if fit else P()

    def split(axes: tuple[str, ...]) -> dict[str, P]:
        found = {f"params{name}": P() for name in names}
        for pattern, dim in program.columns.items():
            for name, leaf in leaves.items():
                fits = matches(pattern, f"params{name}")
                if fits and divides(leaf.shape[dim], axes, mesh):
                    found[f"params{name}"] = on_dim(dim, axes)
        return found

    plans = {
        "data": {f"params{n}": P() for n in names} | dict.fromkeys(batch, P(every)),
        "fsdp": {f"params{n}": largest(x) for n, x in leaves.items()}
        | dict.fromkeys(batch, P(every)),
        "megatron": split(every) | dict.fromkeys(batch, P()),
    }
    if len(mesh) > 1:
        plans["2-d"] = split(every[1:]) | dict.fromkeys(batch, P(every[:1]))
    return plans


def planned(program: Program, cluster: str, mesh: dict[str, int], shardings: dict[str, P]) -> Any:
    step = shardc.jit(
        program.step,
        donate_argnums=0,
        cluster=cluster,
        devices=jax.devices(),
        stages=1,
        microbatches=1,
        mesh=mesh,
        shardings=shardings,
    )
    return step.lower(program.params, program.batch).plan()


def measured(program: Program, plan: Any, rounds: int) -> dict[str, Any]:
    """What XLA's programs have, and how long a step takes."""
    compiled = plan.compile()
    texts = compiled.hlo_texts().values()
    flops = sum(float(each["flops"]) for each in compiled.cost_analysis().values())
    sent = sum(sum(hlo_collectives(text).values()) for text in texts)
    sizes = compiled.memory_analysis().values()
    peak = max(
        m.argument_size_in_bytes
        + m.output_size_in_bytes
        - m.alias_size_in_bytes
        + m.temp_size_in_bytes
        for m in sizes
    )
    state = jax.tree.map(jnp.asarray, program.params)
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        state, loss = compiled(state, program.batch)
        jax.block_until_ready((state, loss))
        times.append(time.perf_counter() - start)
    return {
        "xla_flops": flops,
        "xla_collective_bytes": sent,
        "xla_peak_bytes": peak,
        "step_s": statistics.median(times[1:]),
    }


def ranks(values: list[float]) -> list[float]:
    order = sorted(values)
    return [order.index(v) + (order.count(v) - 1) / 2 for v in values]


def spearman(one: list[float], other: list[float]) -> float | None:
    """Rank correlation; None where one of them has no order."""
    a, b = np.array(ranks(one)), np.array(ranks(other))
    if a.std() == 0 or b.std() == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def correlations(rows: list[Row]) -> dict[str, float | None]:
    """How the prediction ranks the plans of one program on one mesh, against each measure."""
    full = [row for row in rows if "step_s" in row]
    by = [row["predicted_s"] for row in full]
    if len(full) < 3:
        return {}
    return {word: spearman(by, [row[field] for row in full]) for word, field in RANKED_BY.items()}


def compare(name: str, shape: tuple[int, ...], options: argparse.Namespace) -> list[Row]:
    """One row per plan of a program on a mesh."""
    program = PROGRAMS[name](options.scale)
    mesh = dict(zip(AXES, shape, strict=False))
    rows: list[Row] = []
    for plan, shardings in {"shardc": {}, **by_hand(program, mesh)}.items():
        row: Row = {"program": name, "mesh": "x".join(map(str, shape)), "plan": plan}
        try:
            found = planned(program, options.cluster, mesh, shardings)
        except InfeasibleError as error:
            rows.append({**row, "refused": error.message})
            continue
        predicted = found.plan.predicted
        row |= {
            "predicted_s": predicted.step_time_s,
            "ratio": predicted.step_time_s / rows[0]["predicted_s"] if rows else 1.0,
            "predicted_peak_bytes": predicted.peak_bytes_per_device,
            "predicted_sent_bytes": predicted.communication_bytes,
        }
        if options.run:
            row |= measured(program, found, options.rounds)
        rows.append(row)
    return rows


def show(rows: list[Row], ranked: dict[str, float | None]) -> None:
    for row in rows:
        line = f"{row['program']:5} {row['mesh']:6} {row['plan']:9}"
        if "refused" in row:
            print(line, "does not fit")
            continue
        line += f" {row['predicted_s'] * 1e6:10.1f} us  ratio {row['ratio']:6.3f}"
        if "step_s" in row:
            line += (
                f"  {row['xla_flops'] / 1e6:9.2f} MFLOP"
                f"  sent {row['xla_collective_bytes'] / 1e3:9.1f} kB"
                f"  peak {row['xla_peak_bytes'] / 1e6:7.2f} MB"
                f" (predicted {row['predicted_peak_bytes'] / 1e6:7.2f})"
                f"  step {row['step_s'] * 1e3:8.2f} ms"
            )
        print(line)
    for word, rank in ranked.items():
        found = "no order" if rank is None else f"{rank:.2f}"
        print(f"      rank correlation of the prediction with {word}: {found}")
    sys.stdout.flush()


def average(found: list[dict[str, float | None]], word: str) -> float | None:
    """Of the rank correlations over all programs and meshes that have an order."""
    known = [rank for each in found if (rank := each.get(word)) is not None]
    return statistics.mean(known) if known else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--meshes", default=",".join("x".join(map(str, m)) for m in MESHES))
    parser.add_argument("--cluster", default=None, help="a100-8, or cpu8 with --run")
    parser.add_argument("--scale", type=int, default=None, help="of widths; 16, or 1 with --run")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--format", choices=["text", "json"], default="text")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    options.scale = options.scale or (1 if options.run else 16)
    options.cluster = options.cluster or ("cpu8" if options.run else "a100-8")
    shapes = [tuple(map(int, text.split("x"))) for text in options.meshes.split(",")]
    report: Row = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "cores": os.cpu_count(),
        "cluster": options.cluster,
        "scale": options.scale,
        "plans": [],
    }
    ranked = []
    for name, shape in itertools.product(options.programs.split(","), shapes):
        rows = compare(name, shape, options)
        ranked.append(correlations(rows))
        if options.format == "text":
            show(rows, ranked[-1])
        report["plans"] += rows
        report["least_ratio"] = min(row["ratio"] for row in report["plans"] if "ratio" in row)
        if options.run:
            report["rank_correlations"] = {word: average(ranked, word) for word in RANKED_BY}
        if options.output is not None:
            options.output.write_text(json.dumps(report, indent=1) + "\n")
    if options.format == "json":
        print(json.dumps(report, indent=1))
        return
    print(f"least ratio: {report['least_ratio']:.4f} over {len(report['plans'])} plans")
    for word, rank in report.get("rank_correlations", {}).items():
        print(f"mean rank correlation with {word}: {'no order' if rank is None else f'{rank:.2f}'}")


if __name__ == "__main__":
    main()

"""Predicted against measured step times on this machine: a process per core, with one thread each.

    python benchmarks/measured_here.py                          calibrates, then six programs
    python benchmarks/measured_here.py --cluster here.json --programs mlp,gpt -o FILE.json

CPU devices of one process share XLA's threads, so a device would not be slower with the others at
work. Here each has a process of its own with one thread of XLA (NPROC=1): a job of `shardc launch`
with as many processes as cores, which `shardc.calibrate` measures as a whole. They are not bound to
a core each: Linux would let a thread that carries messages wait for milliseconds behind the one
that computes. Nothing else should run.

Of each program, more than 20 plans are made for the calibrated cluster: four ways to lay out
parameters and batch (data, fsdp and Megatron's of `hand_made.py`, and shardc's own) in 1 to 8
microbatches, one device alone, and two stages under two schedules; and the plan of `shardc.jit`
without options. All are compiled first, and then take turns: each runs once per round, so what else
the machine does hits all alike. A step takes as long as its slowest process, and the fastest round
of each plan counts. Of the pairs of plans whose measured times differ by over 10 %, the share in
the predicted order; and the time of the plan chosen over the fastest one.
"""

import argparse
import datetime
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from hand_made import PROGRAMS, Program, by_hand
from jax.experimental import multihost_utils

import shardc
from shardc.api.action_time import action_seconds
from shardc.calibrate.measured_cluster import calibrate
from shardc.cluster import Cluster
from shardc.errors import ShardcError

LAUNCH = [sys.executable, "-c", "from shardc.cli import main; main()", "launch"]
SCALES = {
    "mlp": 5,
    "gpt": 3,
    "moe": 16,
    "conv": 8,
    "dlrm": 24,
    "seq2seq": 3,
}  # 50 ms a step and more
APART = 1.1  # measured times of a pair that counts
Row = dict[str, Any]


def requests(program: Program) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names of plans, and what is asked of `shardc.jit`; the first asks for nothing."""
    yield "chosen", {}
    mesh = {"x": len(jax.devices())}
    layouts = {**by_hand(program, mesh), "free": {}}
    for (name, shardings), count in itertools.product(layouts.items(), (1, 2, 4, 8)):
        asked = {"stages": 1, "mesh": mesh, "shardings": shardings, "microbatches": count}
        yield f"{name}, {count}", asked
    for count in (1, 2, 4):
        yield f"one device, {count}", {"stages": 1, "mesh": {"x": 1}, "microbatches": count}
    for schedule, count in itertools.product(("gpipe", "1f1b"), (2, 4, 8)):
        yield (
            f"2 stages, {schedule}, {count}",
            {"stages": 2, "schedule": schedule, "microbatches": count},
        )


def compared(program: Program, cluster: Cluster, rounds: int) -> list[Row]:
    """A row per plan: predicted, and the fastest and the median of its rounds, in seconds."""
    rows, compiled = [], []
    for name, asked in requests(program):
        step = shardc.jit(program.step, cluster=cluster, **asked)
        try:
            planned = step.lower(program.params, program.batch).plan()
        except ShardcError as error:
            say(f"{name}: {error.message}")
            continue
        predicted = planned.plan.predicted.step_time_s
        rows.append({"plan": name, "predicted_s": predicted})
        compiled.append(planned.compile())
    states = [jax.tree.map(jnp.asarray, program.params) for _ in compiled]
    taken = np.zeros((rounds + 1, len(compiled)))
    for turn, (i, run) in itertools.product(range(rounds + 1), enumerate(compiled)):
        multihost_utils.sync_global_devices("step")
        start_s = time.perf_counter()
        states[i], loss = run(states[i], program.batch)
        jax.block_until_ready(pieces((states[i], loss)))
        taken[turn, i] = time.perf_counter() - start_s
    every = np.asarray(multihost_utils.process_allgather(taken))
    slowest = every.reshape(-1, *taken.shape).max(axis=0)[1:]  # the first places its arguments
    for row, seconds in zip(rows, slowest.T, strict=True):
        row["measured_s"] = float(seconds.min())
        row["median_s"] = float(np.median(seconds))
    return rows


def pieces(tree: Any) -> list[jax.Array]:
    """What this process has of the arrays."""
    return [piece.data for leaf in jax.tree.leaves(tree) for piece in leaf.addressable_shards]


def score(rows: list[Row]) -> Row:
    """Of the plans of one program; the first is the one chosen."""
    right = pairs = 0
    for one, other in itertools.combinations(rows, 2):
        apart = one["measured_s"] / other["measured_s"]
        if max(apart, 1 / apart) > APART:
            pairs += 1
            right += (apart > 1) == (one["predicted_s"] > other["predicted_s"])
    fastest = min(rows, key=lambda row: row["measured_s"])
    errors = [abs(row["predicted_s"] / row["measured_s"] - 1) for row in rows]
    return {
        "num_plans": len(rows),
        "num_pairs": pairs,
        "pairs_in_order": right / pairs if pairs else None,
        "chosen_over_fastest": rows[0]["measured_s"] / fastest["measured_s"],
        "fastest": fastest["plan"],
        "mean_relative_error": statistics.mean(errors),
    }


def say(line: str) -> None:
    """To standard error, once per job."""
    if jax.process_index() == 0:
        print(line, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", default="mlp,gpt,moe,conv,dlrm,seq2seq")
    parser.add_argument("--cluster", type=Path, help="a calibrated one; made if it is not there")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--format", choices=["text", "json"], default="text")
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    if "JAX_COORDINATOR_ADDRESS" not in os.environ:  # not yet under `shardc launch`
        count = str(len(os.sched_getaffinity(0)))
        command = [*LAUNCH, "-n", count, "--limit", "600", __file__, *sys.argv[1:]]
        return subprocess.run(command, check=False, env={**os.environ, "NPROC": "1"}).returncode
    shardc.initialize()
    if asked.cluster is not None and asked.cluster.exists():
        cluster = Cluster.load(asked.cluster)
    else:
        made = calibrate(jax.devices(), say=say, action_s=action_seconds)
        cluster = made.cluster
        say(f"calibrated: {made.mean_residual:.0%} off, repeats differ by {made.busy:.0%}")
        if asked.cluster is not None and jax.process_index() == 0:
            cluster.save(asked.cluster)
    report: Row = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "jax": jax.__version__,
        "devices": len(jax.devices()),
        "load": os.getloadavg()[0],
        "programs": {},
    }
    for name in asked.programs.split(","):
        rows = compared(PROGRAMS[name](SCALES[name]), cluster, asked.rounds)
        result = score(rows)
        report["programs"][name] = {**result, "plans": rows}
        if jax.process_index() > 0:
            continue
        if asked.format == "text":
            for row in sorted(rows, key=lambda row: row["measured_s"]):
                ms = [1e3 * row[of] for of in ("predicted_s", "measured_s", "median_s")]
                print(f"  {row['plan']:22} {ms[0]:8.1f} {ms[1]:8.1f} {ms[2]:8.1f} ms")
            print(name, json.dumps(result), flush=True)
        if asked.output is not None:
            asked.output.write_text(json.dumps(report, indent=1) + "\n")
    if asked.format == "json" and jax.process_index() == 0:
        print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())

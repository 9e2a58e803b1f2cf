"""Predicted against measured step times on this machine, on as many CPU devices as cores.

    python benchmarks/measured_here.py                          calibrates, then four programs
    python benchmarks/measured_here.py --cluster here.json --programs mlp,gpt -o FILE.json

Of each program, more than 20 plans are made for the calibrated cluster: four ways to lay out
parameters and batch (data, fsdp and Megatron's of `hand_made.py`, and shardc's own) in 1 to 8
microbatches, one device alone, and two stages under two schedules; and the plan of `shardc.jit`
without options. All are compiled first, and then take turns: each runs once per round, so what else
the machine does hits all alike. The fastest round of each plan counts. Of the pairs of plans whose
measured times differ by over 10 %, the share in the predicted order; and the time of the plan
chosen over the fastest one. XLA is asked for one thread per device, but its devices share a pool.
"""

import argparse
import datetime
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_NUM_CPU_DEVICES"] = str(len(os.sched_getaffinity(0)))
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false"

import jax
import jax.numpy as jnp
from hand_made import PROGRAMS, Program, by_hand

import shardc
from shardc.calibrate.measured_cluster import calibrate
from shardc.cluster import Cluster
from shardc.errors import ShardcError

CORES = len(os.sched_getaffinity(0))
SCALES = {
    "mlp": 5,
    "gpt": 3,
    "moe": 16,
    "conv": 4,
    "dlrm": 16,
    "seq2seq": 3,
}  # 50 ms a step and more
APART = 1.1  # measured times of a pair that counts
Row = dict[str, Any]


def requests(program: Program) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names of plans, and what is asked of `shardc.jit`; the first asks for nothing."""
    yield "chosen", {}
    mesh = {"x": CORES}
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
        step = shardc.jit(program.step, cluster=cluster, devices=jax.devices(), **asked)
        try:
            planned = step.lower(program.params, program.batch).plan()
        except ShardcError as error:
            print(f"{name}: {error.message}", file=sys.stderr)
            continue
        predicted = planned.plan.predicted.step_time_s
        rows.append({"plan": name, "predicted_s": predicted, "rounds_s": []})
        compiled.append(planned.compile())
    states = [jax.tree.map(jnp.asarray, program.params) for _ in compiled]
    for turn in range(rounds + 1):
        for i, run in enumerate(compiled):
            start_s = time.perf_counter()
            states[i], loss = run(states[i], program.batch)
            jax.block_until_ready((states[i], loss))
            if turn:  # the first has its arguments to place
                rows[i]["rounds_s"].append(time.perf_counter() - start_s)
    for row in rows:
        row["measured_s"] = min(row["rounds_s"])
        row["median_s"] = statistics.median(row.pop("rounds_s"))
    return rows


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", default="mlp,gpt,moe,conv")
    parser.add_argument("--cluster", type=Path, help="a calibrated one; made if it is not there")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--format", choices=["text", "json"], default="text")
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    if asked.cluster is not None and asked.cluster.exists():
        cluster = Cluster.load(asked.cluster)
    else:
        made = calibrate(jax.devices(), say=lambda line: print(line, file=sys.stderr))
        cluster = made.cluster
        print(f"calibrated: {made.mean_residual:.0%} off, repeats differ by {made.busy:.0%}")
        if asked.cluster is not None:
            cluster.save(asked.cluster)
    report: Row = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "jax": jax.__version__,
        "devices": CORES,
        "load": os.getloadavg()[0],
        "programs": {},
    }
    for name in asked.programs.split(","):
        rows = compared(PROGRAMS[name](SCALES[name]), cluster, asked.rounds)
        result = score(rows)
        report["programs"][name] = {**result, "plans": rows}
        if asked.format == "text":
            for row in sorted(rows, key=lambda row: row["measured_s"]):
                ms = [1e3 * row[of] for of in ("predicted_s", "measured_s", "median_s")]
                print(f"  {row['plan']:22} {ms[0]:8.1f} {ms[1]:8.1f} {ms[2]:8.1f} ms")
            print(name, json.dumps(result), flush=True)
        if asked.output is not None:
            asked.output.write_text(json.dumps(report, indent=1) + "\n")
    if asked.format == "json":
        print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())

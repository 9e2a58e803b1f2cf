"""Run thousands of random programs under random plans; print those that do not hold.

    python tools/fuzz.py shardings 0 2000      seeds 0 to 1999, each op in a random strategy
    python tools/fuzz.py training 0 200        steps through shardc.jit in stages and microbatches
    python tools/fuzz.py extremes 0 2000       the same as shardings, on infinities, nan and zeros
    python tools/fuzz.py sums 0 300            steps that wait for sums over the batch
    python tools/fuzz.py factors 0 1000        sums over the batch that meet factors, on the same
    python tools/fuzz.py steps 0 125           steps of every kind of tests/py/fuzz/kinds.py, each
                                               in several plans, run by StableHLO's interpreter
    python tools/fuzz.py runs 0 20             the same steps through shardc.jit, one plan of each:
                                               schedules, chunks, lowerings, what is made again
    python tools/fuzz.py steps 0 125 --only narrow --values nonfinite --plans 4 --results FILE

Chunks run in child processes, so that a crash of a library costs one seed. Exit code 1 if a program
failed. What fails belongs into `tests/py/fuzz/found.py`, made small.
"""

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parents[1]
SHAPES = ((2, 2), (1, 2), (2, 1), (1, 4))  # stages, microbatches


def run(kind: str, seeds: range) -> int:
    """Runs some seeds in this process; the number of failures."""
    import jax

    from shardc.errors import ShardcError
    from tests.py.fuzz.batch_sums import random_step
    from tests.py.fuzz.check import (
        IllConditioned,
        check_batch_sums,
        check_shardings,
        check_training,
    )
    from tests.py.fuzz.generate import random_source
    from tests.py.fuzz.non_finite import check_partial_sums
    from tests.py.fuzz.training import random_training

    counts: collections.Counter[str] = collections.Counter()
    for seed in seeds:
        print(f"seed {seed}", file=sys.stderr, flush=True)
        random = Random(seed)
        program: Any = None
        with jax.enable_x64(True):
            if kind in ("shardings", "extremes"):
                program = random_source(random, 3 + seed % 7)
            elif kind == "training":
                program = random_training(random, 3 + seed % 5)
        try:
            if kind == "sums":
                check_batch_sums(*random_step(random), 2 + 2 * (seed % 2))
            elif kind == "factors":
                check_partial_sums(seed)
            elif program is None:
                counts["JAX has no derivative"] += 1
                continue
            elif kind in ("shardings", "extremes"):
                check_shardings(program, seed, extremes=kind == "extremes")
            else:
                check_training(program, seed, *SHAPES[seed % len(SHAPES)])
            counts["ok"] += 1
        except IllConditioned:
            counts["roundings decide"] += 1
        except ShardcError as error:
            counts[f"refused {error.code}"] += 1
            print(f"seed {seed} is refused: {error}\n{program}", flush=True)
        except Exception as error:  # noqa: BLE001 - every failure is reported and counted, the rest still runs
            counts["failed"] += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            print(f"seed {seed} FAILED at {where.filename}:{where.lineno}: {error}\n{program}")
    print(f"seeds {seeds.start} to {seeds.stop - 1}: {dict(counts)}", flush=True)
    return counts["failed"]


def run_steps(seeds: range, options: argparse.Namespace) -> int:
    """Runs plans of steps of every kind in this process; the number of failures."""
    from tests.py.fuzz.kinds import KINDS
    from tests.py.fuzz.plans import check_seed
    from tests.py.fuzz.runs import check_run

    counts: collections.Counter[str] = collections.Counter()
    num_plans, start_s = 0, time.monotonic()
    for seed in seeds:
        for kind in [options.only] if options.only else KINDS:
            print(f"seed {seed} {kind}", file=sys.stderr, flush=True)
            if options.kind == "runs":
                lines = [check_run(kind, seed, options.values, options.recompute)]
            else:
                lines = list(check_seed(kind, seed, options.plans, options.values))
            num_plans += len(lines)
            for line in lines:
                counts[line["outcome"]] += 1
                counts["plans of several devices not run"] += bool(line.get("skipped"))
                if line["outcome"].startswith(("differs", "failed")):
                    print(json.dumps(line), flush=True)
            if options.results:
                with Path(options.results).open("a") as file:
                    file.writelines(json.dumps(line) + "\n" for line in lines)
    minutes = (time.monotonic() - start_s) / 60
    rate = num_plans / max(minutes, 1e-9)
    print(
        f"seeds {seeds.start} to {seeds.stop - 1}: {dict(counts)}, {rate:.0f} plans/min", flush=True
    )
    return sum(n for outcome, n in counts.items() if outcome.startswith(("differs", "failed")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kinds = ["shardings", "extremes", "training", "sums", "factors", "steps", "runs"]
    parser.add_argument("kind", choices=kinds)
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int)
    parser.add_argument("--chunk", type=int, default=50, help="seeds per process; 0: no process")
    parser.add_argument("--only", help="of steps: one kind of tests/py/fuzz/kinds.py")
    parser.add_argument("--plans", type=int, default=8, help="of steps: plans of each")
    parser.add_argument(
        "--values", choices=["ordinary", "extremes", "nonfinite"], default="ordinary"
    )
    parser.add_argument(
        "--recompute", choices=["none", "selective", "full"], help="of runs: in all stages"
    )
    parser.add_argument("--results", help="of steps: JSON-lines file to append to")
    options = parser.parse_args()
    if options.chunk == 0:
        import jax

        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", 8)
        os.environ["SHARDC_CACHE_DIR"] = tempfile.mkdtemp(prefix="shardc-fuzz-")
        seeds = range(options.first, options.end)
        failures = (
            run_steps(seeds, options)
            if options.kind in ("steps", "runs")
            else run(options.kind, seeds)
        )
        return int(failures > 0)
    more = ["--plans", str(options.plans), "--values", options.values]
    for name in ("only", "recompute", "results"):
        if getattr(options, name):
            more += [f"--{name}", getattr(options, name)]
    failed, first = False, options.first
    while first < options.end:
        end = min(first + options.chunk, options.end)
        command = [sys.executable, __file__, options.kind, str(first), str(end), "--chunk", "0"]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        child = subprocess.run(
            [*command, *more], env=env, stderr=subprocess.PIPE, text=True, check=False
        )
        failed = failed or child.returncode != 0
        if child.returncode not in (0, 1):  # the interpreter or XLA has ended the process
            reached = [line for line in child.stderr.splitlines() if line.startswith("seed ")]
            end = int(reached[-1].split()[1]) + 1 if reached else end
            last = reached[-1] if reached else f"seed {end - 1}"
            print(f"{last} CRASHED (exit code {child.returncode})", flush=True)
            print(child.stderr[-500:], flush=True)
        first = end
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

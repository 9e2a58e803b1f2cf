"""Two processes with a core each in a pipeline of two stages, against one with one core.

    python benchmarks/pinned.py [--width 256]   8 microbatches of a GPT, 3 rounds

Needs two idle cores, 0 and 1: the load is printed with the result. In each round one process alone
trains with jax.jit and with the same microbatches under one stage; then two such processes at
once, which says what two cores give at most; then the pipeline. The bound is 2m/(m+1) of the
faster way alone, times the efficiency of the two copies. What the pipeline loses is told from
steps in which every program is waited for: the programs of its busier process, the bubble, and the
rest, which is transfers and the host. `cpu_s` is the processor time of a step of a process, all
threads: less than the step by what the process waits. `send_s` and `receive_s` are of the steps in
which everything is waited for, with the wait for the sender; messages are collectives with
SHARDC_TRANSFERS=collective.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))
LAUNCH = [sys.executable, "-c", "from shardc.cli import main; main()", "launch"]
WARM_UP, STEPS = 2, 4


def measured(how: str, microbatches: int, width: int, length: int, schedule: str) -> dict[str, Any]:
    """Seconds per step of this process: medians; of programs the shortest of each kind."""
    import jax
    import numpy as np
    import optax
    from gpt_model import Sizes, init, make_train_step

    import shardc
    from shardc.runtime.tape.measured import alone

    if how == "pipeline":
        jax.distributed.initialize()
    sizes = Sizes(vocabulary=128, length=length, width=width, heads=4, hidden=4 * width, layers=4)
    optimizer = optax.sgd(1e-2)
    params = jax.tree.map(np.asarray, init(jax.random.key(0), sizes))
    state: Any = {"params": params, "optimizer": optimizer.init(params)}
    tokens = np.zeros((2 * microbatches, sizes.length), np.int32)
    batch = {"tokens": tokens, "targets": tokens + 1}
    step: Any = make_train_step(optimizer)
    if how == "jax.jit":
        trained = jax.jit(step, donate_argnums=0)
    else:
        trained = shardc.jit(
            step,
            donate_argnums=0,
            stages=2 if how == "pipeline" else 1,
            microbatches=microbatches,
            schedule=schedule,
        )
    seconds, cpu = [], []
    for _ in range(WARM_UP + STEPS):
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        state, loss = trained(state, batch)
        jax.block_until_ready([piece.data for piece in loss.addressable_shards])
        jax.block_until_ready(
            [piece.data for leaf in jax.tree.leaves(state) for piece in leaf.addressable_shards]
        )
        seconds.append(time.perf_counter() - start_s)
        cpu.append(time.process_time() - start_cpu_s)
    found: dict[str, Any] = {
        "step_s": statistics.median(seconds[WARM_UP:]),
        "cpu_s": statistics.median(cpu[WARM_UP:]),
    }
    if how != "jax.jit":
        with alone() as steps:
            for _ in range(STEPS):
                state, loss = trained(state, batch)
        shortest: dict[str, float] = {}
        for step_ in steps:
            for action, busy_s in step_.busy_s.items():
                kind = action.rstrip("0123456789")
                shortest[kind] = min(shortest.get(kind, busy_s), busy_s)
        found["busy_s"] = sum(shortest[a.rstrip("0123456789")] for a in steps[0].busy_s)
        found["send_s"] = statistics.median(step_.send_s for step_ in steps)
        found["receive_s"] = statistics.median(step_.receive_s for step_ in steps)
    return found


def run(how: str, cores: tuple[int, ...], options: argparse.Namespace) -> list[dict[str, Any]]:
    """One process per core at the same time; a job if it is the pipeline."""
    own = [str(Path(__file__)), "--worker", how, "--microbatches", str(options.microbatches)]
    own += ["--width", str(options.width), "--length", str(options.length)]
    own += ["--schedule", options.schedule]
    if how == "pipeline":
        commands = [[*LAUNCH, "-n", str(len(cores)), *own, "--cores", ",".join(map(str, cores))]]
    else:
        commands = [[sys.executable, *own, "--cores", str(core)] for core in cores]
    started = [subprocess.Popen(c, stdout=subprocess.PIPE, text=True) for c in commands]
    said = [process.communicate()[0] for process in started]
    assert not any(process.returncode for process in started), "a process failed"
    return [json.loads(line) for text in said for line in text.splitlines() if line.startswith("{")]


def one_round(options: argparse.Namespace) -> dict[str, float]:
    """All ways, one after the other."""
    microbatches = options.microbatches
    alone = {how: run(how, (0,), options)[0]["step_s"] for how in ("jax.jit", "one stage")}
    how = min(alone, key=lambda each: alone[each])
    copies = run(how, (0, 1), options)
    ranks = run("pipeline", (0, 1), options)
    step_s = max(rank["step_s"] for rank in ranks)
    efficiency = alone[how] / statistics.mean(copy["step_s"] for copy in copies)
    bound = 2 * microbatches / (microbatches + 1) * efficiency
    busy_s = max(rank["busy_s"] for rank in ranks)
    bubble_s = busy_s / microbatches
    return {
        "jax_jit_s": alone["jax.jit"],
        "one_stage_s": alone["one stage"],
        "copies_efficiency": efficiency,
        "pipeline_s": step_s,
        "speedup": alone[how] / step_s,
        "bound": bound,
        "share_of_bound": alone[how] / step_s / bound,
        "cpu_s": max(rank["cpu_s"] for rank in ranks),
        "busier_process_s": busy_s,
        "bubble_s": bubble_s,
        "rest_s": step_s - busy_s - bubble_s,
        "send_s": max(rank["send_s"] for rank in ranks),
        "receive_s": max(rank["receive_s"] for rank in ranks),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--length", type=int, default=256, help="tokens of each of 2 sequences")
    parser.add_argument("--schedule", default="eager-1f1b")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--cores", help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    if options.worker is not None:
        cores = [int(core) for core in options.cores.split(",")]
        rank = int(os.environ.get("SLURM_PROCID", 0)) if options.worker == "pipeline" else 0
        os.sched_setaffinity(0, {cores[rank]})  # before JAX counts the cores
        sizes = options.microbatches, options.width, options.length
        found = measured(options.worker, *sizes, options.schedule)
        print(json.dumps(found), flush=True)
        return 0
    rows = []
    for _ in range(options.rounds):
        rows.append({"load": os.getloadavg()[0], **one_round(options)})
        print(json.dumps({name: round(value, 3) for name, value in rows[-1].items()}), flush=True)
    if options.output is not None:
        options.output.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

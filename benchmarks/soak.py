"""A thousand steps of a job: do memory, open files and threads stay as they are?

    shardc launch -n 4 benchmarks/soak.py --steps 1000 -o soak.json

Each process feeds its rows of every batch and waits for the loss. What it holds is written down in
the middle of each tenth. A process fails if files or threads grew from the second tenth to the
last, or memory by more than a hundredth.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "py" / "end_to_end"))

import jax
import numpy as np
from process_worker import ROWS, batches, fed, initial, step

import shardc

MOST_GROWTH = 1.01  # of memory, from the second tenth to the last


def held() -> dict[str, int]:
    """What this process holds now."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "resident_kib": int(status["VmRSS"].split()[0]),
        "threads": int(status["Threads"]),
        "open_files": len(os.listdir("/proc/self/fd")),
        "memory_maps": Path("/proc/self/maps").read_bytes().count(b"\n"),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("-o", "--output", type=Path, help="a file per rank: NAME.RANK")
    options = parser.parse_args()
    jax.distributed.initialize()
    trained = shardc.jit(
        step, donate_argnums=0, batch_argnums=1, stages=2, microbatches=4, schedule="1f1b"
    )
    state: Any = initial()
    (batch,) = batches(1, ROWS)
    rows = []
    for number in range(options.steps):
        state, loss = trained(state, fed(batch))
        jax.block_until_ready([piece.data for piece in loss.addressable_shards])
        if number % (options.steps // 10) == options.steps // 20:
            rows.append({"step": number + 1, **held()})
    for piece in loss.addressable_shards:
        assert np.isfinite(piece.data), "the loss is a number"
    last, early = rows[-1], rows[1]
    steady = all(last[name] <= early[name] for name in ("threads", "open_files"))
    steady = steady and last["resident_kib"] <= MOST_GROWTH * early["resident_kib"]
    report = {"rank": jax.process_index(), "steady": steady, "rows": rows}
    print(json.dumps({**report, "rows": [early, last]}), flush=True)
    if options.output is not None:
        path = options.output.with_suffix(f".{jax.process_index()}.json")
        path.write_text(json.dumps(report) + "\n")
    return int(not steady)


if __name__ == "__main__":
    sys.exit(main())

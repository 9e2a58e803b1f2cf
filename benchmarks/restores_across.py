"""States saved by some processes and restored by others, under another plan: equal values?

    python -m benchmarks.restores_across       12 pairs, 1, 2 and 4 processes, 8 devices in all

Five jobs run one after the other. Each restores what earlier ones have saved, compares every piece
that a process has, and saves the same state under the plans that later ones restore from. Plans
have 1, 2 or 4 stages of two devices, which share the batch (data), the parameters (fsdp) or the
products (tensor); a plan of two devices does not run on four processes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where `shardc launch` starts it

import jax
import numpy as np
import orbax.checkpoint as ocp

import shardc
from shardc.runtime.processes.arrays import put
from tests.py.api.state.scanned_step import initial, planned

JOBS = (1, 2, 4, 2, 1)  # processes
Plan = tuple[int, str]
PAIRS: list[tuple[int, Plan, int, Plan]] = [
    (1, (4, "data"), 2, (1, "fsdp")),
    (1, (1, "tensor"), 2, (2, "tensor")),
    (1, (2, "fsdp"), 4, (4, "data")),
    (1, (1, "data"), 4, (2, "tensor")),
    (2, (4, "tensor"), 4, (2, "fsdp")),
    (2, (1, "fsdp"), 4, (4, "fsdp")),
    (2, (1, "fsdp"), 1, (4, "tensor")),
    (2, (2, "tensor"), 1, (2, "data")),
    (4, (2, "fsdp"), 2, (1, "data")),
    (4, (4, "data"), 2, (4, "tensor")),
    (4, (4, "data"), 1, (1, "tensor")),
    (4, (2, "tensor"), 1, (4, "fsdp")),
]
"""Processes and plan that save, processes and plan that restore."""


def plan_of(plan: Plan) -> Any:
    """The plan, on equally many devices of each process."""
    stages, kind = plan
    count = 2 * stages // jax.process_count()
    devices = [d for p in range(jax.process_count()) for d in jax.local_devices(p)[:count]]
    return planned(stages, kind, tuple(devices))


def saved_in(folder: Path, processes: int, plan: Plan) -> Path:
    """Where that many processes save the state of a plan."""
    return folder / f"{processes}-{plan[0]}-{plan[1]}"


def save(folder: Path, plan: Plan) -> None:
    """The initial state, as the plan has it."""
    abstract = plan_of(plan).abstract_state()
    state = jax.tree.map(lambda x, a: put(np.asarray(x), a.sharding), initial(), abstract)
    with ocp.CheckpointManager(saved_in(folder, jax.process_count(), plan)) as manager:
        manager.save(0, args=ocp.args.StandardSave(state))


def pieces_equal(folder: Path, processes: int, source: Plan, target: Plan) -> list[bool]:
    """Of each piece that this process restores, whether it is the initial one."""
    into = ocp.args.StandardRestore(plan_of(target).abstract_state())
    with ocp.CheckpointManager(saved_in(folder, processes, source)) as manager:
        state = manager.restore(0, args=into)
    return [
        np.array_equal(piece.data, np.asarray(value)[piece.index])
        for got, value in zip(jax.tree.leaves(state), jax.tree.leaves(initial()), strict=True)
        for piece in got.addressable_shards
    ]


def job(folder: Path, number: int) -> None:
    """What one process of a job does; prints a line of JSON for each pair that it restores."""
    jax.distributed.initialize()
    shardc.use_orbax()
    size, earlier = JOBS[number], JOBS[:number]
    for saving, source, restoring, target in PAIRS:
        # The first job that can: what it restores is there, and was not restored before.
        can = [n for n, count in enumerate(JOBS) if count == restoring and saving in JOBS[:n]]
        if can[0] == number:
            equal = pieces_equal(folder, saving, source, target)
            row = {"from": [saving, *source], "to": [restoring, *target], "pieces": len(equal)}
            row |= {"rank": jax.process_index(), "equal": all(equal)}
            sys.stdout.write(json.dumps(row) + "\n")
            sys.stdout.flush()
    if size not in earlier:
        for plan in dict.fromkeys(pair[1] for pair in PAIRS if pair[0] == size):
            save(folder, plan)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path, help="rows, one per pair and process")
    options = parser.parse_args()
    if options.job is not None:
        job(Path(options.job[0]), int(options.job[1]))
        return 0
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for number, size in enumerate(JOBS):
            command = [sys.executable, "-c", "from shardc.cli import main; main()", "launch"]
            command += ["-n", str(size), "--devices-per-process", str(8 // size)]
            command += [str(Path(__file__)), "--job", folder, str(number)]
            done = subprocess.run(
                command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ
            )
            rows += [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"]
    for row in rows:
        print(json.dumps(row))
    pairs = {json.dumps([row["from"], row["to"]]) for row in rows}
    bad = [row for row in rows if not row["equal"]]
    print(f"{len(pairs)} pairs, {sum(row['pieces'] for row in rows)} pieces, {len(bad)} unequal")
    if options.output is not None:
        options.output.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return int(bool(bad) or len(pairs) < len(PAIRS))


if __name__ == "__main__":
    sys.exit(main())

"""A state saved under one plan and restored into another: equal values, and the memory it takes.

    python -m benchmarks.restores              12 pairs of 9 plans, one process, 8 CPU devices
    python -m benchmarks.restores --memory 1   1 GiB of parameters and momentum, by orbax alone and
                                               by the handler of shardc.use_orbax()

The plans have 1, 2 or 4 stages of two devices that share the batch (data), the parameters (fsdp) or
the products (tensor). Devices are virtual, so the state itself is in the host's memory: the share
that is printed is the peak of resident memory, above what the process had before, over the bytes
that its devices hold.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where `shardc launch` starts it

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

import shardc
from tests.py.api.state.scanned_step import KINDS, LAYERS, initial, laid_out, planned, step

PLANS = [(stages, kind) for stages in (1, 2, 4) for kind in KINDS]
# Each plan once as source and once as target, and three more pairs of equally many stages.
PAIRS = [(PLANS[n], PLANS[(4 * n + 5) % 9]) for n in range(9)]
PAIRS += [((1, "data"), (1, "tensor")), ((2, "tensor"), (2, "fsdp")), ((4, "tensor"), (4, "fsdp"))]

MOST_SHARE = 1.3  # of the state that a process keeps


def pairs() -> list[dict[str, Any]]:
    """Saves and restores, and reallocates, each of the pairs."""
    rows = []
    for source, target in PAIRS:
        a, b = planned(*source), planned(*target)
        with tempfile.TemporaryDirectory() as folder, ocp.CheckpointManager(folder) as manager:
            state = laid_out(a)
            manager.save(0, args=ocp.args.StandardSave(state))
            manager.wait_until_finished()
            into = ocp.args.StandardRestore(b.abstract_state())
            found = {"restored": manager.restore(0, args=into)}
        found["reallocated"] = shardc.reallocate(state, a, b)
        equal = {
            how: all(
                np.array_equal(x, y)
                for x, y in zip(jax.tree.leaves(each), jax.tree.leaves(initial()), strict=True)
            )
            for how, each in found.items()
        }
        rows.append({"from": source, "to": target, **equal})
        print(rows[-1], flush=True)
    return rows


def large(gib: float, stages: int, kind: str) -> Any:
    """The plan of a step with so many GiB of parameters and momentum."""
    width = int((gib * 2**30 / 8 / LAYERS) ** 0.5) // 64 * 64
    shapes = {
        "w": jax.ShapeDtypeStruct((LAYERS, width, width), np.float32),
        "head": jax.ShapeDtypeStruct((width, 4), np.float32),
    }
    state = {"p": shapes, "m": shapes, "n": jax.ShapeDtypeStruct((), np.int32)}
    mesh, shardings = KINDS[kind]
    f = shardc.jit(
        step,
        donate_argnums=0,
        stages=stages,
        microbatches=4 if stages > 1 else 1,
        mesh=mesh,
        shardings=shardings,
        devices=jax.devices()[: 2 * stages],
    )
    return f.lower(state, jax.ShapeDtypeStruct((16, width), np.float32)).plan()


def _noise(shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Numbers that hardly compress."""
    number = jax.lax.iota(jnp.uint32, math.prod(shape)) * jnp.uint32(2654435761)
    return (number ^ (number >> 15)).astype(dtype).reshape(shape)


def resident(field: str) -> int:
    """VmRSS or VmHWM in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))


def measured(folder: str, gib: float, stages: int, kind: str, saves: bool) -> dict[str, Any]:
    """Saves or restores the large state in this process."""
    abstract = large(gib, stages, kind).abstract_state()
    held = sum(
        int(np.prod(a.sharding.shard_shape(a.shape)))
        * a.dtype.itemsize
        * len(a.sharding.addressable_devices)
        for a in jax.tree.leaves(abstract)
    )
    with ocp.CheckpointManager(folder) as manager:
        state = None
        if saves:
            places = jax.tree.map(lambda a: a.sharding, abstract)
            zeros: Any = jax.tree.map(
                lambda a, place: jax.jit(lambda: _noise(a.shape, a.dtype), out_shardings=place)(),
                abstract,
                places,
            )
            state = jax.block_until_ready(zeros)
        before = resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        start_s = time.monotonic()
        if saves:
            manager.save(0, args=ocp.args.StandardSave(state))
            manager.wait_until_finished()
        else:
            state = manager.restore(0, args=ocp.args.StandardRestore(abstract))
            jax.block_until_ready(state)
        seconds = time.monotonic() - start_s
    above = resident("VmHWM") - before
    return {
        "what": "save" if saves else "restore",
        "rank": jax.process_index(),
        "plan": [stages, kind],
        "state_bytes": held,
        "peak_above_start_bytes": above,
        "share": round(above / held, 3),
        "seconds": round(seconds, 1),
    }


def in_processes(gib: float, handler: str) -> list[dict[str, Any]]:
    """Saves, and restores under other plans, each in a process of its own; shardc also in a job."""
    rows = []
    script = [str(Path(__file__)), "--memory", str(gib), "--measure"]
    launch = [sys.executable, "-c", "from shardc.cli import main; main()", "launch", "-n", "2"]
    tries = [(1, "fsdp", "save"), (2, "tensor", "restore"), (4, "data", "restore")]
    tries += [(1, "tensor", "restore")] + [(4, "data", "job")] * (handler == "shardc")
    with tempfile.TemporaryDirectory() as folder:
        for stages, kind, what in tries:
            start = [*launch, "--devices-per-process", "4"] if what == "job" else [sys.executable]
            command = [*start, *script, folder, str(stages), kind, what, handler]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            for line in done.stdout.splitlines():
                if line.startswith("{"):
                    rows.append({"handler": handler, **json.loads(line)})
                    print(rows[-1], flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", type=float, metavar="GIB")
    parser.add_argument("--measure", nargs=5, help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    if "SLURM_JOB_ID" in os.environ:
        jax.distributed.initialize()
    else:
        jax.config.update("jax_num_cpu_devices", 8)
    if options.measure is not None:
        folder, stages, kind, what, handler = options.measure
        if handler == "shardc":
            shardc.use_orbax()
        row = measured(folder, options.memory, int(stages), kind, what == "save")
        sys.stdout.write(json.dumps(row) + "\n")  # at once: lines of two processes must not mix
        return 0
    if options.memory is None:
        rows = pairs()
        bad = [row for row in rows if not (row["restored"] and row["reallocated"])]
        print(f"{len(rows)} pairs, {len(bad)} unequal")
    else:
        rows = [
            row for handler in ("orbax", "shardc") for row in in_processes(options.memory, handler)
        ]
        bad = [row for row in rows if row["handler"] == "shardc" and row["share"] > MOST_SHARE]
    if options.output is not None:
        options.output.write_text(json.dumps(rows, indent=1) + "\n")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())

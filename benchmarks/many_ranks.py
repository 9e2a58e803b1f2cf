"""A job of 1,024 processes, without them: what rank 0 sends, and what a rank does before its step.

    python -m benchmarks.many_ranks             16 stages of 64 devices, 64 microbatches

A small scanned model is planned for 1,024 devices. Then the start of a rank is simulated, with
1,024 virtual devices of one process, each taken for a process: the plan that is broadcast, the tape
of the whole step, the proof that nobody waits in a circle, and the rank's own part of the tape.
Lowering the stage programs is the same work on every rank, whatever their number: it stands apart.
Times are CPU seconds.
"""

import argparse
import time
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

import shardc
from shardc.backend.programs import placed_programs
from shardc.runtime.tape.build import build_tape
from shardc.runtime.tape.places import slot_places
from shardc.runtime.tape.ranks import check_meetings

WIDTH = 64


def step(state: Any, x: Any) -> Any:
    """Scanned layers with momentum."""

    def loss(w: Any) -> Any:
        h, _ = jax.lax.scan(lambda h, layer: (jnp.tanh(h @ layer), None), x, w)
        return jnp.mean(h**2)

    value, gradient = jax.value_and_grad(loss)(state["w"])
    moved = 0.9 * state["m"] + gradient
    return {"w": state["w"] - 0.1 * moved, "m": moved}, value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stages", type=int, default=16)
    parser.add_argument("--devices-per-stage", type=int, default=64)
    parser.add_argument("--microbatches", type=int, default=64)
    options = parser.parse_args()
    count = options.stages * options.devices_per_stage
    jax.config.update("jax_num_cpu_devices", count)
    weights = jax.ShapeDtypeStruct((options.stages, WIDTH, WIDTH), np.float32)
    rows = options.devices_per_stage * options.microbatches
    f = shardc.jit(
        step,
        donate_argnums=0,
        cluster=f"h100-8x{count // 8}",
        stages=options.stages,
        microbatches=options.microbatches,
        mesh={"data": options.devices_per_stage},
        schedule="1f1b",
    )
    batch = jax.ShapeDtypeStruct((rows, WIDTH), np.float32)
    planned = f.lower({"w": weights, "m": weights}, batch).plan()
    text = msgspec.json.encode(planned.plan)
    print(f"plan: {len(text):,} bytes, broadcast {len(zlib.compress(text)):,}")

    clock = time.process_time()

    def took(what: str) -> None:
        nonlocal clock
        now = time.process_time()
        print(f"{what}: {now - clock:.3f} s", flush=True)
        clock = now

    executable = planned.executable
    took("lower, the same for any number of ranks")
    programs = placed_programs(executable, jax.devices())
    took("where the programs lie")
    tape = build_tape(executable, programs)
    took(f"tape of {len(tape.instructions):,} instructions")
    devices: dict[int, Any] = {
        slot.group: lies.device_set
        for slot, lies in zip(tape.slots, slot_places(tape, programs), strict=True)
    }
    ranks = {group: frozenset(device.id for device in own) for group, own in devices.items()}
    groups = [tape.groups[program.program.stage] for program in programs]
    check_meetings(tape, groups, ranks)
    took(f"proof over {len(frozenset().union(*ranks.values())):,} ranks")
    slowest_s = 0.0
    for rank in range(0, count, max(count // 16, 1)):
        start_s = time.process_time()
        own_groups = {group for group, own in ranks.items() if rank in own}
        before, updates = tape.part(groups, own_groups.__contains__)
        slowest_s = max(slowest_s, time.process_time() - start_s)
        assert before and updates
    print(f"own part of one rank: at most {slowest_s:.3f} s of 16 ranks")


if __name__ == "__main__":
    main()

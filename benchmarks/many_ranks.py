"""A job of 1,024 processes, without them: what rank 0 sends, and what a rank does before its step.

    python -m benchmarks.many_ranks             16 stages of 64 devices, 64 microbatches

A small scanned model is planned for 1,024 devices. Then the start of a rank is simulated, with
1,024 virtual devices of one process, each taken for a process: the plan that is broadcast, the tape
of the whole step, the proof that nobody waits in a circle, and the rank's own part of the tape.
Lowering the stage programs is the same work on every rank, whatever their number: it stands apart.
Last, 1,024 threads with a coordination service in memory agree on the plan, meet, and write and
read heartbeats: it counts their requests and the bytes of the answers. What JAX itself does at the
start, and the time that a real service takes for a request, are not in it. Times are CPU seconds;
the peak of memory is of the whole simulation.
"""

import argparse
import time
import zlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

import shardc
from shardc.api.processes.agreed import _agree
from shardc.backend.programs import placed_programs
from shardc.runtime.processes.watch import Watch
from shardc.runtime.tape.build import build_tape
from shardc.runtime.tape.places import slot_places
from shardc.runtime.tape.ranks import check_meetings
from tests.py.runtime.processes.fake_job import FakeCoordination, FakeJob, FakeService, on_all

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
    clock = time.process_time()
    agree(count, text)
    took("all ranks agree on a plan and meet")
    beat(count)
    peak = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(f"peak of memory: {peak['VmHWM'].strip()}")


def agree(count: int, plan: bytes) -> None:
    """Every rank compares its facts with those of rank 0, gets the plan, and meets the others."""
    facts = {"program": "digest", "devices": str(list(range(count))), "options": "{}"}
    service = FakeService()

    def work(job: FakeJob) -> int:
        assert _agree(job, facts, lambda: plan) == plan
        job.meet("compiled/1")
        return job.rank

    assert on_all(work, count, service) == list(range(count))
    print(f"agreement: {service.requests:,} requests, {service.num_bytes:,} bytes of answers")


def beat(count: int) -> None:
    """One round of heartbeats, in which one rank in 16 lags a step behind."""
    service = FakeService()
    ranks = [Watch(FakeCoordination(service, rank, count), 60.0) for rank in range(count)]
    ranks[0]._round()  # otherwise the others wait for it
    for number in range(3):
        for rank, each in enumerate(ranks):
            if number == 0 or rank % 16:
                each.begin_step()
        service.requests = service.num_bytes = 0
        start_s = time.process_time()
        for each in ranks[1:]:
            each._round()
        others_s = (time.process_time() - start_s) / (count - 1)
        start_s = time.process_time()
        ranks[0]._round()
        rank_0_s = time.process_time() - start_s
    print(
        f"a round of heartbeats: {service.requests:,} requests, {service.num_bytes:,} bytes of"
        f" answers; rank 0 {rank_0_s:.4f} s, another rank {others_s:.5f} s; one every"
        f" {ranks[0]._interval_s:.0f} s"
    )


if __name__ == "__main__":
    main()

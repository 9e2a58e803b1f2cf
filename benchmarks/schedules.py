"""Runs families of schedules on programs of several kinds, beside `jax.jit`, on 8 virtual devices.

    python -m benchmarks.schedules [--family zb-v ...] [--program gpt8 ...] [--out FILE]
                                   [--cache FOLDER] [--gather]
    python -m benchmarks.schedules --table FILE ...

One line per pair: the largest error of a leaf behind three steps in float64, or the refusal;
whether the actions ran in the order of the plan's lanes; the most bytes that a device of each group
held, beside what checker and simulator say; and what is predicted. What families share is compiled
once, by JAX's cache; --cache keeps it for the next run, so that families can be run in parts.
--out appends rows of JSON; pairs that it has are left out. --gather: parameters lie sharded over
the devices of a group, and actions of the schedule gather them.
Ends with 1 if a pair differs by more than 1e-9 of a leaf's largest magnitude, in order or in bytes.
"""

import argparse
import functools
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import shardc
from benchmarks.schedule_programs import MADE
from shardc.api.compiled import Compiled
from shardc.errors import ShardcError
from shardc.plan.program_graph import executable_graph
from shardc.plan.stages_spec import StageSpec, StagesSpec
from shardc.schedule.check import check, peaks
from shardc.schedule.families import built_in
from shardc.schedule.simulate import simulate
from tests.py import programs
from tests.py.live_bytes import measured_peaks
from tests.py.table import CLUSTER, run

LIMIT = 1e-9
DEVICES = 8
Row = dict[str, Any]


def made(name: str) -> programs.Program:
    """A program with arguments of its own, which may be donated."""
    program = _made(name)
    return program._replace(args=jax.tree.map(np.array, program.args))


@functools.cache
def _made(name: str) -> programs.Program:
    return MADE[name]()


@functools.cache
def expected(name: str) -> dict[str, np.ndarray]:
    """Leaves of what `jax.jit` gives on one device."""
    program = made(name)
    return run(jax.jit(program.step), program.args)


def worst_error(name: str, compiled: Compiled) -> float:
    """The largest error of a result, as a share of its largest magnitude."""
    got = run(compiled, made(name).args)
    return max(
        float(np.max(np.abs(got[key] - value), initial=0) / np.max(np.abs(value), initial=1e-30))
        for key, value in expected(name).items()
    )


def in_order(compiled: Compiled) -> bool:
    """Whether the last step ran the actions of each lane of the plan, in its order."""
    ran = dict.fromkeys(action for action, _ in compiled.interpreter.last_trace)
    lanes = compiled.plan.lanes
    return compiled.executable.actions == lanes and all(
        [action for action in ran if action in set(lane)]
        == [action for action in lane if action in ran]
        for lane in lanes
    )


def held_bytes(name: str, compiled: Compiled) -> tuple[list[int], list[int], list[int]]:
    """Peak bytes of one device of each group: as measured, checked and simulated."""
    schedule, graph = executable_graph(compiled.executable)
    check(schedule, graph)
    simulated = simulate(schedule, graph, lambda task: 1).peak_activations
    measured = measured_peaks(compiled, made(name).args)
    checked = [int(held) for held in peaks(schedule, graph)]
    of_group = [mesh.device_ids for mesh in compiled.executable.meshes[: len(schedule.lanes)]]
    most = [max(measured.get(device, 0) for device in own) for own in of_group]
    return most, checked, [int(held) for held in simulated]


def gathering(family: str, stages: int, microbatches: int) -> StagesSpec:
    """A plan of even stages whose parameters are gathered by actions of the schedule."""
    chunks = built_in()[family].num_chunks()
    return StagesSpec(
        1,
        (StageSpec(),) * (stages * chunks),
        microbatches,
        family,
        chunks,
        {"data": DEVICES // stages},
        gather="data",
    )


def row(name: str, family: str, stages: int, microbatches: int, gather: bool = False) -> Row:
    """One program with one schedule."""
    found: Row = {
        "program": name,
        "schedule": family,
        "stages": stages,
        "microbatches": microbatches,
    }
    program = made(name)
    wanted: dict[str, Any] = {
        "stages": stages,
        "microbatches": microbatches,
        "schedule": family,
        "mesh": (DEVICES // stages,),
    }
    if gather:
        found["gather"] = True
        wanted = {"plan": gathering(family, stages, microbatches)}
    step = shardc.jit(
        program.step,
        donate_argnums=program.donate_argnums,
        cluster=CLUSTER,
        time_limit_s=20,
        **wanted,
    )
    start_s = time.process_time()
    try:
        planned = step.lower(*program.args).plan()
        compiled = planned.compile()
        found["error"] = worst_error(name, compiled)
    except ShardcError as refusal:
        return found | {"refused": refusal.code, "why": refusal.message}
    measured, checked, simulated = held_bytes(name, compiled)
    plan, predicted = planned.plan, planned.plan.predicted
    assert (plan.num_stages, plan.num_microbatches) == (stages, microbatches) and not plan.unmet
    return found | {
        "in_order": in_order(compiled),
        "measured_bytes": measured,
        "checked_bytes": checked,
        "simulated_bytes": simulated,
        "actions": sum(map(len, plan.lanes)),
        "step_time_s": predicted.step_time_s,
        "idle": predicted.bubble_fraction,
        "peak_bytes": predicted.peak_bytes_per_device,
        "num_chunks": plan.num_chunks,
        "num_replicas": plan.num_replicas,
        "processor_s": round(time.process_time() - start_s, 1),
    }


def holds(found: Row) -> bool:
    """Whether numbers, order and bytes are as they must be; a refusal is no failure."""
    if "refused" in found:
        return True
    peaks_agree = found["measured_bytes"] == found["checked_bytes"] == found["simulated_bytes"]
    return found["error"] <= LIMIT and found["in_order"] and peaks_agree


def told(found: Row) -> str:
    """A row in words."""
    head = f"{found['program']:16} {found['schedule']:22}"
    if "refused" in found:
        return f"{head} refused {found['refused']}: {found['why']}"
    return (
        f"{head} {'holds' if holds(found) else 'FAILS'}  error {found['error']:.1e}"
        f"  {found['actions']} actions{'' if found['in_order'] else ' NOT IN ORDER'}"
        f"  held {found['measured_bytes']} of {found['checked_bytes']} bytes"
        f"  {1e3 * found['step_time_s']:.4g} ms  {found['idle']:.1%} idle"
    )


def table(rows: Sequence[Row]) -> str:
    """In Markdown, by program."""
    lines = [
        "| program | ran | largest error | in the order of their lanes | peaks of live bytes as"
        " checked and simulated | refused |",
        "|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(each["program"] for each in rows):
        own = [each for each in rows if each["program"] == name]
        ran = [each for each in own if "refused" not in each]
        same = [
            each["measured_bytes"] == each["checked_bytes"] == each["simulated_bytes"]
            for each in ran
        ]
        codes = sorted({each["refused"] for each in own if "refused" in each})
        refused = [
            f"{code}: {', '.join(e['schedule'] for e in own if e.get('refused') == code)}"
            for code in codes
        ]
        cells = [
            name,
            f"{len(ran)} of {len(own)}",
            f"{max((each['error'] for each in ran), default=0):.1e}",
            f"{sum(each['in_order'] for each in ran)}",
            f"{sum(same)}",
            "; ".join(refused) or "-",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def read(paths: Sequence[Path]) -> list[Row]:
    """Rows that were written before; of a pair the last one counts."""
    lines = [line for path in paths if path.exists() for line in path.read_text().splitlines()]
    found = {(each["program"], each["schedule"]): each for each in map(json.loads, lines)}
    return list(found.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    families = [name for name, family in built_in().items() if not family.moves]
    parser.add_argument("--family", nargs="*", default=families)
    parser.add_argument("--program", nargs="*", default=list(MADE), choices=list(MADE))
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--gather", action="store_true", help="gathers parameters by actions")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--table", type=Path, nargs="+", help="prints rows written before")
    asked = parser.parse_args()
    if asked.table is not None:
        print(table(read(asked.table)))
        return 0
    known = {(each["program"], each["schedule"]) for each in read([asked.out] if asked.out else [])}
    jax.config.update("jax_num_cpu_devices", DEVICES)
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_disable_most_optimizations", True)  # quicker to compile
    with tempfile.TemporaryDirectory() as passing:
        jax.config.update("jax_compilation_cache_dir", str(asked.cache or passing))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        bad = 0
        for pair in itertools.product(asked.program, asked.family):
            if pair in known:
                continue
            found = row(*pair, asked.stages, asked.microbatches, asked.gather)
            print(told(found), flush=True)
            bad += not holds(found)
            if asked.out is not None:
                with asked.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(found) + "\n")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())

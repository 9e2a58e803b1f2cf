"""Every family of schedules on real processes of this machine, beside `jax.jit`, in float64.

    python benchmarks/families_on_processes.py [--family zb-v ...] [--layout 2:2:2 ...] [--out FILE]
    python benchmarks/families_on_processes.py --table FILE ...

A layout is PROCESSES:DEVICES:STAGES, the devices being those of each process; with `:across` the
devices of every stage are in as many processes as they can be, else in as few. One job runs all
families of a layout. Each process compares the loss of three steps and its own pieces of the
state with `jax.jit`, and the actions that it ran with the lanes of the plan: of each lane on its
devices all that have a program, in the lane's order. --out appends rows of JSON; what it has is
left out.
Ends with 1 if a number differs by more than 1e-9 of a leaf's largest magnitude, or an order.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LAUNCH = [sys.executable, "-c", "from shardc.cli import main; main()", "launch"]
LAYOUTS = ("1:4:2", "2:2:2", "2:2:2:across", "2:2:4", "4:1:4", "4:2:4:across", "4:1:2:across")
LIMIT = 1e-9
LIMIT_S = 300.0  # of a job: compiling takes long where processes share a core
LAYERS_PER_STAGE = 2  # families with two stages on each device group have one in each
ROWS, TOKENS, WIDTH, MICROBATCHES, STEPS = 16, 4, 16, 8, 3
Row = dict[str, Any]


def step(state: Any, x: Any) -> Any:
    """Layers in which a token sees those before it, so that token slices run, too; momentum."""
    import jax

    def loss_of(weights: Any) -> Any:
        h = x
        for w in weights:
            h = jax.numpy.tanh(h @ w + jax.numpy.cumsum(h, 1) / TOKENS)
        return jax.numpy.mean(h**2)

    loss, gradients = jax.value_and_grad(loss_of)(state["w"])
    moved = [0.9 * m + g for m, g in zip(state["m"], gradients, strict=True)]
    return {"w": [w - 0.1 * m for w, m in zip(state["w"], moved, strict=True)], "m": moved}, loss


def initial(layers: int) -> Any:
    import numpy as np

    draw = np.random.default_rng(0)
    weights = [draw.normal(0, 0.3, (WIDTH, WIDTH)) for _ in range(layers)]
    return {"w": weights, "m": [np.zeros((WIDTH, WIDTH)) for _ in range(layers)]}


def batches() -> Any:
    import numpy as np

    return np.random.default_rng(1).normal(size=(STEPS, ROWS, TOKENS, WIDTH))


def error(got: Any, reference: Any) -> float:
    """The largest of the pieces here, as a share of the largest magnitude of their array."""
    import jax
    import numpy as np

    worst = 0.0
    for ours, whole in zip(jax.tree.leaves(got), jax.tree.leaves(reference), strict=True):
        want = np.asarray(whole)
        for piece in ours.addressable_shards:
            off = np.max(np.abs(np.asarray(piece.data) - want[piece.index]))
            worst = max(worst, float(off / max(np.max(np.abs(want)), 1e-30)))
    return worst


def own_actions(compiled: Any) -> tuple[bool, int]:
    """Whether this process ran its part of every lane in its order, and how many actions."""
    from shardc.backend.programs import Elsewhere
    from shardc.runtime.tape.build import build_tape
    from shardc.runtime.tape.instructions import Run

    tape = build_tape(compiled.executable, compiled.programs)
    here = {
        each.action
        for each in tape.instructions
        if isinstance(each, Run) and not isinstance(compiled.programs[each.program].call, Elsewhere)
    }
    ran = list(dict.fromkeys(action for action, _ in compiled.interpreter.last_trace))
    lanes = [set(lane) for lane in compiled.plan.lanes]
    in_order = compiled.executable.actions == compiled.plan.lanes and set(ran) == here
    for lane, own in zip(compiled.plan.lanes, lanes, strict=True):
        in_order &= [a for a in ran if a in own] == [a for a in lane if a in here]
    return in_order, len(ran)


def worker(layout: str, families: Sequence[str]) -> None:
    """What one process does: a line of JSON per family."""
    import jax

    import shardc
    from shardc.errors import ShardcError

    shardc.initialize()
    jax.config.update("jax_disable_most_optimizations", True)  # quicker to compile
    rank, size = jax.process_index(), jax.process_count()
    count, across = int(layout.split(":")[2]), layout.endswith("across")
    devices = sorted(
        jax.devices(), key=lambda d: (d.id % jax.local_device_count(), d.process_index)
    )
    devices = devices if across else jax.devices()
    layers = LAYERS_PER_STAGE * count
    reference, losses = initial(layers), []
    for batch in batches():
        reference, loss = jax.jit(step)(reference, batch)
        losses.append(float(loss))
    for family in families:
        trained = shardc.jit(
            step,
            donate_argnums=0,
            batch_argnums=1,
            stages=count,
            microbatches=MICROBATCHES,
            mesh=(len(devices) // count,),
            schedule=family,
            devices=devices,
            time_limit_s=20,
        )
        found: Row = {"schedule": family, "layout": layout, "rank": rank}
        try:
            compiled = trained.lower(initial(layers), batches()[0]).compile()
            state, worst = initial(layers), 0.0
            for batch, wanted in zip(batches(), losses, strict=True):
                rows = batch[rank * ROWS // size : (rank + 1) * ROWS // size]
                place = shardc.batch_sharding(devices)
                state, loss = compiled(state, jax.make_array_from_process_local_data(place, rows))
                worst = max(worst, abs(float(loss) - wanted) / abs(wanted))
            found["error"] = max(worst, error(state, reference))
            found["in_order"], found["actions"] = own_actions(compiled)
        except ShardcError as refusal:
            found |= {"refused": refusal.code, "why": refusal.message}
        os.write(1, f"{json.dumps(found)}\n".encode())  # at once: lines do not mix


def run(layout: str, families: Sequence[str], cache: Path) -> Iterator[Row]:
    """The rows of one job as they come: those of all its processes together, by family."""
    processes, devices, *_ = layout.split(":")
    command = [*LAUNCH, "-n", processes, "--devices-per-process", devices]
    command += ["--limit", str(LIMIT_S), __file__, "--worker", "--layout", layout]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    cached = {
        "JAX_ENABLE_X64": "1",
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "PYTHONPATH": paths,
    }
    job = subprocess.Popen(
        [*command, "--family", *families],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **cached},
    )
    assert job.stdout is not None, "it is a pipe"
    said: dict[str, list[Row]] = {}
    for line in filter(lambda each: each.startswith("{"), job.stdout):
        one = json.loads(line)
        own = said.setdefault(one["schedule"], [])
        own.append(one)
        if len(own) == int(processes):
            yield together(own)
    if job.wait() != 0:
        missing = next(each for each in families if len(said.get(each, ())) < int(processes))
        yield {"schedule": missing, "layout": layout, "failed": job.returncode}


def together(own: Sequence[Row]) -> Row:
    """One row of those of all processes."""
    found = {name: own[0][name] for name in ("schedule", "layout")}
    if any("refused" in each for each in own):
        return found | {name: own[0].get(name) for name in ("refused", "why")}
    return found | {
        "error": max(each["error"] for each in own),
        "in_order": all(each["in_order"] for each in own),
        "actions": [each["actions"] for each in sorted(own, key=lambda each: each["rank"])],
    }


def holds(found: Row) -> bool:
    """Whether numbers and order are as they must be; a refusal is no failure."""
    return "refused" in found or (
        "failed" not in found and found["error"] <= LIMIT and found["in_order"]
    )


def told(found: Row) -> str:
    """A row in words."""
    head = f"{found['layout']:14} {found['schedule']:22}"
    if "failed" in found:
        return f"{head} FAILS: exit code {found['failed']}"
    if "refused" in found:
        return f"{head} refused {found['refused']}: {found['why']}"
    order = "in order" if found["in_order"] else "NOT IN ORDER"
    return f"{head} {'holds' if holds(found) else 'FAILS'}  error {found['error']:.1e}  {order}"


def table(rows: Sequence[Row]) -> str:
    """In Markdown, by layout."""
    lines = [
        "| processes | devices of each | stages | a stage is in | families | largest error"
        " | tapes in the order of the lanes | refused or failed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for layout in dict.fromkeys(each["layout"] for each in rows):
        own = [each for each in rows if each["layout"] == layout]
        ran = [each for each in own if "error" in each]
        processes, devices, stages, *across = layout.split(":")
        per_stage = int(processes) * int(devices) // int(stages)
        spans = min(per_stage, int(processes)) if across else -(-per_stage // int(devices))
        rest = [f"{each['schedule']}: {each.get('refused')}" for each in own if each not in ran]
        cells = [
            *(processes, devices, stages, f"{spans} process{'es' if spans > 1 else ''}"),
            f"{len(ran)} of {len(own)}",
            f"{max((each['error'] for each in ran), default=0):.1e}",
            f"{sum(each['in_order'] for each in ran)}",
            ", ".join(rest) or "-",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def read(paths: Sequence[Path]) -> list[Row]:
    """Rows that were written before; of a pair the last one counts."""
    lines = [line for path in paths if path.exists() for line in path.read_text().splitlines()]
    found = {(each["layout"], each["schedule"]): each for each in map(json.loads, lines)}
    return list(found.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", nargs="*")
    parser.add_argument("--layout", nargs="*", default=list(LAYOUTS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, nargs="+", help="prints rows written before")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        worker(asked.layout[0], asked.family)
        return 0
    if asked.table is not None:
        print(table(read(asked.table)))
        return 0
    from shardc.schedule.families import built_in

    families = asked.family or [name for name, each in built_in().items() if not each.moves]
    known = {(each["layout"], each["schedule"]) for each in read([asked.out] if asked.out else [])}
    bad = 0
    with tempfile.TemporaryDirectory() as cache:
        for layout in asked.layout:
            wanted = [each for each in families if (layout, each) not in known]
            while wanted:
                for found in run(layout, tuple(wanted), Path(cache)):
                    print(told(found), flush=True)
                    bad += not holds(found)
                    wanted.remove(found["schedule"])
                    if asked.out is not None:
                        with asked.out.open("a", encoding="utf-8") as file:
                            file.write(f"{json.dumps(found)}\n")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())

"""What shardc costs over jax.jit: step time, planning time, host time per action.

    python benchmarks/overhead.py                         everything (long on few cores)
    python benchmarks/overhead.py --quick                 small sizes: does it run at all
    python benchmarks/overhead.py --only planning --layers 4,12
    python benchmarks/overhead.py --format json -o benchmarks/results/overhead.json

Four tables, each measured side by side in one run on 8 virtual CPU devices:

step      one training step of a GPT by `shardc.jit(stages=1, microbatches=1, mesh=...)`, with both
          lowerings, and by `jax.jit` with the shardings of the same arguments and results; for
          comparison by `jax.jit` with data parallelism by hand (batch split, state whole), too. The
          rounds are interleaved, and the ratio is the median of the ratios of the rounds, so that
          other load on the machine falls on all alike.
planning  seconds from a prepared module to a plan, by the clock and of the processor, for GPTs of
          more and more unrolled layers, without the plan cache.
analysis  processor seconds and peak memory of analysing a GPT of 100,000 ops: import (the
          child that parses included), normalise, sharding rules, FLOPs, liveness, layers.
host      processor time of the thread that drives a small pipeline, per action: what JAX takes to
          dispatch the programs, and the rest: placing arguments, transfers, accumulators, frees;
          beside a loop written by hand over the same executables and copies, in turns.

Virtual CPU devices share the cores of the machine: nothing here says how fast a plan is.
"""

import argparse
import datetime
import json
import math
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["JAX_NUM_CPU_DEVICES"] = "8"
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

import jax
import numpy as np
import optax
from gpt_model import Sizes, init, make_train_step
from jax.sharding import NamedSharding, PartitionSpec

import shardc
from shardc.analysis.program.flops import op_cost
from shardc.analysis.program.liveness import Liveness
from shardc.analysis.stages.layer_positions import layer_positions
from shardc.api.stages import Compiled
from shardc.compiler import prepare
from shardc.cutting import split
from shardc.importer.from_file import import_file
from shardc.ir.walk import main_function, ops
from shardc.plan.executable import ArgumentSpec
from shardc.planner.plan_program import plan_program
from shardc.rules.program_rules import rules_of
from shardc.runtime.interpreter import Interpreter
from shardc.runtime.tape.build import build_tape
from shardc.runtime.tape.instructions import Free, Run, Send
from shardc.runtime.transfers import Transfers

CLUSTER = Path(__file__).resolve().parents[1] / "examples" / "two_nodes.json"
MEMORY_LIMIT_BYTES = 16 << 30  # enough: planning under a tight limit is another question
SIZES = Sizes(vocabulary=512, length=64, width=256, heads=8, hidden=1024, layers=4)
LAYERS_TO_ANALYSE = 220  # 100,000 ops
SMALL = Sizes(vocabulary=64, length=8, width=16, heads=2, hidden=32, layers=2)
Row = dict[str, Any]


class Gpt:
    """A GPT with adamw: its step, states and a batch."""

    def __init__(self, sizes: Sizes, batch_size: int) -> None:
        self.sizes = sizes
        self.optimizer = optax.adamw(1e-3)
        self.step = make_train_step(self.optimizer)
        rng = np.random.default_rng(0)
        shape = (batch_size, sizes.length)
        self.batch = {
            name: rng.integers(0, sizes.vocabulary, shape).astype(np.int32)
            for name in ("tokens", "targets")
        }

    def state(self) -> dict[str, Any]:
        params = init(jax.random.key(0), self.sizes)
        return {"params": params, "optimizer": self.optimizer.init(params)}


# Step time


def user_sharding(sharding: NamedSharding | None, argument: ArgumentSpec) -> NamedSharding | None:
    """Where an argument lies, in the dims that the user sees: no dim that counts microbatches."""
    if sharding is None or argument.batch_dim is None:
        return sharding
    spec = list(sharding.spec) + [None] * (len(argument.shape) + 1 - len(sharding.spec))
    assert spec[argument.batch_dim] is None, "one microbatch cannot be split"
    del spec[argument.batch_dim]
    return NamedSharding(sharding.mesh, PartitionSpec(*spec))


def jax_step(gpt: Gpt, compiled: Compiled, outputs: Any) -> Callable[..., Any]:
    """`jax.jit` of the same step with the shardings of the compiled one."""
    found = [
        user_sharding(sharding, argument)
        for sharding, argument in zip(
            compiled.interpreter.argument_shardings, compiled.executable.arguments, strict=True
        )
    ]
    somewhere = next(each for each in found if each is not None)
    whole = NamedSharding(somewhere.mesh, PartitionSpec())
    arguments, _ = jax.tree.unflatten(compiled.in_tree, [each or whole for each in found])
    results = jax.tree.map(lambda leaf: leaf.sharding, outputs)
    return jax.jit(gpt.step, donate_argnums=0, in_shardings=arguments, out_shardings=results)


def data_parallel_step(gpt: Gpt) -> Callable[..., Any]:
    """`jax.jit` of the same step as anyone shards it by hand: the batch is split, the rest not."""
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    whole, rows = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    return jax.jit(gpt.step, donate_argnums=0, in_shardings=(whole, rows), out_shardings=whole)


def measure_step(gpt: Gpt, mesh: tuple[int, ...], rounds: int) -> Row:
    """Median step times, and the median ratios of the rounds."""
    options = {"stages": 1, "microbatches": 1, "mesh": mesh, "cluster": str(CLUSTER)}
    options["memory_limit_bytes"] = MEMORY_LIMIT_BYTES
    planned = shardc.jit(gpt.step, donate_argnums=0, **options).lower(gpt.state(), gpt.batch).plan()
    local = planned.compile()
    by_xla = shardc.jit(gpt.step, donate_argnums=0, plan=planned.plan, lowering="xla")
    partitioned = by_xla.lower(gpt.state(), gpt.batch).compile()
    outputs = local(gpt.state(), gpt.batch)
    steps: dict[str, Callable[..., Any]] = {
        "jax.jit": jax_step(gpt, local, outputs),
        "local": local,
        "xla": partitioned,
        "by_hand": data_parallel_step(gpt),
    }
    states = {}
    losses = {}
    for name, step in steps.items():
        states[name], losses[name] = jax.block_until_ready(step(gpt.state(), gpt.batch))
        states[name], _ = jax.block_until_ready(step(states[name], gpt.batch))
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds):
        for name in list(steps) if number % 2 == 0 else reversed(steps):
            start = time.perf_counter()
            states[name], _ = jax.block_until_ready(steps[name](states[name], gpt.batch))
            seconds[name].append(time.perf_counter() - start)
    row: Row = {"mesh": "x".join(map(str, mesh)), "rounds": rounds}
    for name, found in seconds.items():
        row[f"{name}_ms"] = 1e3 * statistics.median(found)
    for name in ("local", "xla"):
        ratios = [a / b for a, b in zip(seconds[name], seconds["jax.jit"], strict=True)]
        row[f"{name}_over_jax"] = statistics.median(ratios)
        row[f"{name}_over_jax_best"] = min(seconds[name]) / min(seconds["jax.jit"])
    by_hand = [a / b for a, b in zip(seconds["local"], seconds["by_hand"], strict=True)]
    row["local_over_by_hand"] = statistics.median(by_hand)
    row["loss_difference"] = max(abs(float(x) - float(losses["jax.jit"])) for x in losses.values())
    return row


# Planning time


def measure_planning(gpt: Gpt, num_stages: int, num_microbatches: int, time_limit_s: float) -> Row:
    """Seconds of one planning, from the flat module on."""
    state = jax.eval_shape(gpt.state)
    lowered = shardc.jit(
        gpt.step,
        donate_argnums=0,
        cluster=str(CLUSTER),
        stages=num_stages,
        microbatches=num_microbatches,
        memory_limit_bytes=MEMORY_LIMIT_BYTES,
        time_limit_s=time_limit_s,
    ).lower(state, gpt.batch)
    module = lowered.imported.module
    prepare(module)
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    plan = plan_program(module, lowered.cluster, lowered.options)
    wall_s, cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
    return {
        "layers": gpt.sizes.layers,
        "ops": len(module.body.operations[0].regions[0].blocks[0].operations),
        "stages": plan.num_stages,
        "planning_s": wall_s,
        "cpu_s": cpu_s,
        "objective_ms": 1e3 * plan.objective,
        "gap": 1.0 - plan.lower_bound / plan.objective,
    }


def growth(rows: Sequence[Row]) -> float | None:
    """Exponent p of the fit cpu_s ~ layers^p; 1.0 is linear. None for fewer than two sizes."""
    if len(rows) < 2:
        return None
    x = [math.log(row["layers"]) for row in rows]
    y = [math.log(row["cpu_s"]) for row in rows]
    return statistics.linear_regression(x, y).slope


# Analysis


def cpu_s() -> float:
    """Processor seconds of this process and of the children that it has waited for."""
    own, children = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def measure_analysis(gpt: Gpt) -> Row:
    """What it takes to know a program before any decision, from its text on."""
    tokens = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in gpt.batch.items()}
    lowered = jax.jit(gpt.step, donate_argnums=0).lower(jax.eval_shape(gpt.state), tokens)
    row: Row = {"layers": gpt.sizes.layers, "ops": 0}
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "gpt.mlir"
        path.write_text(lowered.as_text())
        start = first = cpu_s()

        def lap(name: str) -> None:
            nonlocal start
            row[f"{name}_s"], start = cpu_s() - start, cpu_s()

        module = import_file(path).module
        lap("import")
    prepare(module)
    lap("normalise")
    split_module = split(module, 1, None)
    lap("microbatches")
    function = main_function(split_module.operation)
    row["ops"] = len(ops(function))
    with split_module.context:
        rules_of(split_module.operation)
        lap("rules")
        sum(op_cost(op).flops for op in ops(function))
        lap("flops")
        Liveness(function)
        lap("liveness")
    with split_module.context:
        layer_positions(split_module.operation)
    lap("layers")
    row["all_s"] = cpu_s() - first
    row["peak_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    return row


# Host time


class Timed:
    """A compiled call that adds up the time its thread spends in it."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call
        self.spent_ns = 0

    def __call__(self, *args: Any) -> Any:
        start = time.thread_time_ns()
        results = self.call(*args)
        self.spent_ns += time.thread_time_ns() - start
        return results


class HandLoop:
    """What one would write by hand for this one pipeline: its calls and copies, and nothing else.

    No argument is checked, no result copied, nothing recorded; the state lies in its place.
    """

    def __init__(self, compiled: Compiled) -> None:
        executable, programs = compiled.executable, compiled.programs
        self.tape = build_tape(executable, programs)
        interpreter = compiled.interpreter
        self.template = interpreter._template
        self.zeros = interpreter._zeros
        places = interpreter._shardings
        self.places = [None if slot is None else places[slot] for slot in self.tape.primary]
        transfers = Transfers()
        self.lines: list[tuple[Any, ...]] = []
        for each in self.tape.instructions:
            if isinstance(each, Run):
                self.lines.append((0, programs[each.program].call, each.args, each.results))
            elif isinstance(each, Send):
                for a, b in self.tape.messages[each.message].moves:
                    slot = self.tape.slots[b]
                    move = transfers.find(places[a], places[b], slot.shape, slot.dtype)
                    self.lines.append((1, move, a, b))
            elif isinstance(each, Free):
                self.lines.append((2, None, each.slots, ()))

    def placed(self, flat: Sequence[Any]) -> list[Any]:
        """The state, copied to its place."""
        own = zip(flat, self.places, strict=False)
        return [jax.device_put(jax.numpy.copy(value), place) for value, place in own]

    def __call__(self, state: Sequence[Any], batch: Sequence[Any]) -> list[Any]:
        env = list(self.template)
        slots, first = self.tape.primary, len(state)
        for slot, value in zip(slots, state, strict=False):
            env[slot] = value
        shapes = [self.tape.slots[slot].shape for slot in slots[first:]]
        rows = [value.reshape(shape) for value, shape in zip(batch, shapes, strict=True)]
        copies = jax.device_put(rows, self.places[first:])
        for slot, copy in zip(slots[first:], copies, strict=True):
            env[slot] = copy
        for own, zeros in self.zeros:
            for slot, zero in zip(own, zeros(), strict=True):
                env[slot] = zero
        for kind, work, here, there in self.lines:
            if kind == 0:
                for slot, value in zip(there, work(*[env[i] for i in here]), strict=True):
                    env[slot] = value
            elif kind == 1:
                env[there] = work(env[here])
            else:
                for slot in here:
                    env[slot] = None
        return [env[slot] for slot in self.tape.results]


def measure_host(gpt: Gpt, num_stages: int, num_microbatches: int, rounds: int) -> Row:
    """Time of the driving thread per action; a step is waited for before the next one begins."""
    compiled = (
        shardc.jit(
            gpt.step,
            donate_argnums=0,
            cluster=str(CLUSTER),
            stages=num_stages,
            microbatches=num_microbatches,
            schedule="1f1b",
        )
        .lower(gpt.state(), gpt.batch)
        .compile()
    )
    by_hand = HandLoop(compiled)
    calls = [Timed(program.call) for program in compiled.programs]
    timed = Interpreter(
        compiled.executable,
        [replace(p, call=call) for p, call in zip(compiled.programs, calls, strict=True)],
    )
    flat, _ = jax.tree.flatten(((gpt.state(), gpt.batch), {}))
    num_state = len(jax.tree.leaves(gpt.state()))
    totals, dispatches, loops = [], [], []
    hand_state = by_hand.placed(flat[:num_state])
    for number in range(rounds + 3):
        for call in calls:
            call.spent_ns = 0
        start = time.thread_time_ns()
        results = timed(flat)
        spent = time.thread_time_ns() - start
        jax.block_until_ready(results)
        flat[:num_state] = results[:num_state]
        start = time.thread_time_ns()
        results = by_hand(hand_state, flat[num_state:])
        loop = time.thread_time_ns() - start
        jax.block_until_ready(results)
        hand_state = results[:num_state]
        if number >= 3:
            loops.append(loop)
            totals.append(spent)
            dispatches.append(sum(call.spent_ns for call in calls))
    actions = len(timed.last_trace)
    total, dispatch = statistics.median(totals), statistics.median(dispatches)
    ratios = [a / b for a, b in zip(totals, loops, strict=True)]
    return {
        "stages": num_stages,
        "microbatches": num_microbatches,
        "actions": actions,
        "us_per_action": total / actions / 1e3,
        "dispatch_us": dispatch / actions / 1e3,
        "rest_us": (total - dispatch) / actions / 1e3,
        "by_hand_us": statistics.median(loops) / actions / 1e3,
        "over_by_hand": statistics.median(ratios),
    }


# Report


def machine() -> Row:
    """What the numbers were measured on; no names of hosts."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "shardc": shardc.__version__,
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "load_average": [round(load, 1) for load in os.getloadavg()],
        "devices": jax.device_count(),
    }


def table(rows: Sequence[Row]) -> str:
    """Columns of the rows, aligned."""
    names = list(rows[0])
    lines = [names]
    for row in rows:
        values = (row[name] for name in names)
        lines.append([f"{v:.4g}" if isinstance(v, float) else str(v) for v in values])
    widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def mesh_shape(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("x"))


def arguments(argv: Iterable[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ("step", "planning", "analysis", "host")
    parser.add_argument("--only", action="append", choices=parts, help="leave out the others")
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds")
    parser.add_argument("--layers", type=numbers, help="of the GPTs to plan; default 4,12,24,48")
    parser.add_argument("--mesh", type=mesh_shape, action="append", help="default 8 and 2x4")
    parser.add_argument("--rounds", type=int, help="of step and host; default 15")
    parser.add_argument("--stages", type=int, default=2, help="of planning and host")
    parser.add_argument("--microbatches", type=int, default=4, help="of planning and host")
    parser.add_argument("--time-limit", type=float, default=60.0, help="of one planning, seconds")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument("-o", "--output", type=Path, help="write the JSON here too")
    options = parser.parse_args(argv)
    options.only = options.only or list(parts)
    options.layers = options.layers or ((2, 4) if options.quick else (4, 12, 24, 48))
    options.mesh = options.mesh or ([(8,)] if options.quick else [(8,), (2, 4)])
    options.rounds = options.rounds or (3 if options.quick else 15)
    return options


def main() -> None:
    options = arguments()
    report: Row = {"machine": machine()}
    quiet = options.format == "json"

    def show(text: str) -> None:
        if not quiet:
            print(text, flush=True)

    show(", ".join(f"{name} {value}" for name, value in report["machine"].items()))
    if "step" in options.only:
        gpt = Gpt(SMALL if options.quick else SIZES, batch_size=32)
        report["step"] = []
        show("\nstep: shardc.jit(stages=1, microbatches=1) over jax.jit with the same shardings")
        for mesh in options.mesh:
            report["step"].append(measure_step(gpt, mesh, options.rounds))
            show(table(report["step"][-1:]))
    if "host" in options.only:
        gpt = Gpt(SMALL, batch_size=32)
        report["host"] = [
            measure_host(gpt, options.stages, options.microbatches, 4 * options.rounds)
        ]
        show("\nhost: time of the driving thread per action, medians over steps")
        show(table(report["host"]))
    if "analysis" in options.only:
        show("\nanalysis: processor seconds before any decision")
        layers = 4 if options.quick else LAYERS_TO_ANALYSE
        report["analysis"] = [measure_analysis(Gpt(replace(SMALL, layers=layers), batch_size=32))]
        show(table(report["analysis"]))
    if "planning" in options.only:
        report["planning"] = []
        show(f"\nplanning: {options.stages} stages, {options.microbatches} microbatches")
        for layers in options.layers:
            gpt = Gpt(replace(SMALL if options.quick else SIZES, layers=layers), batch_size=32)
            row = measure_planning(gpt, options.stages, options.microbatches, options.time_limit)
            report["planning"].append(row)
            show(table([row]))
        report["planning_growth"] = growth(report["planning"])
        if report["planning_growth"] is not None:
            show(f"processor time grows like layers^{report['planning_growth']:.2f}")
    if quiet:
        print(json.dumps(report, indent=1))
    if options.output is not None:
        options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Where the time from a cold call to the end of the first step goes, beside jax.jit.

    python benchmarks/first_step.py [--layers 4] [--width 128] [--devices 8]

Each row is a process of its own, with its own caches: cold (no plan kept), cached (the plan kept,
XLA's programs too), and jax.jit with data parallelism. Prints a table in Markdown for docs: seconds
by the clock, and of the processor in brackets, which other work on the machine changes little.
`modules` is the import of Python modules. `state` is the user's code, which compiles the model's
random numbers one op at a time; `step` is the sum of what follows it, from the call to the end of
the first step. Planning is in three columns: `import` brings the program into the form that shardc
works on, `solving` is the time inside the solvers, `analysis` is all else.
"""

import argparse
import compileall
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

STEP = ("trace", "import", "analysis", "solving", "lower", "compile", "first run")
PHASES = ("modules", "state", *STEP)
IMPORTING = ("shardc.compiler:prepare",)
SOLVING = (
    "shardc.planner.prices.layer_costs:solve_once",
    "shardc.passes.plan_shardings:solve_once",
    "shardc.planner.pipelines.lines:plan_stages",
    "shardc.planner.pipelines.unequal:plan_stages",
    "shardc.planner.island_search:plan_stages",
    "shardc.passes.plan_residency:kept_cuts",
    "shardc.analysis.stages.stage_cuts:cluster_layers",
    "shardc.analysis.stages.backward_split:kept_values",
)


class Stopwatch:
    """Adds up the time of all calls of some functions: by the clock, and of the processor."""

    def __init__(self, names: Sequence[str]) -> None:
        self.seconds = [0.0, 0.0]
        self._depth = 0
        for name in names:
            module, _, function = name.partition(":")
            owner = importlib.import_module(module)
            setattr(owner, function, self._timed(getattr(owner, function)))

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start, self._depth = (time.perf_counter(), time.process_time()), self._depth + 1
            try:
                return function(*args, **kwargs)
            finally:
                self._depth -= 1
                if not self._depth:  # a solver may call another
                    now = time.perf_counter(), time.process_time()
                    for n in range(2):
                        self.seconds[n] += now[n] - start[n]

        return timed


def measured(kind: str, layers: int, width: int, devices: int) -> dict[str, list[float]]:
    """Seconds of each phase in this process: by the clock, and of the processor."""
    start = time.perf_counter(), time.process_time()
    found: dict[str, list[float]] = {}

    def done(phase: str) -> None:
        nonlocal start
        now = time.perf_counter(), time.process_time()
        found[phase] = [now[0] - start[0], now[1] - start[1]]
        start = now

    import jax
    import numpy as np
    import optax
    from gpt_model import Sizes, init, make_train_step
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    import shardc

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", devices)
    importing, solving = Stopwatch(IMPORTING), Stopwatch(SOLVING)
    done("modules")
    sizes = Sizes(512, 64, width, 8, 4 * width, layers)
    optimizer = optax.adamw(1e-3)
    step = make_train_step(optimizer)
    params = init(jax.random.key(0), sizes)
    state = {"params": params, "optimizer": optimizer.init(params)}
    batch = {name: np.zeros((32, 64), np.int32) for name in ("tokens", "targets")}
    jax.block_until_ready(state)
    done("state")
    if kind == "jax.jit":
        mesh = jax.make_mesh((devices,), ("x",), axis_types=(AxisType.Auto,))
        rows = NamedSharding(mesh, PartitionSpec("x"))
        state = jax.device_put(state, NamedSharding(mesh, PartitionSpec()))
        lowered = jax.jit(step, donate_argnums=0).lower(state, jax.device_put(batch, rows))
        done("trace")
        compiled = lowered.compile()
        done("compile")
        jax.block_until_ready(compiled(state, jax.device_put(batch, rows)))
    else:
        traced = shardc.jit(step, donate_argnums=0).lower(state, batch)
        done("trace")
        planned = traced.plan()
        done("analysis")
        found["import"], found["solving"] = importing.seconds[:], solving.seconds[:]
        for n in range(2):
            found["analysis"][n] -= found["import"][n] + found["solving"][n]
        assert planned.executable
        done("lower")
        ready = planned.compile()
        done("compile")
        jax.block_until_ready(ready(state, batch))
    done("first run")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--kind", help="run one row in this process, and print it as JSON")
    given = parser.parse_args()
    sizes = (given.layers, given.width, given.devices)
    if given.kind:
        print(json.dumps(measured(given.kind, *sizes)))
        return
    # As pip does when it installs: what is measured is no compiler of Python.
    root = Path(__file__).resolve().parents[1]
    compileall.compile_dir(root / "shardc", quiet=2)
    print(f"| | {' | '.join(PHASES)} | step |\n|---|{'---:|' * (len(PHASES) + 1)}")
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("jax.jit", "cold", "cached"):
            own = Path(folder) / ("jax" if kind == "jax.jit" else "shardc")
            environment = {
                **os.environ,
                "SHARDC_CACHE_DIR": str(own),
                "JAX_COMPILATION_CACHE_DIR": str(own / "xla"),
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "SHARDC_PROGRESS": "0",
            }
            numbers = ["--layers", "--width", "--devices"]
            options = [text for pair in zip(numbers, map(str, sizes), strict=True) for text in pair]
            output = subprocess.run(
                [sys.executable, __file__, "--kind", kind, *options],
                env=environment,
                check=True,
                capture_output=True,
                text=True,
            ).stdout
            row = json.loads(output.splitlines()[-1])
            steps = [row[phase] for phase in STEP if phase in row]
            row["step"] = [sum(each) for each in zip(*steps, strict=True)]
            cells = [
                f"{row[phase][0]:.1f} ({row[phase][1]:.1f})" if phase in row else ""
                for phase in (*PHASES, "step")
            ]
            print(f"| {kind} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

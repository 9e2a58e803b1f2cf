"""How long it takes to plan one training step of a GPT for one mesh, and how good that plan is.

    python benchmarks/planning.py                       24 layers of width 2048; 96 as in GPT-3
    python benchmarks/planning.py --models 24           the first of them only
    python benchmarks/planning.py --equal-layers relaxed,tied,free
    python benchmarks/planning.py --format json -o benchmarks/results/planning.json

The step (forward, backward, adamw, float32) is traced with abstract values and written as StableHLO
text, which is not counted; then `shardc plan --stages 1 --mesh 8x8` runs as a process of its own,
which is: start, import, analysis, solver, the plan as JSON. None of the devices is needed.

gap is how far the plan may be from the cheapest one of the model (proven); folding is what it may
cost at most that equal layers share their shardings (proven; of the best such choice found).
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

import jax
import numpy as np
import optax
from gpt_model import Sizes, init, make_train_step

ROOT = Path(__file__).resolve().parents[1]
CLUSTER, MESH = "h100-64", "8x8"
Row = dict[str, Any]


@dataclass(frozen=True)
class Model:
    """A GPT and how it is trained.

    Attributes:
        memory_limit: per device; None: the cluster's. Without recomputation, GPT-3's activations
            do not fit into 64 GPUs; how long planning takes is told by any limit that can be met.
    """

    sizes: Sizes
    batch: int
    memory_limit: str | None = None


MODELS = {
    24: Model(Sizes(51200, 1024, 2048, 16, 8192, 24), batch=64),
    96: Model(Sizes(51200, 2048, 12288, 96, 49152, 96), batch=4, memory_limit="400GB"),
}


def step_text(model: Model) -> str:
    """StableHLO of one training step; nothing is allocated."""
    optimizer = optax.adamw(1e-3)

    def state() -> Row:
        params = init(jax.random.key(0), model.sizes)
        return {"params": params, "optimizer": optimizer.init(params)}

    tokens = jax.ShapeDtypeStruct((model.batch, model.sizes.length), np.int32)
    batch = {"tokens": tokens, "targets": tokens}
    step = jax.jit(make_train_step(optimizer), donate_argnums=0)
    return step.lower(jax.eval_shape(state), batch).as_text()


def plan(path: Path, model: Model, equal_layers: str, time_limit_s: float) -> Row:
    """What `shardc plan` of a file takes and says."""
    command = [sys.executable, "-c", "from shardc.cli import main; raise SystemExit(main())"]
    command += ["plan", str(path), "--cluster", CLUSTER, "--stages", "1", "--mesh", MESH]
    command += ["--equal-layers", equal_layers, "--time-limit", f"{time_limit_s:g}"]
    command += ["--no-cache", "--format", "json"]
    if model.memory_limit is not None:
        command += ["--memory-limit", model.memory_limit]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    start_s = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(command, stdout=output, env={**os.environ, "PYTHONPATH": paths})
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start_s
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            raise SystemExit(f"shardc plan ended with exit code {child.returncode}")
        output.seek(0)
        answer = json.load(output)
    (stage,) = answer["stages"]
    bound, folded = answer["lower_bound"], stage["folded_objective"]
    return {
        "layers": model.sizes.layers,
        "width": model.sizes.width,
        "ops": answer["num_ops"],
        "equal_layers": equal_layers,
        "seconds": round(seconds, 1),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_gib": round(usage.ru_maxrss / (1 << 20), 2),
        "microbatches": answer["num_microbatches"],
        "step_s": answer["predicted_step_time_s"],
        "gap": 1.0 - bound / answer["objective"],
        "folded": stage["num_folded"],
        "folding": None if folded is None or not bound else folded / bound - 1.0,
        "load": round(os.getloadavg()[0], 1),
    }


def line(row: Row) -> str:
    folding = "-" if row["folding"] is None else f"{row['folding']:.2%}"
    return (
        f"{row['layers']:6} {row['width']:6} {row['ops']:7} {row['equal_layers']:>12}"
        f" {row['seconds']:8} {row['cpu_s']:6} {row['peak_gib']:5} GiB"
        f" {1e3 * row['step_s']:9.1f} ms {row['gap']:8.2%} {row['folded']:7} {folding:>8}"
    )


def arguments(argv: Iterable[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default="24,96", help="numbers of layers: 24, 96 or both")
    parser.add_argument("--equal-layers", default="relaxed", help="relaxed, tied, free")
    parser.add_argument("--time-limit", type=float, default=60.0, help="of planning, seconds")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument("-o", "--output", type=Path, help="write the JSON here too")
    return parser.parse_args(None if argv is None else list(argv))


def main() -> None:
    options = arguments()
    report: Row = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "cluster": CLUSTER,
        "mesh": MESH,
        "time_limit_s": options.time_limit,
        "plans": [],
    }
    if options.format == "table":
        head = "layers  width     ops equal-layers  seconds of CPU       RSS         step"
        print(f"{head}      gap  folded  folding")
    for layers in map(int, options.models.split(",")):
        model = MODELS[layers]
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / f"gpt{layers}.mlir"
            path.write_text(step_text(model))
            for equal_layers in options.equal_layers.split(","):
                report["plans"].append(plan(path, model, equal_layers, options.time_limit))
                if options.format == "table":
                    print(line(report["plans"][-1]), flush=True)
    text = json.dumps(report, indent=1)
    if options.format == "json":
        print(text)
    if options.output is not None:
        options.output.write_text(text + "\n")


if __name__ == "__main__":
    main()

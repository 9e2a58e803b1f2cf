"""Alpa's GPT, experts and Wide-ResNet on 1 to 64 V100s: chosen plans, forced ones and Alpa's.

    python benchmarks/alpa_grid.py [--only gpt,moe,wresnet] [--devices 1,8] [--planned 3] [-o FILE]

Each row is a model of Alpa's evaluation (OSDI 2022, table 4 and figure 7) on as many devices as it
had there: the plan of the search beside the best of the grid of `forced_grid.py`, then the
published plan, priced as a plan by hand without a limit of memory, and its measured time. A ratio
above 1.005 is a miss of the search. Plans of Alpa's GPTs are rows of `published/alpa_gpt.csv`; on
8 devices none is published.
"""

import argparse
import csv
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import msgspec
from alpa import NO_LIMIT, predicted_s, v100s
from alpa import rows as published_plans
from alpa_models import Experts, WideResNet, experts_step, wide_resnet_step
from forced_grid import Row, line, row_of
from planning_speed import Case, Sizes, step_text

from shardc.cluster import Cluster
from shardc.errors import ShardcError
from shardc.importer.from_file import import_file
from shardc.ir.context import Module
from shardc.options import PlanOptions
from shardc.plan.stages_spec import StageSpec, StagesSpec
from shardc.planner.hand.hand_plan import hand_plan

CLUSTER = "alpa-megatron"
# Of GPT: hidden, heads and layers.
GPT = {
    1: (1024, 16, 24),
    2: (1536, 16, 24),
    4: (2048, 32, 24),
    8: (2560, 32, 32),
    16: (4096, 32, 32),
    32: (5120, 40, 48),
    64: (8192, 64, 48),
}


def gpt_text(devices: int) -> str:
    hidden, heads, layers = GPT[devices]
    sizes = Sizes(51200, 1024, hidden, heads, 4 * hidden, layers)
    return step_text(Case("", sizes, 1024, CLUSTER, 1))


def text_of(model: str, sizes: dict[str, Any]) -> str:
    """The step of an Alpa row of `published/alpa_plans.json` as StableHLO."""
    if model == "moe":
        step, arguments = experts_step(Experts(**sizes))
    else:
        step, arguments = wide_resnet_step(WideResNet(**sizes | {"blocks": tuple(sizes["blocks"])}))
    return jax.jit(step, donate_argnums=0).lower(*arguments).as_text()


def imported(text: str) -> Module:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.mlir"
        path.write_text(text)
        return import_file(path).module


def published_gpt(module: Module, cluster: Cluster) -> Row:
    """Alpa's plan of a prepared GPT, the seconds predicted for it, and the measured ones."""
    path = Path(__file__).parent / "published" / "alpa_gpt.csv"
    with path.open() as file:
        rows = [each for each in csv.DictReader(file) if each["system"] == "alpa"]
    for each in rows:
        if int(each["num_devices"]) == cluster.num_devices:
            mesh = int(each["data"]), int(each["tensor"])
            count = int(each["global_batch"]) // (mesh[0] * int(each["microbatch_size"]))
            stages = (StageSpec(mesh=mesh, recompute="user"),) * int(each["pipeline"])
            spec = StagesSpec(1, stages, microbatches=count)
            options = PlanOptions(memory_limit_bytes=NO_LIMIT)
            plan = hand_plan(module, cluster, options, spec)
            words = f"{len(stages)} x ({mesh[0]}x{mesh[1]}), {count}"
            measured_s = float(each["iteration_time_ms"]) / 1e3
            return _published(words, plan.predicted.step_time_s, measured_s)
    return {}


def _published(words: str, predicted: float, measured_s: float) -> Row:
    return {"published": words, "published_s": predicted, "measured_s": measured_s}


def grid_rows(only: list[str], devices: list[int] | None, most: int, planned: int) -> list[Row]:
    """One for each model and number of devices, printed as they come."""
    whole, found = v100s(CLUSTER), []
    known = [each for each in published_plans() if each.system == "alpa"]
    models = [("gpt", size, None) for size in GPT]
    for model, size, plan in [*models, *((each.model, each.devices, each) for each in known)]:
        if model not in only or (devices is not None and size not in devices):
            continue
        cluster = msgspec.structs.replace(whole.with_devices(size), name=f"{size} V100s")
        text = gpt_text(size) if plan is None else text_of(model, plan.sizes)
        module = imported(text)
        each = row_of(model, module, cluster, most, planned)  # which prepares the module
        try:
            if plan is None:
                each |= published_gpt(module, cluster)
            else:
                shapes = [stage.mesh for stage in plan.stages for _ in range(stage.times)]
                words = f"{len(shapes)} x ({'x'.join(map(str, shapes[0]))}), {plan.microbatches}"
                each |= _published(words, predicted_s(plan, whole), plan.seconds)
        except ShardcError as error:
            each["published"] = error.message
        found.append(each)
        print(line(each), flush=True)
        if "published_s" in each:
            print(
                f"{'':9} Alpa's plan {each['published_s']:.2f} s ({each['published']}),"
                f" measured {each['measured_s']:.1f} s",
                flush=True,
            )
        jax.clear_caches()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="gpt,moe,wresnet")
    parser.add_argument("--devices", help="only rows on so many, such as 1,8")
    parser.add_argument("--most-stages", type=int, default=16)
    parser.add_argument("--planned", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path, help="write the rows here as JSON, too")
    asked = parser.parse_args()
    devices = [int(each) for each in asked.devices.split(",")] if asked.devices else None
    rows = grid_rows(asked.only.split(","), devices, asked.most_stages, asked.planned)
    if asked.output is not None:
        asked.output.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(0 if rows else 1)


if __name__ == "__main__":
    main()

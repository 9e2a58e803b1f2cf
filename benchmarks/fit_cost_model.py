"""Fits the constants of a cluster file to measured runs, without compiling them again.

    python benchmarks/measured.py FILE.csv --features features.jsonl      once, compiles each run
    python benchmarks/fit_cost_model.py features.jsonl... --cluster a100-megatron -o fitted.json

What each stage of each run asks of its devices is priced by the cost model of a candidate cluster
and its schedule is simulated, as the planner does it. The logarithms of the constants are fitted to
the logarithms of predicted over measured, robustly (soft L1 from 5 % on). --leave-out fits once for
each hidden size, without its runs, and scores it on them.
"""

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from measured import score
from scipy.optimize import least_squares

from shardc.cluster import Cluster
from shardc.cost.model import CostModel
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import Mesh
from shardc.plan.predicted import Asked, StageReport
from shardc.planner.step_time import stage_times
from shardc.schedule.registry import schedule_named
from shardc.schedule.simulate import simulate
from shardc.schedule.times import durations
from shardc.schedule.work import Work

# Constant -> bounds. Those of the device stand in its timing, the others in a level of links.
DEVICE = {
    "half_depth": (1.0, 2000.0),
    "unaligned": (0.1, 1.0),
    "launch_s": (1e-7, 3e-5),
    "dispatch_s": (1e-7, 1e-3),
    "wait_s": (1e-7, 1e-3),
    "action_s": (1e-7, 1e-2),
    "transfer_efficiency": (0.03, 1.0),
}
LINKS = {
    ("node", "launch_s"): (1e-6, 1e-3),
    ("network", "efficiency"): (0.2, 1.0),
    ("network", "shared"): (0.1, 1.0),
}


class Features(NamedTuple):
    """A run as `measured.features` wrote it."""

    alike: tuple[int, ...]
    measured_s: float
    num_devices: int
    work: Work
    schedule: str
    meshes: tuple[Mesh, ...]
    asked: tuple[dict[FunctionKind, Asked], ...]
    boundary_bytes: dict[tuple[int, int], int]


def load(paths: Sequence[Path]) -> list[Features]:
    """The runs of files that were measured, each once."""
    found: dict[str, Features] = {}
    for path in paths:
        for line in path.read_text().splitlines():
            raw = json.loads(line)
            if raw["measured_s"] is None:
                continue
            meshes = msgspec.convert(raw["meshes"], tuple[Mesh, ...])
            kinds = {kind for stage in raw["asked"] for kind in stage}
            base = Work(
                len(meshes) // raw["sizes"][3],
                raw["num_microbatches"],
                prologue=FunctionKind.BEFORE in kinds,
                update_rounds=int(FunctionKind.UPDATE in kinds),
            )
            found[json.dumps([raw["alike"], raw["sizes"]])] = Features(
                tuple(raw["alike"]),
                raw["measured_s"],
                raw["num_devices"],
                schedule_named(raw["schedule"]).work(base, raw["sizes"][3]),
                raw["schedule"],
                meshes,
                msgspec.convert(raw["asked"], tuple[dict[FunctionKind, Asked], ...]),
                {(a, b): n for a, b, n in raw["boundary_bytes"]},
            )
    return list(found.values())


class Runs:
    """Runs, priced under any cluster.

    Equal calls of functions are priced once: middle stages of a pipeline ask for the same.
    """

    def __init__(self, runs: Sequence[Features]) -> None:
        self.runs = list(runs)
        self.number: dict[Asked, int] = {}
        for run in self.runs:
            for asked in run.asked:
                for each in asked.values():
                    self.number.setdefault(each, len(self.number))
        self.numbers = [
            [{kind: self.number[each] for kind, each in asked.items()} for asked in run.asked]
            for run in self.runs
        ]
        self.measured_s = np.array([run.measured_s for run in runs])

    def predicted_s(self, cluster: Cluster) -> Any:
        """Seconds of each run."""
        models: dict[int, CostModel] = {}
        known: dict[Any, float] = {}
        return np.array(
            [
                self._seconds(run, numbers, cluster, models, known)
                for run, numbers in zip(self.runs, self.numbers, strict=True)
            ]
        )

    def _seconds(
        self,
        run: Features,
        numbers: Sequence[dict[FunctionKind, int]],
        cluster: Cluster,
        models: dict[int, CostModel],
        known: dict[Any, float],
    ) -> float:
        if run.num_devices not in models:
            models[run.num_devices] = CostModel(cluster.with_devices(run.num_devices))
        model = models[run.num_devices]
        links = tuple(model.links(run.meshes[0]).items())  # the meshes of a run are alike
        sizes = run.meshes[0].axes
        reports = []
        for mesh, asked, number in zip(run.meshes, run.asked, numbers, strict=True):
            seconds = {}
            for kind, each in asked.items():
                key = number[kind], sizes, links
                if key not in known:
                    known[key] = model.call_s(each, mesh)
                seconds[kind] = known[key]
            reports.append(StageReport(seconds, 0, 0, 0, 0.0, 0.0, asked=asked))
        between: dict[tuple[int, int], float] = defaultdict(float)
        for (a, b), n in run.boundary_bytes.items():
            way = a % run.work.num_groups, b % run.work.num_groups
            sent_s = model.transfer_s(run.meshes[a], run.meshes[b], n)
            between[way] = max(between[way], sent_s)
        family = schedule_named(run.schedule)
        schedule = family.generate(run.work)
        times = [
            stage_times(report, mesh, run.work, model)
            for report, mesh in zip(reports, run.meshes, strict=True)
        ]
        found = simulate(
            schedule,
            family.graph(run.work, schedule),
            durations(run.work, times),
            lambda need: between[need.source, need.target],
            overlap=cluster.device.timing.transfers_overlap,
        )
        return float(found.makespan_s) + cluster.device.timing.step_s


def with_constants(cluster: Cluster, constants: dict[Any, float]) -> Cluster:
    """The cluster with other numbers for some of its constants."""
    own = {name: value for name, value in constants.items() if isinstance(name, str)}
    timing = msgspec.structs.replace(cluster.device.timing, **own)
    device = msgspec.structs.replace(cluster.device, timing=timing)
    levels = []
    for level in cluster.levels:
        changes = {
            name[1]: value
            for name, value in constants.items()
            if not isinstance(name, str) and name[0] == level.name
        }
        levels.append(msgspec.structs.replace(level, **changes))
    return msgspec.structs.replace(cluster, device=device, levels=tuple(levels))


def constants_of(cluster: Cluster, names: Sequence[Any]) -> list[float]:
    """What a cluster says now."""
    levels = {level.name: level for level in cluster.levels}
    return [
        getattr(cluster.device.timing, name)
        if isinstance(name, str)
        else getattr(levels[name[0]], name[1])
        for name in names
    ]


def fit(runs: Sequence[Features], cluster: Cluster, names: Sequence[Any], rounds: int) -> Cluster:
    """The cluster whose constants `names` explain the runs best."""
    bounds = [(DEVICE | LINKS)[name] for name in names]
    low, high = (np.log([b[i] for b in bounds]) for i in (0, 1))
    start = np.clip(np.log(np.maximum(constants_of(cluster, names), 1e-12)), low, high)
    data = Runs(runs)

    def misses(z: Any) -> Any:
        constants = dict(zip(names, map(float, np.exp(z)), strict=True))
        return np.log(data.predicted_s(with_constants(cluster, constants)) / data.measured_s)

    margin = 1e-3 * (high - low)
    start = np.clip(start, low + margin, high - margin)
    found = least_squares(
        misses,
        start,
        bounds=(low, high),
        loss="soft_l1",
        f_scale=0.05,
        max_nfev=rounds,
        diff_step=1e-2,
    )
    return with_constants(cluster, dict(zip(names, map(float, np.exp(found.x)), strict=True)))


def scored(runs: Sequence[Features], predicted_s: Any) -> dict[str, Any]:
    """As `measured.score`, of predictions without compiling."""
    rows = []
    for run, seconds in zip(runs, predicted_s, strict=True):
        layers, hidden, heads, length, batch, devices = run.alike
        rows.append(
            {
                "predicted_ms": 1e3 * seconds,
                "measured_ms": 1e3 * run.measured_s,
                "relative_error": seconds / run.measured_s - 1,
                "num_devices": devices,
                "global_batch": batch,
                "hidden": hidden,
                "heads": heads,
                "layers": layers,
                "sequence": length,
            }
        )
    return score(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("features", type=Path, nargs="+")
    parser.add_argument("--cluster", default="a100-megatron")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--keep", action="append", default=[], help="a constant not to fit")
    parser.add_argument(
        "--leave-out", action="store_true", help="fit without each hidden size in turn"
    )
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    cluster, runs = Cluster.load(asked.cluster), load(asked.features)
    names = [
        n for n in (*DEVICE, *LINKS) if str(n if isinstance(n, str) else n[1]) not in asked.keep
    ]
    kinds = sorted({run.num_devices > cluster.num_devices_per_node for run in runs})

    def show(what: str, chosen: Sequence[Features], model: Cluster) -> None:
        for many in kinds:
            some = [r for r in chosen if (r.num_devices > cluster.num_devices_per_node) == many]
            if some:
                result = scored(some, Runs(some).predicted_s(model))
                where = "many nodes" if many else "one node"
                said = ", ".join(
                    f"{name} {value:.3f}"
                    for name, value in result.items()
                    if isinstance(value, float)
                )
                print(f"{what}, {where}, {len(some)} runs: {said}", flush=True)

    show("before", runs, cluster)
    if asked.leave_out:
        models: dict[int, list[Features]] = defaultdict(list)
        for run in runs:
            models[run.alike[1]].append(run)
        for hidden, own in models.items():
            others = [run for run in runs if run.alike[1] != hidden]
            show(f"held out hidden {hidden}", own, fit(others, cluster, names, asked.rounds))
    fitted = fit(runs, cluster, names, asked.rounds)
    show("after", runs, fitted)
    for name, value in zip(names, constants_of(fitted, names), strict=True):
        print(f"{name if isinstance(name, str) else '.'.join(name)}: {value:.4g}")
    if asked.output is not None:
        rounded = {
            name: float(f"{value:.3g}")
            for name, value in zip(names, constants_of(fitted, names), strict=True)
        }
        with_constants(cluster, rounded).save(asked.output)
    worst = sorted(
        zip(runs, Runs(runs).predicted_s(fitted), strict=True),
        key=lambda each: -abs(math.log(each[1] / each[0].measured_s)),
    )
    for run, seconds in worst[:20]:
        axes = dict(run.meshes[0].axes)
        print(
            f"{run.alike} {axes} {len(run.meshes)} stages, {run.work.num_microbatches}"
            f" microbatches: {1e3 * seconds:.1f} ms, measured {1e3 * run.measured_s:.1f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

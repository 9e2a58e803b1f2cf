"""Fits the constants of a cluster file to measured runs, without compiling them again.

    python benchmarks/measured.py FILE.csv --features features.jsonl      once, compiles each run
    python benchmarks/fit_cost_model.py features.jsonl... --cluster a100-megatron -o fitted.json

What each stage of each run asks of its devices is priced by the cost model of a candidate cluster
and its schedule is simulated, as the planner does it. The logarithms of the constants are fitted to
the logarithms of predicted over measured, robustly (soft L1 from 5 % on). What is known of a
constant from elsewhere holds it where the runs say little; what a data sheet or another benchmark
says (launches of kernels and collectives, rates of memory, NVLink and network) is not fitted.
--leave-out fits once for each hidden size, without its runs, and scores it on them.
"""

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import measured_kinds
import msgspec
import numpy as np
from measured import score
from measured_price import Features, Runs, load
from scipy.optimize import least_squares

from shardc.cluster import Cluster

# Constant -> bounds. They stand in the device's timing, in its software, or in a level of links.
DEVICE = {
    "product_efficiency": (0.3, 1.0),
    "half_depth": (1.0, 3000.0),
    "unaligned": (0.1, 1.0),
    "dispatch_s": (1e-7, 1e-3),
    "wait_s": (1e-7, 1e-3),
    "host_exposed": (0.02, 1.0),
}
LINKS = {("network", "shared"): (0.1, 1.0)}

# Constant -> what it is held near, and how far it may lie from that: a standard deviation of its
# logarithm. The first is what large products of 16-bit floats reach on an A100.
HELD: dict[Any, tuple[float, float]] = {
    "product_efficiency": (0.869, 0.04),
    "host_exposed": (0.25, 0.4),
}
# Where a fit without some runs starts: at what knows nothing of them.
START: dict[Any, float] = {
    **{name: held for name, (held, _) in HELD.items()},
    "half_depth": 100.0,
    "unaligned": 0.7,
    "dispatch_s": 1e-5,
    "wait_s": 1e-5,
    ("network", "shared"): 0.5,
}
HELD_MISS = 0.2  # of a run, which one standard deviation counts as


def with_constants(cluster: Cluster, constants: dict[Any, float]) -> Cluster:
    """The cluster with other numbers for some of its constants."""
    own = {name: value for name, value in constants.items() if isinstance(name, str)}
    parts = {
        part: msgspec.structs.replace(
            whole, **{name: value for name, value in own.items() if hasattr(whole, name)}
        )
        for part, whole in _parts(cluster).items()
    }
    device = msgspec.structs.replace(cluster.device, **parts)
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
    parts = _parts(cluster).values()
    return [
        next(getattr(part, name) for part in parts if hasattr(part, name))
        if isinstance(name, str)
        else getattr(levels[name[0]], name[1])
        for name in names
    ]


def _parts(cluster: Cluster) -> dict[str, Any]:
    return {"timing": cluster.device.timing, "software": cluster.device.software}


def fit(
    runs: Sequence[Features], cluster: Cluster, names: Sequence[Any], rounds: int, weight: float
) -> Cluster:
    """The cluster whose constants `names` explain the runs best.

    Args:
        weight: of a run on several nodes; those on one have 1.
    """
    bounds = [(DEVICE | LINKS)[name] for name in names]
    low, high = (np.log([b[i] for b in bounds]) for i in (0, 1))
    start = np.clip(np.log(np.maximum(constants_of(cluster, names), 1e-12)), low, high)
    data = Runs(runs)
    taken = np.array([run.measured_s for run in runs])
    many = np.array([run.num_devices > cluster.num_devices_per_node for run in runs])
    weights = np.where(many, weight, 1.0)

    def misses(z: Any) -> Any:
        constants = dict(zip(names, map(float, np.exp(z)), strict=True))
        found = np.array(data.predicted_s(with_constants(cluster, constants)))
        held = [
            HELD_MISS * (at - math.log(HELD[name][0])) / HELD[name][1]
            for name, at in zip(names, map(float, z), strict=True)
            if name in HELD
        ]
        return np.concatenate([weights * np.log(found / taken), held])

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
    parser.add_argument("--rounds", type=int, default=25, help="0: only score the cluster")
    parser.add_argument("--weight", type=float, default=2.0, help="of a run on several nodes")
    parser.add_argument("--keep", action="append", default=[], help="a constant not to fit")
    parser.add_argument(
        "--leave-out", action="store_true", help="fit without each hidden size in turn"
    )
    parser.add_argument("--by-kind", action="store_true", help="where time and error come from")
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
    if asked.leave_out and asked.rounds:
        models: dict[int, list[Features]] = defaultdict(list)
        for run in runs:
            models[run.alike[1]].append(run)
        unfitted = with_constants(cluster, {name: START[name] for name in names})
        for hidden, own in models.items():
            others = [run for run in runs if run.alike[1] != hidden]
            show(
                f"held out hidden {hidden}",
                own,
                fit(others, unfitted, names, asked.rounds, asked.weight),
            )
    fitted = cluster
    if asked.rounds:
        fitted = fit(runs, cluster, names, asked.rounds, asked.weight)
        show("after", runs, fitted)
    for many in kinds if asked.by_kind else ():
        some = [r for r in runs if (r.num_devices > cluster.num_devices_per_node) == many]
        print("many nodes," if many else "one node,", end=" ")
        print(measured_kinds.text(measured_kinds.by_kind(some, fitted)))
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
            f"{run.alike} {axes} {len(run.meshes)} stages, {run.num_microbatches}"
            f" microbatches: {1e3 * seconds:.1f} ms, measured {1e3 * run.measured_s:.1f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

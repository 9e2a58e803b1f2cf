"""Where the predicted time of measured runs goes, and which parts of it the errors go with."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from measured_price import Features, Runs

from shardc.cluster import Cluster
from shardc.cost.model import CostModel
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import Mesh
from shardc.plan.predicted import Asked

LEAST_SHARE = 0.005  # of the predicted time: kinds below it, on average, are left out


class Kind(NamedTuple):
    """A part of the predicted time, over all runs.

    Attributes:
        share: mean share of it.
        slope: relative error per share of one, all else equal; None where shares do not differ.
        explained: what the mean squared error falls by if this part is priced by that much more or
            less, alone.
    """

    share: float
    slope: float | None
    explained: float


def shares(runs: Sequence[Features], cluster: Cluster) -> list[dict[str, float]]:
    """Of each run, the share of its predicted step by kind: of the stage that works the longest.

    "other kernels" are bound by memory; "waiting" is what that stage neither computes nor sends:
    the bubble of the pipeline, transfers included.
    """
    priced = Runs(runs)
    predicted = priced.predicted_s(cluster)
    found = []
    for run, asked, total_s in zip(priced.runs, priced.asked, predicted, strict=True):
        model = CostModel(cluster.with_devices(run.num_devices))
        stages: list[dict[str, float]] = []
        for mesh, calls in zip(run.meshes, asked, strict=True):
            parts: dict[str, float] = defaultdict(float)
            for kind, (each, _) in calls.items():
                times = run.num_microbatches if kind.per_microbatch else 1
                update = "update: " if kind is FunctionKind.UPDATE else ""
                for one in each:
                    for name, seconds in _parts(one, mesh, model).items():
                        parts[update + name] += times * one.times * seconds
            stages.append(parts)
        longest = max(stages, key=lambda parts: sum(parts.values()))
        waiting = {"waiting": max(total_s - sum(longest.values()), 0.0)}
        found.append({name: s / total_s for name, s in {**longest, **waiting}.items()})
    return found


def _parts(asked: Asked, mesh: Mesh, model: CostModel) -> dict[str, float]:
    """Seconds by kind of what one call asks for."""
    parts: dict[str, float] = defaultdict(float)
    launch_s = model.device.timing.launch_s
    for work, count in asked.work:
        name = "products" if work.product else "other kernels"
        parts[name] += count * (model.op_s(work) - work.launches * launch_s)
        parts["launches"] += count * work.launches * launch_s
    for each in asked.sent:
        name = f"{each.kind.replace('_', '-')} over {' and '.join(each.axes)}"
        parts[name] += model.sent_s([each], mesh)
    once = msgspec.structs.replace(asked, times=1.0)
    parts["host"] += model.host_s([once], mesh)
    return parts


def by_kind(runs: Sequence[Features], cluster: Cluster) -> dict[str, Kind]:
    """The parts of the predicted time, the largest first."""
    found = shares(runs, cluster)
    names = {name for each in found for name in each}
    table = {name: np.array([each.get(name, 0.0) for each in found]) for name in names}
    taken = np.array([run.measured_s for run in runs])
    errors = np.array(Runs(runs).predicted_s(cluster)) / taken - 1
    kept = [name for name in names if table[name].mean() >= LEAST_SHARE]
    kept.sort(key=lambda name: -table[name].mean())
    columns = np.stack([table[name] for name in kept], axis=1)
    slopes = _slopes(columns, errors)
    kinds = {}
    for i, name in enumerate(kept):
        own = columns[:, i]
        alone = own @ errors / max(own @ own, 1e-30)
        left = errors - alone * own
        explained = 1 - float(left @ left) / max(float(errors @ errors), 1e-30)
        differs = own.std() > 1e-3
        kinds[name] = Kind(float(own.mean()), float(slopes[i]) if differs else None, explained)
    return kinds


def _slopes(columns: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Least squares with a weak pull to 0, which shares that go together need."""
    pull = 1e-3 * len(errors) * np.eye(columns.shape[1])
    found: np.ndarray = np.linalg.solve(columns.T @ columns + pull, columns.T @ errors)
    return found


def text(kinds: dict[str, Kind]) -> str:
    """A line per kind."""
    lines = ["share of the predicted time, error per share, squared error it explains alone:"]
    for name, each in kinds.items():
        slope = "" if each.slope is None else f"{each.slope:+.2f}"
        lines.append(f"  {name:32} {each.share:6.1%} {slope:>6} {each.explained:6.1%}")
    return "\n".join(lines)


def as_json(kinds: dict[str, Kind]) -> dict[str, Any]:
    return {name: each._asdict() for name, each in kinds.items()}

"""Predicted against measured all-reduces of NCCL, and the constants of links that fit them.

    python benchmarks/nccl.py FILE.csv... [--fit] [--format json]

A row is an all-reduce inside one node: device, num_devices, num_bytes and time_us. Each is priced
on the built-in cluster of its device. --fit fits what these curves can say, by device: launch_s,
the share of the bandwidth that rings of each group size reach, and the rate of the switch.
"""

import argparse
import csv
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from scipy.optimize import least_squares

from shardc.cluster import Cluster, Level
from shardc.cost.collectives import all_reduce_s
from shardc.cost.links import axis_links
from shardc.cost.submeshes import mesh_of

CLUSTERS = {"a100": "a100-8", "v100": "v100-8", "h200": "h200-8"}
LARGE = 8 << 20


class Row(NamedTuple):
    """A measured all-reduce of `num_bytes` on each of so many devices."""

    device: str
    num_devices: int
    num_bytes: int
    seconds: float


def rows_of(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        return [
            Row(
                row["device"],
                int(row["num_devices"]),
                int(row["num_bytes"]),
                float(row["time_us"]) / 1e6,
            )
            for row in csv.DictReader(file)
        ]


def errors(rows: list[Row], cluster: Cluster) -> np.ndarray:
    """Predicted over measured, minus 1, of each row."""
    sizes = {row.num_devices for row in rows}
    links = {n: axis_links(cluster, mesh_of((n,), range(n)))["x"] for n in sizes}
    seconds = [all_reduce_s(r.num_devices, links[r.num_devices], r.num_bytes) for r in rows]
    return np.array(seconds) / np.array([row.seconds for row in rows]) - 1


def scored(rows: list[Row], cluster: Cluster) -> dict[str, dict[str, float]]:
    """Mean, least and greatest error by size of the group and of the message."""
    found: dict[str, list[float]] = defaultdict(list)
    for row, error in zip(rows, errors(rows, cluster), strict=True):
        size = "from 8 MiB on" if row.num_bytes >= LARGE else "below 8 MiB"
        found[f"{row.num_devices} devices, {size}"].append(float(error))
    return {
        name: {"mean": float(np.abs(each).mean()), "least": min(each), "greatest": max(each)}
        for name, each in found.items()
    }


def fitted(rows: list[Row], cluster: Cluster) -> dict[str, float]:
    """Constants of the node: robust (soft L1 from 10 % on), on logarithms."""
    node = cluster.levels[0]
    names: list[str] = ["launch_s"]
    start = [max(node.launch_s, 1e-6)]
    if any(each.algorithm == "switch" for each in node.protocols):
        names.append("switch")
        start += [each.efficiency for each in node.protocols if each.algorithm == "switch"]
    else:
        sizes = sorted({row.num_devices for row in rows})
        names += [str(n) for n in sizes]
        start += [node.reached(n) for n in sizes]

    def misses(logs: np.ndarray) -> np.ndarray:
        values = dict(zip(names, map(float, np.exp(logs)), strict=True))
        changed = msgspec.structs.replace(cluster, levels=(_with(node, values),))
        return np.log1p(errors(rows, changed))

    top = np.log([1e-3, *(1.0 for _ in names[1:])])
    found = least_squares(
        misses, np.minimum(np.log(start), top - 1e-3), bounds=(-np.inf, top), loss="soft_l1",
        f_scale=0.1, diff_step=1e-3,
    )  # fmt: skip
    return dict(zip(names, map(float, np.exp(found.x)), strict=True))


def _with(node: Level, values: dict[str, float]) -> Level:
    protocols = tuple(
        msgspec.structs.replace(each, efficiency=values["switch"])
        if each.algorithm == "switch"
        else each
        for each in node.protocols
    )
    groups = {int(name): share for name, share in values.items() if name.isdigit()}
    return msgspec.structs.replace(
        node, launch_s=values["launch_s"], protocols=protocols, groups=groups
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    asked = parser.parse_args()
    rows: dict[str, list[Row]] = defaultdict(list)
    for path in asked.files:
        for row in rows_of(path):
            rows[row.device].append(row)
    report: dict[str, Any] = {}
    for device, own in rows.items():
        cluster = Cluster.load(CLUSTERS[device])
        mean = float(np.abs(errors(own, cluster)).mean())
        report[device] = {"mean": mean, "groups": scored(own, cluster)}
        if asked.fit:
            report[device]["fitted"] = fitted(own, cluster)
    if asked.format == "json":
        print(json.dumps(report))
        return 0
    for device, found in report.items():
        print(f"{device}: mean error {found['mean']:.1%}")
        for name, each in found["groups"].items():
            ends = f"from {each['least']:+.0%} to {each['greatest']:+.0%}"
            print(f"  {name}: {each['mean']:.1%}, {ends}")
        for name, value in found.get("fitted", {}).items():
            print(f"  {name}: {value:.4g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Whether the plan that is chosen is as fast as the best of a grid of shapes forced by hand.

    python benchmarks/forced_grid.py DIR [--pattern '*.tiny.mlir*'] [--clusters cpu8,two_nodes]
        [--most-stages 16] [--planned 5] [-o FILE]

Of each program and cluster: the plan of the search; then every shape of up to 16 equal stages on
every submesh, in every number of microbatches, kept or made again, is estimated with the prices of
its layers, those of submeshes that the search had left out included. The five best by that
estimate, and the five best that differ in more than the number of microbatches, are planned exactly
with the effort of a final plan. A ratio above 1.005 is a miss of the
search; "shapes" counts those that were estimated and fit.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from shardc.cluster import Cluster
from shardc.compiler import prepare
from shardc.errors import InfeasibleError
from shardc.importer.from_file import import_file
from shardc.options import PlanOptions
from shardc.planner.attempts import FINAL_EFFORT_S, FINAL_GAP
from shardc.planner.candidate import Candidate
from shardc.planner.prices.points import derived_from
from shardc.planner.proposal import distinct
from shardc.planner.search import Planner
from shardc.planner.shapes import ShapeSearch

Row = dict[str, Any]
BAR = 1.005


def open_all(search: ShapeSearch, most_stages: int) -> None:
    """Prices every submesh that the search left out and that a shape may use."""
    prices, devices = search.prices, search.cluster.num_devices
    for size in prices.sizes:
        if devices // size <= (most_stages if search.counts else 1):
            count = next(filter(prices.has, search.counts or search.whole_counts))
            prices.open_size(size, count)
            prices.open_doubtful(size, count)
            for view in prices.open_views(size):
                for point in range(len(prices.points)):
                    level, first = prices.points[point].recompute, prices.points[0].recompute
                    worth = level == first or prices.costs.keeps_less(count, level)
                    if worth and derived_from(prices.points, point) is None:
                        prices.ask(view, count, point)


def row(path: Path, cluster: Cluster, most_stages: int, num_planned: int) -> Row:
    """One program on one cluster."""
    module = import_file(path).module
    prepare(module)
    options = PlanOptions(time_limit_s=3600.0)
    found: Row = {"program": path.name.split(".mlir")[0], "cluster": cluster.name}
    start_s = time.process_time()
    planner = Planner(module, cluster, options)
    try:
        auto = planner.run()
    except InfeasibleError as error:
        return {**found, "outcome": str(error).splitlines()[0]}
    auto_s = auto.predicted.step_time_s
    found |= {"auto_s": auto_s, "cpu_s": round(time.process_time() - start_s, 1)}
    found["shape"] = _print(len(auto.stages), auto.stages[0].mesh.shape, auto.num_microbatches)
    if planner.promising is None:
        return {**found, "outcome": "nothing to choose from"}
    search = planner.promising.search
    open_all(search, most_stages)
    forced_s, shape = float("inf"), ""
    shapes = search.estimated()
    found["shapes"] = len(shapes)
    best = {each.key: each for each in (*shapes[:num_planned], *distinct(shapes, num_planned))}
    for each in best.values():
        proposal = search.proposal(each)
        if proposal is None:
            continue
        planned = planner.tried.plan(proposal, FINAL_GAP, FINAL_EFFORT_S)
        if isinstance(planned, Candidate) and planned.seconds < forced_s:
            forced_s = planned.seconds
            meshes = proposal.shape.meshes
            shape = _print(len(meshes), meshes[0].shape, proposal.shape.num_microbatches)
    return {**found, "forced_s": forced_s, "forced": shape, "ratio": auto_s / forced_s}


def _print(stages: int, mesh: tuple[int, ...], microbatches: int) -> str:
    return f"{stages} x ({'x'.join(map(str, mesh))}), {microbatches}"


def line(each: Row) -> str:
    if "ratio" not in each:
        return f"{each['program']:24} {each['cluster']:10} {each['outcome']}"
    verdict = "" if each["ratio"] <= BAR else "  MISS"
    return (
        f"{each['program']:24} {each['cluster']:10} {each['shapes']:4} shapes"
        f"   auto {1e3 * each['auto_s']:.5g} ms ({each['shape']})"
        f"   best forced {1e3 * each['forced_s']:.5g} ms ({each['forced']})"
        f"   {each['ratio']:.4f}{verdict}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pattern", default="*.tiny.mlir*")
    parser.add_argument("--clusters", default="cpu8")
    parser.add_argument("--most-stages", type=int, default=16)
    parser.add_argument("--planned", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path, help="write the rows here as JSON, too")
    asked = parser.parse_args()
    rows = []
    for path in sorted(asked.folder.glob(asked.pattern)):
        for name in asked.clusters.split(","):
            rows.append(row(path, Cluster.load(name), asked.most_stages, asked.planned))
            print(line(rows[-1]), flush=True)
    if asked.output is not None:
        asked.output.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(any(each.get("ratio", 1.0) > BAR for each in rows))


if __name__ == "__main__":
    main()

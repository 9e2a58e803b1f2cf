"""Whether the plan that is chosen is as fast as the best of a grid of shapes forced by hand.

    python benchmarks/forced_grid.py DIR [--pattern '*.tiny.mlir*'] [--clusters cpu8,two_nodes]
        [--most-stages 16] [--planned 5] [-o FILE]

Of each program and cluster: the plan of the search; then every shape of up to 16 equal stages on
every submesh, in every number of microbatches, kept or made again, is estimated with the prices of
its layers, those of submeshes that the search had left out included, unless a lower bound already
rules it out. The five best by that estimate, and the five best that differ in more than the number
of microbatches, are planned exactly with the effort of a final plan. A ratio above 1.005 is a miss
of the search; "shapes" counts those that were estimated and fit, of all that the search
may choose from.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from shardc.cluster import Cluster
from shardc.compiler import prepare
from shardc.errors import InfeasibleError
from shardc.importer.from_file import import_file
from shardc.ir.context import Module
from shardc.options import PlanOptions
from shardc.planner.budget import BUDGET
from shardc.planner.candidate import Candidate
from shardc.planner.prices.points import derived_from
from shardc.planner.proposal import distinct
from shardc.planner.search import Planner
from shardc.planner.shapes import Found, Key, ShapeSearch

Row = dict[str, Any]
BAR = 1.005
LONG_S = 1e6  # a clock that runs out would spoil the plans that are compared


def open_all(search: ShapeSearch, most_stages: int, num_planned: int) -> None:
    """Prices every layer that a shape may need to be among those that are planned: on each submesh
    that the search left out, kept and made again; where memory is tight, also at prices of memory.
    A shape whose lower bound is above the estimates of those that are planned is left out."""
    prices, devices = search.prices, search.cluster.num_devices
    sizes = [n for n in prices.sizes if devices // n <= (most_stages if search.counts else 1)]
    count = next(filter(prices.has, search.counts or search.whole_counts))
    free = [number for number, point in enumerate(prices.points) if point.price == 0.0]
    for size in sizes:
        if hopeful(search, size, num_planned):
            prices.open_size(size, count)
            prices.open_doubtful(size, count)
            ask(search, size, count, free)
    for size in sizes:
        if any(map(search.is_tight, hopeful(search, size, num_planned))):
            ask(search, size, count, range(len(prices.points)))


def hopeful(search: ShapeSearch, size: int, num_planned: int) -> list[Key]:
    """The shapes on submeshes of a size that may be among those that are planned."""
    planned = to_plan(search.estimated(), num_planned)
    most_s = math.inf
    if len(planned) >= num_planned:
        most_s = max(each.pipeline.step_time_s for each in planned)
    return [key for key in search.all_keys() if key.size == size and search.least_s(key) <= most_s]


def ask(search: ShapeSearch, size: int, count: int, points: Iterable[int]) -> None:
    """Prices the layers at some points on the views of a size that are open."""
    prices = search.prices
    first = prices.points[0].recompute
    for view in prices.open_views(size):
        for point in points:
            level = prices.points[point].recompute
            worth = level == first or prices.costs.keeps_less(count, level)
            if worth and derived_from(prices.points, point) is None:
                prices.ask(view, count, point)


def to_plan(shapes: Sequence[Found], num_planned: int) -> list[Found]:
    """The best shapes, and the best that differ in more than the number of microbatches."""
    best = (*shapes[:num_planned], *distinct(shapes, num_planned))
    return list({each.key: each for each in best}.values())


def row(path: Path, cluster: Cluster, most_stages: int, num_planned: int) -> Row:
    """One program on one cluster."""
    module = import_file(path).module
    return row_of(path.name.split(".mlir")[0], module, cluster, most_stages, num_planned)


def row_of(name: str, module: Module, cluster: Cluster, most_stages: int, num_planned: int) -> Row:
    """One imported program on one cluster."""
    prepare(module)
    options = PlanOptions(time_limit_s=LONG_S)
    found: Row = {"program": name, "cluster": cluster.name}
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
    open_all(search, most_stages, num_planned)
    forced_s, shape = math.inf, ""
    shapes = search.estimated()
    found |= {"shapes": len(shapes), "considered": sum(1 for _ in search.all_keys())}
    found["planned"] = planned = []
    for each in to_plan(shapes, num_planned):
        proposal = search.proposal(each)
        if proposal is None:
            continue
        meshes = proposal.shape.meshes
        words = _print(len(meshes), meshes[0].shape, proposal.shape.num_microbatches)
        answer = planner.tried.plan(proposal, BUDGET.final)
        exact_s = answer.seconds if isinstance(answer, Candidate) else None
        planned.append({"shape": words, "estimate_s": proposal.step_time_s, "exact_s": exact_s})
        if exact_s is not None and exact_s < forced_s:
            forced_s, shape = exact_s, words
    if not shape:
        return found | {"outcome": f"auto {1e3 * auto_s:.5g} ms; no forced shape fits"}
    return {**found, "forced_s": forced_s, "forced": shape, "ratio": auto_s / forced_s}


def _print(stages: int, mesh: tuple[int, ...], microbatches: int) -> str:
    return f"{stages} x ({'x'.join(map(str, mesh))}), {microbatches}"


def line(each: Row) -> str:
    if "ratio" not in each:
        return f"{each['program']:24} {each['cluster']:10} {each['outcome']}"
    verdict = "" if each["ratio"] <= BAR else "  MISS"
    return (
        f"{each['program']:24} {each['cluster']:10}"
        f" {each['shapes']:4} of {each['considered']} shapes"
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

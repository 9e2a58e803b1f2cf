"""How much longer a predicted step takes than its matrix products alone.

    python benchmarks/products_alone.py FILE... [--cluster h100-64]       the products' time
    python benchmarks/products_alone.py FILE --plan plan.json             and that of a plan of FILE

The products and convolutions of one step, each as one kernel of its whole size at the modelled rate
of the cluster's device, split evenly over all devices. What `jax.checkpoint` computes again does
not count. Nothing else of a step is in it: no other op, no launch, no communication, no bubble.
"""

import argparse
import json
from pathlib import Path

import msgspec

from shardc.analysis.program.flops import op_cost
from shardc.analysis.program.op_classes import PRODUCTS
from shardc.analysis.program.op_work import op_works, runs_of_ops, unsplit
from shardc.cluster import Cluster
from shardc.compiler import prepare
from shardc.cost.model import CostModel
from shardc.cost.submeshes import mesh_of
from shardc.cutting import outline_shape
from shardc.importer.from_file import import_file
from shardc.ir.walk import functions
from shardc.plan.layout import Mesh
from shardc.plan.shape import PipelineShape
from shardc.planner.split_cache import Splits


def products_s(path: Path, cluster: Cluster) -> float:
    """Seconds of the products of one step."""
    module = import_file(path).module
    prepare(module)
    splits = Splits(module, None)
    mesh = mesh_of((cluster.num_devices,), range(cluster.num_devices))
    shape = PipelineShape(1, (), (mesh,), "1f1b").recomputing(["none"], [0])
    outlined = outline_shape(splits.staged(shape), shape, cluster)
    model = CostModel(cluster)
    total_s = 0.0
    with outlined.context:
        for function in functions(outlined.operation):
            for op, traffic, _, times in runs_of_ops(function):
                if op.name in PRODUCTS:
                    (whole,) = op_works(op, op_cost(op), traffic, [unsplit(op)], Mesh((), (0,)))
                    kernel = msgspec.structs.replace(whole, num_bytes=0, launches=0.0)
                    total_s += times * model.op_s(kernel) / cluster.num_devices
    return total_s


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--cluster", default="h100-64")
    parser.add_argument("--plan", type=Path)
    asked = parser.parse_args()
    cluster = Cluster.load(asked.cluster)
    for path in asked.files:
        found = {"program": path.name.split(".mlir")[0], "cluster": cluster.name}
        found["products_s"] = products_s(path, cluster)
        if asked.plan is not None:
            step_s = json.loads(asked.plan.read_text())["predicted"]["step_time_s"]
            found |= {"step_s": step_s, "ratio": step_s / found["products_s"]}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()

"""How much longer a predicted step takes than its matrix products alone, and the MFU it implies.

    python benchmarks/products_alone.py FILE... [--cluster h100-64]       the products' time
    python benchmarks/products_alone.py FILE --plan plan.json             and that of a plan of FILE
    python benchmarks/products_alone.py FILE --step-s 70.5                or of a step so long

The products and convolutions of one step, each as one kernel of its whole size at the modelled rate
of the cluster's device, split evenly over all devices. What `jax.checkpoint` computes again does
not count. Nothing else of a step is in it: no other op, no launch, no communication, no bubble.
MFU (model FLOPs utilisation): FLOPs of these products, over what all devices could do in the step
at the 16-bit peak of their data sheet.
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


def products(path: Path, cluster: Cluster) -> tuple[float, int]:
    """Seconds of the products of one step, and their FLOPs."""
    module = import_file(path).module
    prepare(module)
    splits = Splits(module, None)
    mesh = mesh_of((cluster.num_devices,), range(cluster.num_devices))
    shape = PipelineShape(1, (), (mesh,), "1f1b").recomputing(["none"], [0])
    outlined = outline_shape(splits.staged(shape), shape, cluster)
    model = CostModel(cluster)
    total_s, flops = 0.0, 0
    with outlined.context:
        for function in functions(outlined.operation):
            for op, traffic, _, times in runs_of_ops(function):
                if op.name in PRODUCTS:
                    cost = op_cost(op)
                    (whole,) = op_works(op, cost, traffic, [unsplit(op)], Mesh((), (0,)))
                    kernel = msgspec.structs.replace(whole, num_bytes=0, launches=0.0)
                    total_s += times * model.op_s(kernel) / cluster.num_devices
                    flops += times * cost.flops
    return total_s, flops


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--cluster", default="h100-64")
    parser.add_argument("--plan", type=Path)
    parser.add_argument("--step-s", type=float)
    asked = parser.parse_args()
    cluster = Cluster.load(asked.cluster)
    for path in asked.files:
        found = {"program": path.name.split(".mlir")[0], "cluster": cluster.name}
        found["products_s"], found["flops"] = products(path, cluster)
        step_s = asked.step_s
        if asked.plan is not None:
            step_s = json.loads(asked.plan.read_text())["predicted"]["step_time_s"]
        if step_s is not None:
            peak = cluster.num_devices * cluster.device.peak_flops_per_s("float16")
            found |= {"step_s": step_s, "ratio": step_s / found["products_s"]}
            found["mfu"] = found["flops"] / (step_s * peak)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()

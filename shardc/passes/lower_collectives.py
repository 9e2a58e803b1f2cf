"""Lower every reshard to the cheapest sequence of collectives."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from jax.extend.mlir import ir

from shardc.cluster import Cluster
from shardc.cost.links import Link, Links
from shardc.cost.model import CostModel
from shardc.cost.reshard import reshard_steps
from shardc.cost.reshard_moves import ReshardStep
from shardc.errors import PlanError
from shardc.ir.attributes import CLUSTER, data_of
from shardc.ir.pass_manager import Pass, in_text
from shardc.ir.shardings import (
    from_attr,
    mesh_name,
    meshes,
    sharding_or_replicated,
    to_attr,
    value_shardings,
)
from shardc.ir.tensor_types import dtype_of, itemsize, shape_of, sum_itemsize
from shardc.ir.walk import functions, nested_ops, where
from shardc.plan.layout import Mesh

EQUAL_LINK = Link(bandwidth_bytes_per_s=1e9, latency_s=1e-6, all_to_all_bandwidth_bytes_per_s=1e9)


@dataclass(frozen=True)
class LowerCollectives(Pass):
    """Replaces each `sdy.reshard` by the collectives that the planner priced for it.

    Reads the shardings of values and the meshes; afterwards no `sdy.reshard` is left, so a second
    run changes nothing.

        %1 = sdy.reshard %0 <@mesh, [{}, {"x"}]>
    becomes, where %0 is a partial sum over "x",
        %1 = sdy.reduce_scatter [{}, {"x"}] %0 out_sharding=<@mesh, [{}, {"x"}]>

    Options:
        cluster: its links price the sequences; in text a built-in name, the path of a cluster
            file, or its JSON. None = that of the plan, module attribute `shardc.cluster`; without
            it, all links count as equal.
    """

    name = "shardc-lower-collectives"

    cluster: Cluster | None = field(default=None, metadata=in_text(Cluster.parse))

    def apply(self, module: ir.Operation) -> None:
        cluster = self.cluster
        if cluster is None and CLUSTER in module.attributes:
            cluster = data_of(module.attributes[CLUSTER], Cluster)
        placed = meshes(module)
        links: dict[str, Links] = {}
        for function in functions(module):
            written = value_shardings(function)
            for op in nested_ops(function):
                if op.name != "sdy.reshard":
                    continue
                mesh = mesh_name(op.attributes["sharding"])
                if mesh not in links:
                    links[mesh] = _links(cluster, placed[mesh])
                _lower(op, written, mesh, placed[mesh], links[mesh])


def _links(cluster: Cluster | None, mesh: Mesh) -> Links:
    if cluster is None:
        return {axis: EQUAL_LINK for axis, _ in mesh.axes}
    return CostModel(cluster).links(mesh)


def _lower(
    op: ir.Operation,
    written: dict[ir.Value, ir.Attribute],
    mesh_name: str,
    mesh: Mesh,
    links: Links,
) -> None:
    value = op.operands[0]
    source, target = sharding_or_replicated(value, written), from_attr(op.attributes["sharding"])
    try:
        sizes = itemsize(dtype_of(value)), sum_itemsize(value)
        steps = reshard_steps(source, target, mesh, shape_of(value), sizes[0], links, sizes[1])
    except PlanError as error:
        raise PlanError(error.message, where=where(op), help=error.help, code=error.code) from error
    with ir.InsertionPoint(op), op.location:
        for step in steps:
            value = _collective(value, step, mesh_name)
            written[value] = to_attr(step.result, mesh_name)
    op.results[0].replace_all_uses_with(value)
    op.erase()


def _collective(value: ir.Value, step: ReshardStep, mesh: str) -> ir.Value:
    """The `sdy` op of one step at the current insertion point."""
    rank = len(shape_of(value))
    over = _axes(step.axes)
    if step.kind == "all_reduce":
        name, detail = "reduction_axes", f"#sdy<axis_ref_list{over}>"
    elif step.kind == "all_to_all":
        name = "params"
        detail = f"#sdy<all_to_all_param_list[{over}: {step.src_dim}->{step.dst_dim}]>"
    else:
        name = {
            "all_gather": "gathering_axes",
            "all_slice": "slicing_axes",
            "reduce_scatter": "reduce_scatter_axes",
        }[step.kind]
        per_dim = ", ".join(over if dim == step.dim else "{}" for dim in range(rank))
        detail = f"#sdy<list_of_axis_ref_lists[{per_dim}]>"
    attributes = {name: ir.Attribute.parse(detail), "out_sharding": to_attr(step.result, mesh)}
    return ir.Operation.create(
        f"sdy.{step.kind}", results=[value.type], operands=[value], attributes=attributes
    ).results[0]


def _axes(axes: Sequence[str]) -> str:
    return "{" + ", ".join(f'"{axis}"' for axis in axes) + "}"

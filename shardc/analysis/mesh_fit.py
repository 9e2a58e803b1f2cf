"""Whether the axes of a mesh can split anything of a program at all."""

from collections.abc import Sequence

from jax.extend.mlir import ir

from shardc.analysis.flops import heavy_flops, is_heavy
from shardc.errors import PlanError
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import main_function, ops, where


def check_mesh_divides(module: ir.Module, shape: Sequence[int]) -> None:
    """Refuses a mesh with an axis that divides no dim of any matrix product or convolution.

    Such an axis would hold copies only. A program without heavy ops fits every mesh.

    Args:
        module: split into microbatches, or whole.
        shape: sizes of the mesh's axes.
    Raises:
        PlanError: SHARDC-102; names the largest heavy op.
    """
    with module.context:
        heavy = [op for op in ops(main_function(module.operation)) if is_heavy(op)]
        dims = {d for op in heavy for v in (*op.operands, *op.results) for d in shape_of(v)}
        for size in shape:
            if not heavy or any(dim > 0 and dim % size == 0 for dim in dims):
                continue
            largest = max(heavy, key=heavy_flops)
            sizes = " and ".join("x".join(map(str, shape_of(v))) for v in largest.operands)
            raise PlanError(
                f"a mesh axis of {size} devices divides no dim of the program's matrix products"
                f" and convolutions, such as those of '{largest.name}' on {sizes}",
                where=where(largest),
                help="use mesh axes whose sizes divide the batch or the widths of the layers, or"
                ' leave the choice to the planner: mesh="auto"',
                code="SHARDC-102",
            )

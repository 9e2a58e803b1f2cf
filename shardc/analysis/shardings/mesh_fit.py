"""The mesh of a program's user shardings, and whether a mesh's axes can split the program."""

from collections.abc import Sequence

import msgspec
from jax.extend.mlir import ir

from shardc.analysis.program.flops import heavy_flops, is_heavy
from shardc.errors import PlanError
from shardc.ir.shardings import meshes
from shardc.ir.tensor_types import shape_of
from shardc.ir.user_shardings import USER_MESH
from shardc.ir.walk import CONTROL_FLOW, main_function, nested_ops, where
from shardc.options import PlanOptions


def with_user_mesh(module: ir.Module, options: PlanOptions) -> PlanOptions:
    """The options with the mesh of a prepared program's user shardings, if it has any.

    Every stage's mesh has the user's axes, because the shardings name them. The number of stages
    determines how many such meshes there are.

    Raises:
        PlanError: SHARDC-204, `options` require another mesh.
    """
    with module.context:
        user = meshes(module.operation).get(USER_MESH)
    if user is None:
        return options
    axes = tuple(name for name, _ in user.axes)
    if options.mesh == "auto":
        return msgspec.structs.replace(options, mesh=user.shape, mesh_axes=axes)
    if options.mesh_axes:  # ignoring axes of size 1, and the order
        sizes = dict(zip(options.mesh_axes, options.mesh, strict=True))
        named = {name: size for name, size in sizes.items() if size > 1}
        if named == dict(user.axes):
            return options
    elif options.mesh == user.shape:
        return msgspec.structs.replace(options, mesh_axes=axes)
    asked = ", ".join(f"{name}={size}" for name, size in user.axes)
    raise PlanError(
        f"the program asks for shardings over a mesh of {asked}, and mesh={options.mesh}"
        f" {' '.join(options.mesh_axes)} asks for another one".replace("  ", " "),
        help='leave mesh="auto": shardings fix the mesh',
        code="SHARDC-204",
    )


def check_mesh_divides(module: ir.Module, shape: Sequence[int]) -> None:
    """Refuses a mesh with an axis that divides no dim of any matrix product or convolution.

    Such an axis could only replicate. A program without heavy ops fits every mesh.

    Args:
        module: before or after the microbatch split.
        shape: sizes of the mesh's axes.
    Raises:
        PlanError: SHARDC-102; names the largest heavy op.
    """
    with module.context:
        heavy = [op for op in nested_ops(main_function(module.operation)) if is_heavy(op)]
        dims = {d for op in heavy for v in (*op.operands, *op.results) for d in shape_of(v)}
        for size in shape:
            if not heavy or any(dim > 0 and dim % size == 0 for dim in dims):
                continue
            largest = max(heavy, key=lambda op: (op.name not in CONTROL_FLOW, heavy_flops(op)))
            sizes = " and ".join("x".join(map(str, shape_of(v))) for v in largest.operands)
            raise PlanError(
                f"a mesh axis of {size} devices divides no dim of the program's matrix products"
                f" and convolutions, such as those of '{largest.name}' on {sizes}",
                where=where(largest),
                help="use mesh axes whose sizes divide the batch or the widths of the layers, or"
                ' leave the choice to the planner: mesh="auto"',
                code="SHARDC-102",
            )

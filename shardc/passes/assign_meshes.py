"""Declare the mesh of each stage in the module."""

from dataclasses import dataclass, field

from jax.extend.mlir import ir

from shardc.errors import PlanError
from shardc.ir.attributes import NUM_STAGES, STAGE, get_int
from shardc.ir.pass_manager import Pass, in_text
from shardc.ir.shardings import add_mesh, meshes, write_mesh_devices
from shardc.ir.user_shardings import CONSTRAINT, USER_MESH, read_user_sharding, user_sharding_attr
from shardc.ir.walk import functions, walk
from shardc.plan.layout import Mesh


def print_meshes(wanted: tuple[Mesh, ...]) -> str:
    """The option text for `wanted`."""
    return "/".join(
        ",".join(f"{name}={size}" for name, size in mesh.axes)
        + "@"
        + ",".join(str(d) for d in mesh.device_ids)
        for mesh in wanted
    )


def parse_meshes(text: str) -> tuple[Mesh, ...]:
    """Reads the option `meshes`; PlanError (SHARDC-101) if it is malformed."""
    found: list[Mesh] = []
    next_device = 0
    for part in text.split("/"):
        axes_text, _, devices_text = part.partition("@")
        try:
            axes = tuple(
                (name.strip(), int(size))
                for name, size in (item.split("=") for item in axes_text.split(",") if item)
            )
            devices = [int(d) for d in devices_text.split(",") if d]
        except ValueError as error:
            raise PlanError(
                f"'{part}' is not a mesh",
                help="write axes and sizes such as x=2,y=4 or x=2,y=2@0,1,2,3",
                code="SHARDC-101",
            ) from error
        count = 1
        for _, size in axes:
            count *= size
        ids = tuple(devices) or tuple(range(next_device, next_device + count))
        if len(ids) != count:
            raise PlanError(
                f"the mesh '{part}' has {count} positions and {len(ids)} devices",
                help="give as many device ids as the axes have positions",
                code="SHARDC-101",
            )
        next_device = max(ids, default=-1) + 1
        found.append(Mesh(axes, ids))
    return tuple(found)


@dataclass(frozen=True)
class AssignMeshes(Pass):
    """Adds `sdy.mesh @stage{s}` with its devices for every stage.

    Constraints in the functions then refer to the mesh of the stage, which must have all axes of
    the user's shardings; `sdy.mesh @user` is removed.

    Options:
        meshes: one per stage; in text such as `x=2,y=2@0,1,2,3` (axes, then device ids), separated
            by `/`; without device ids the stages take the devices in order.
    """

    name = "shardc-assign-meshes"

    meshes: tuple[Mesh, ...] = field(default=(), metadata=in_text(parse_meshes, print_meshes))

    def apply(self, module: ir.Operation) -> None:
        wanted = self.meshes
        num_stages = get_int(module, NUM_STAGES) or 1
        if len(wanted) != num_stages:
            raise PlanError(
                f"{len(wanted)} meshes were given for {num_stages} stages",
                help="give one mesh per stage, separated by '/'",
                code="SHARDC-101",
            )
        declared = meshes(module)
        user = declared.pop(USER_MESH, None)
        if declared:
            raise PlanError(
                "the module already declares meshes",
                help="run shardc-assign-meshes once, on a module without sdy.mesh",
                code="SHARDC-101",
            )
        if user is not None:
            _check_axes(user, wanted)
        _move_constraints(module)
        for stage, mesh in reversed(list(enumerate(wanted))):
            add_mesh(module, f"stage{stage}", mesh)
        write_mesh_devices(module, {f"stage{s}": mesh for s, mesh in enumerate(wanted)})


def _check_axes(user: Mesh, wanted: tuple[Mesh, ...]) -> None:
    """Refuses meshes that lack an axis of the user's shardings."""
    for mesh in wanted:
        if not set(user.axes) <= set(mesh.axes):
            raise PlanError(
                f"the program asks for shardings over the axes {dict(user.axes)}, and the mesh of"
                f" a stage has {dict(mesh.axes)}",
                help="use a mesh with these axes for every stage",
                code="SHARDC-204",
            )


def _move_constraints(module: ir.Operation) -> None:
    """Makes constraints in the functions refer to the meshes of the stages."""
    for function in functions(module):
        for op in walk(function):
            if op.name == CONSTRAINT:
                asked = read_user_sharding(op.attributes["sharding"])
                name = f"stage{get_int(function, STAGE) or 0}"
                op.attributes["sharding"] = user_sharding_attr(asked, name)
    for op in list(module.regions[0].blocks[0].operations):
        if op.operation.name == "sdy.mesh":
            op.operation.erase()

"""Bring the user's shardings onto one mesh, and check them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from shardc.analysis.program.arguments import argument_names
from shardc.errors import PlanError
from shardc.ir.attributes import (
    SHARDING,
    arg_attrs,
    result_attrs,
    set_arg_attrs,
    set_result_attrs,
)
from shardc.ir.pass_manager import Pass
from shardc.ir.shardings import add_mesh
from shardc.ir.tensor_types import shape_of
from shardc.ir.user_shardings import (
    CONSTRAINT,
    USER_MESH,
    UserSharding,
    read_user_sharding,
    uneven_dim,
    user_sharding_attr,
)
from shardc.ir.walk import body, main_function, terminator, walk, where, where_step
from shardc.plan.layout import Mesh

Axes = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class AdoptShardings(Pass):
    """Leaves one `sdy.mesh @user`, to which all user shardings refer.

    User shardings are attributes of arguments and results, and `sdy.sharding_constraint`; a
    sharding on the result of another op becomes such a constraint. Meshes with equal axes are
    merged, axes of size 1 dropped. A sharding that does not divide evenly is refused (JAX silently
    drops it), and so are two meshes with different axes: all shardings must share one mesh. An
    argument that is returned is constrained before the return, so that the result can have another
    sharding. A second run changes nothing.

        %1 = stablehlo.negate %0 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}]>]>}
    becomes
        %1 = stablehlo.negate %0
        %2 = sdy.sharding_constraint %1 <@user, [{"x"}]>
    """

    name = "shardc-adopt-shardings"

    def apply(self, module: ir.Operation) -> None:
        main = main_function(module)
        for op in list(walk(main)):
            _as_constraints(op)
        adopter = _Adopter(module)
        attrs = arg_attrs(main)
        names = argument_names(main)
        for n, (value, each) in enumerate(zip(body(main).arguments, attrs, strict=True)):
            if SHARDING in each:
                each[SHARDING] = adopter.adopted(
                    each[SHARDING], value, f"argument '{names[n]}'", main
                )
        set_arg_attrs(main, attrs)
        for op in walk(main):
            if op.name == CONSTRAINT:
                op.attributes["sharding"] = adopter.adopted(
                    op.attributes["sharding"], op.operands[0], "a value", op
                )
        results, end = result_attrs(main), terminator(main)
        for n, each in enumerate(results):
            result: ir.Value = end.operands[n]
            if SHARDING in each:
                each[SHARDING] = adopter.adopted(each[SHARDING], result, f"result {n}", main)
                if isinstance(result.owner, ir.Block) or list(end.operands).count(result) > 1:
                    with ir.InsertionPoint(end), end.location:
                        end.operands[n] = sdy.ShardingConstraintOp(result, each[SHARDING]).result
        set_result_attrs(main, results)
        adopter.finish()


def _as_constraints(op: ir.Operation) -> None:
    """Turns `sdy.sharding` of an op into constraints on its results."""
    if op.name.startswith("sdy.") and op.name not in (CONSTRAINT, "sdy.mesh", "sdy.return"):
        raise PlanError(
            f"'{op.name}' distributes the program by hand",
            where=where(op),
            help="write the step for one device (without shard_map), and shardings as"
            " jax.lax.with_sharding_constraint",
            code="SHARDC-202",
        )
    if SHARDING not in op.attributes:
        return
    shardings = sdy.TensorShardingPerValueAttr(op.attributes[SHARDING]).shardings
    del op.attributes[SHARDING]
    for result, sharding in zip(op.results, shardings, strict=True):
        with ir.InsertionPoint.after(op), op.location:
            constrained = sdy.ShardingConstraintOp(result, sharding).operation
        result.replace_all_uses_except(constrained.results[0], constrained)


class _Adopter:
    """Finds the one mesh, and rewrites shardings to refer to it."""

    def __init__(self, module: ir.Operation) -> None:
        self.module = module
        self.meshes = {
            str(ir.StringAttr(op.attributes["sym_name"]).value): op for op in _mesh_ops(module)
        }
        self.axes: Axes | None = None

    def adopted(
        self, attribute: ir.Attribute, value: ir.Value, what: str, place: ir.Operation
    ) -> ir.Attribute:
        """`attribute` on @user, checked against `value`."""
        axes = self._axes(attribute)
        if self.axes is None:
            self.axes = axes
        elif dict(axes) != dict(self.axes):
            raise PlanError(
                f"{what} is to be sharded on the mesh {_text(axes)}, and other values on"
                f" {_text(self.axes)}",
                where=where_step(place),
                help="give all shardings over one mesh",
                code="SHARDC-204",
            )
        mesh = Mesh(self.axes, tuple(range(math.prod(size for _, size in self.axes))))
        asked = read_user_sharding(attribute, where_step(place))
        known = dict(self.axes)
        asked = UserSharding(
            tuple(tuple(axis for axis in dim if axis in known) for dim in asked.dims),
            asked.is_open,
            tuple(axis for axis in asked.replicated if axis in known),
        )
        shape = shape_of(value)
        dim = uneven_dim(asked, mesh, shape)
        if dim is not None:
            count = mesh.num_shards(asked.dims[dim])
            raise PlanError(
                f"{what} of shape {shape} is to be split over {' and '.join(asked.dims[dim])} in"
                f" dim {dim}, and {shape[dim]} does not divide into {count} parts",
                where=where_step(place),
                help=f"shard another dim, or make its size a multiple of {count}",
                code="SHARDC-203",
            )
        return user_sharding_attr(asked)

    def _axes(self, attribute: ir.Attribute) -> Axes:
        """Axes of size above 1 of the mesh that a sharding refers to."""
        mesh = sdy.TensorShardingAttr(attribute).mesh_or_ref
        if isinstance(mesh, ir.FlatSymbolRefAttr):
            mesh = self.meshes[str(mesh.value)].attributes["mesh"]
        axes = [sdy.MeshAxisAttr(axis) for axis in sdy.MeshAttr(mesh).axes]
        return tuple((str(a.name), int(a.size)) for a in axes if int(a.size) > 1)

    def finish(self) -> None:
        """Replaces all meshes by @user, if there is any sharding at all."""
        for op in self.meshes.values():
            op.erase()
        if self.axes is not None:
            count = math.prod(size for _, size in self.axes)
            add_mesh(self.module, USER_MESH, Mesh(self.axes, tuple(range(count))))


def _mesh_ops(module: ir.Operation) -> Iterator[ir.Operation]:
    for op in list(module.regions[0].blocks[0].operations):
        if op.operation.name == "sdy.mesh":
            yield op.operation


def _text(axes: Axes) -> str:
    return ", ".join(f"{name}={size}" for name, size in axes)

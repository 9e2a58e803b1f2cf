"""Conversion of shardings between Shardy's attributes and shardc's data."""

import functools
from collections.abc import Callable, Mapping, Sequence

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from shardc.errors import PlanError
from shardc.ir.attributes import IN_SHARDINGS, MESH_DEVICES, SHARDING, arg_attrs, named_attributes
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import body, nested_ops
from shardc.plan.layout import Mesh, TensorSharding


def to_attr(sharding: TensorSharding, mesh_name: str) -> ir.Attribute:
    """`#sdy.sharding<@mesh_name, ...>` in the current context, every dim closed."""
    dims = [
        sdy.DimensionShardingAttr.get([sdy.AxisRefAttr.get(a) for a in axes], is_closed=True)
        for axes in sharding.dims
    ]
    unreduced = [sdy.AxisRefAttr.get(axis) for axis in sharding.unreduced]
    return sdy.TensorShardingAttr.get(mesh_name, dims, unreduced_axes=unreduced)


def attrs_on(mesh_name: str) -> Callable[[TensorSharding], ir.Attribute]:
    """`to_attr` on one mesh; each sharding is made once, because many values share it."""
    return functools.cache(functools.partial(to_attr, mesh_name=mesh_name))


def from_attr(attribute: ir.Attribute) -> TensorSharding:
    """Reads `#sdy.sharding`; sub-axes are refused (PlanError, SHARDC-200)."""
    attr = sdy.TensorShardingAttr(attribute)

    def name(axis: ir.Attribute) -> str:
        ref = sdy.AxisRefAttr(axis)
        if ref.sub_axis_info is not None:
            raise PlanError(f"the sharding {attribute} uses a part of an axis")
        return str(ref.name)

    return TensorSharding(
        tuple(
            tuple(name(axis) for axis in sdy.DimensionShardingAttr(dim).axes)
            for dim in attr.dimension_shardings
        ),
        tuple(sorted(name(axis) for axis in attr.unreduced_axes)),
    )


def mesh_name(attribute: ir.Attribute) -> str:
    """The symbol of the mesh that a `#sdy.sharding` refers to."""
    return str(ir.FlatSymbolRefAttr(sdy.TensorShardingAttr(attribute).mesh_or_ref).value)


def result_shardings(op: ir.Operation) -> list[TensorSharding] | None:
    """The shardings of an op's results, or None without the attribute."""
    if SHARDING not in op.attributes:
        return None
    per_value = sdy.TensorShardingPerValueAttr(op.attributes[SHARDING])
    return [from_attr(attr) for attr in per_value.shardings]


def set_result_shardings(
    op: ir.Operation,
    shardings: Sequence[TensorSharding],
    attr_of: Callable[[TensorSharding], ir.Attribute],
) -> None:
    """Writes `sdy.sharding` of an op, one per result, by `attrs_on` a mesh."""
    op.attributes[SHARDING] = sdy.TensorShardingPerValueAttr.get([*map(attr_of, shardings)])


def operand_shardings(op: ir.Operation) -> list[TensorSharding] | None:
    """The shardings that an op requires of its operands (`shardc.in_shardings`), or None."""
    if IN_SHARDINGS not in op.attributes:
        return None
    return [from_attr(attr) for attr in ir.ArrayAttr(op.attributes[IN_SHARDINGS])]


def set_operand_shardings(
    op: ir.Operation,
    shardings: Sequence[TensorSharding],
    attr_of: Callable[[TensorSharding], ir.Attribute],
) -> None:
    """Writes `shardc.in_shardings` of an op, one per operand, by `attrs_on` a mesh."""
    op.attributes[IN_SHARDINGS] = ir.ArrayAttr.get([*map(attr_of, shardings)])


def meshes(module: ir.Operation) -> dict[str, Mesh]:
    """Every `sdy.mesh` of a module by symbol name, with its devices."""
    placed: dict[str, tuple[int, ...]] = {}
    if MESH_DEVICES in module.attributes:
        for name, ids in named_attributes(module.attributes[MESH_DEVICES]).items():
            placed[name] = tuple(int(i) for i in ir.DenseI64ArrayAttr(ids))
    found = {}
    for op in module.regions[0].blocks[0].operations:
        if op.operation.name == "sdy.mesh":
            attr = sdy.MeshAttr(op.operation.attributes["mesh"])
            axes = tuple((str(a.name), int(a.size)) for a in map(sdy.MeshAxisAttr, attr.axes))
            count = 1
            for _, size in axes:
                count *= size
            name = str(ir.StringAttr(op.operation.attributes["sym_name"]).value)
            found[name] = Mesh(axes, placed.get(name, tuple(range(count))))
    return found


def write_mesh_devices(module: ir.Operation, placed: dict[str, Mesh]) -> None:
    """Writes the device ids of each mesh (Shardy's own would renumber them)."""
    module.attributes[MESH_DEVICES] = ir.DictAttr.get(
        {name: ir.DenseI64ArrayAttr.get(mesh.device_ids) for name, mesh in placed.items()}
    )


def add_mesh(module: ir.Operation, name: str, mesh: Mesh) -> None:
    """Puts `sdy.mesh @name` at the top of a module (positions on the mesh, not device ids)."""
    with ir.InsertionPoint.at_block_begin(module.regions[0].blocks[0]), ir.Location.unknown():
        axes = [sdy.MeshAxisAttr.get(axis, size) for axis, size in mesh.axes]
        sdy.MeshOp(name, sdy.MeshAttr.get(axes))


# The Shardy collectives that shardc emits -> the attribute with the sharding of their result.
RESHARDING_OPS = {
    "sdy.reshard": "sharding",
    "sdy.all_gather": "out_sharding",
    "sdy.all_reduce": "out_sharding",
    "sdy.all_slice": "out_sharding",
    "sdy.all_to_all": "out_sharding",
    "sdy.reduce_scatter": "out_sharding",
}


def value_shardings(function: ir.Operation) -> dict[ir.Value, ir.Attribute]:
    """`#sdy.sharding` of each argument and op result of a function that has the attribute.

    Ops in control flow count too; a carried value has the same sharding inside the loop as the
    loop's result.
    """
    found: dict[ir.Value, ir.Attribute] = {}
    for value, attrs in zip(body(function).arguments, arg_attrs(function), strict=True):
        if SHARDING in attrs:
            found[value] = attrs[SHARDING]
    for op in nested_ops(function):
        if op.name in RESHARDING_OPS:
            found[op.results[0]] = op.attributes[RESHARDING_OPS[op.name]]
        elif SHARDING in op.attributes:
            per_value = sdy.TensorShardingPerValueAttr(op.attributes[SHARDING])
            found.update(zip(op.results, per_value.shardings, strict=True))
            if op.name == "stablehlo.while":
                for region in op.regions:
                    carried = region.blocks[0].arguments
                    found.update(zip(carried, per_value.shardings, strict=True))
    return found


def sharding_or_replicated(
    value: ir.Value, written: Mapping[ir.Value, ir.Attribute]
) -> TensorSharding:
    """The sharding of `value` in `value_shardings`; replicated if absent."""
    if value in written:
        return from_attr(written[value])
    return TensorSharding.replicated(len(shape_of(value)))


def local_shape(shape: Sequence[int], sharding: TensorSharding, mesh: Mesh) -> tuple[int, ...]:
    """Shape of one device's part; PlanError (SHARDC-201) if the axes do not divide a dim."""
    counts = [mesh.num_shards(axes) for axes in sharding.dims]
    if len(counts) != len(shape) or any(n % c for n, c in zip(shape, counts, strict=True)):
        raise PlanError(
            f"a value of shape {tuple(shape)} does not divide into {counts} parts",
            help="plan again: this plan was made for another version of the program",
            code="SHARDC-201",
        )
    return tuple(size // count for size, count in zip(shape, counts, strict=True))


def local_type(type: ir.Type, sharding: TensorSharding, mesh: Mesh) -> ir.Type:
    """Type of one device's part of a tensor; other types are unchanged."""
    if not isinstance(type, ir.RankedTensorType):
        return type
    return ir.RankedTensorType.get(local_shape(type.shape, sharding, mesh), type.element_type)

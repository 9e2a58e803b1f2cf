"""Copies of ops that work on a part of their operands."""

from collections.abc import Sequence

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.ir.constants import splat_text
from shardc.ir.tensor_types import shape_of
from shardc.rules.convolutions import BATCH_GROUPS, FEATURE_GROUPS, group_count

# Attributes with positions in operand dims: they scale with a dim if they are at block boundaries.
EDGES = {
    "stablehlo.slice": ("start_indices", "limit_indices"),
    "stablehlo.pad": ("edge_padding_low", "edge_padding_high"),
}


def make_local(
    op: ir.Operation, operands: Sequence[ir.Value], result_types: Sequence[ir.Type]
) -> ir.Operation:
    """A copy of `op` at the current insertion point that works on a part of its operands.

    Attributes that repeat sizes (positions of a slice, sizes of gathered slices, splat constants,
    groups of convolutions) follow the new types; regions and every other attribute are copied.
    A reducer follows the element type of the result.
    """
    local = op.operation.clone(ip=ir.InsertionPoint.current).operation
    for position, operand in enumerate(operands):
        local.operands[position] = operand
    for result, result_type in zip(local.results, result_types, strict=True):
        if isinstance(result_type, ir.RankedTensorType):
            element = result_type.element_type
            if element != ir.RankedTensorType(result.type).element_type:
                _retype_reducers(local, element)
        result.set_type(result_type)
    if op.name in EDGES:
        whole, part = shape_of(op.operands[0]), shape_of(operands[0])
        for name in EDGES[op.name]:
            edges = list(ir.DenseI64ArrayAttr(op.attributes[name]))
            edges = [e * p // max(w, 1) for w, p, e in zip(whole, part, edges, strict=True)]
            local.attributes[name] = ir.DenseI64ArrayAttr.get(edges)
    elif op.name == "stablehlo.gather":
        whole, part = shape_of(op.operands[0]), shape_of(operands[0])
        sizes = list(ir.DenseI64ArrayAttr(op.attributes["slice_sizes"]))
        sizes = [p if s == w else s for w, p, s in zip(whole, part, sizes, strict=True)]
        local.attributes["slice_sizes"] = ir.DenseI64ArrayAttr.get(sizes)
    elif op.name == "stablehlo.dynamic_slice":
        local.attributes["slice_sizes"] = ir.DenseI64ArrayAttr.get(shape_of(local.results[0]))
    elif op.name == "stablehlo.convolution":
        _set_groups(local, op)
    elif op.name == "stablehlo.constant" and local.results[0].type != op.results[0].type:
        number = (splat_text(op) or "").split(" : ")[0]
        local.attributes["value"] = ir.Attribute.parse(f"dense<{number}> : {result_types[0]}")
    return local


def without_shardings(local: ir.Operation) -> ir.Operation:
    """Drops the attributes of the whole op: a part has no sharding."""
    for name in list(local.attributes):
        if name.startswith(("sdy.", "shardc.")):
            del local.attributes[name]
    return local


def _retype_reducers(op: ir.Operation, element: ir.Type) -> None:
    """Gives the scalars of a reduce's or scatter's region another element type."""
    scalar = ir.RankedTensorType.get([], element)
    for region in op.regions:
        block = region.blocks[0]
        inner = [result for each in block.operations for result in each.results]
        for value in (*block.arguments, *inner):
            value.set_type(scalar)


def _set_groups(local: ir.Operation, whole: ir.Operation) -> None:
    """Scales the group counts of a part of a convolution in proportion to its operands."""
    numbers = stablehlo.ConvDimensionNumbers(whole.attributes["dimension_numbers"])
    for name, dim in (
        (FEATURE_GROUPS, numbers.input_feature_dimension),
        (BATCH_GROUPS, numbers.input_batch_dimension),
    ):
        groups = group_count(whole, name)
        if groups > 1:
            part = groups * shape_of(local.operands[0])[dim] // shape_of(whole.operands[0])[dim]
            local.attributes[name] = ir.IntegerAttr.get(whole.attributes[name].type, part)

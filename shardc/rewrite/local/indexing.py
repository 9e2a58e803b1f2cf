"""Gathers and scatters on a part of their indexed dims.

Each device subtracts the start of its part from the indices. A gather returns zeros for entries of
other devices, so the sum over the devices is the whole result; a scatter skips them.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.ir.constants import zeros
from shardc.ir.tensor_types import shape_of
from shardc.rewrite.local.collectives import DeviceProgram
from shardc.rewrite.local.local_ops import make_local, without_shardings

Axes = tuple[str, ...]


def looked_up(op: ir.Operation, dims: Sequence[Axes]) -> dict[int, Axes]:
    """Split dims of a gather's operand of which it takes one entry per index.

    Args:
        dims: the axes that split each dim of the operand.
    """
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    sizes = list(ir.DenseI64ArrayAttr(op.attributes["slice_sizes"]))
    return {d: dims[d] for d in numbers.start_index_map if dims[d] and sizes[d] == 1}


def scattered_to(op: ir.Operation, dims: Sequence[Axes]) -> dict[int, Axes]:
    """Split dims of a scatter's operand in which it writes one entry per index."""
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    inserted = list(numbers.inserted_window_dims)
    chosen = numbers.scattered_dims_to_operand_dims
    return {d: dims[d] for d in chosen if dims[d] and d in inserted}


def gather_part(
    device: DeviceProgram,
    op: ir.Operation,
    operands: Sequence[ir.Value],
    found: Mapping[int, Axes],
    result_type: ir.Type,
) -> ir.Value:
    """The device's partial result of the gather `op`: its own entries, zeros for the others. `op`
    loses its promise of sorted indices, as does the scatter in `scatter_indices`.

    Args:
        operands: the device's parts; the operand is split in the dims `found`.
        result_type: of the partial result; may be wider than the operand's elements for the sum.
    """
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    index_map, vector_dim = list(numbers.start_index_map), int(numbers.index_vector_dim)
    whole, part = shape_of(op.operands[0]), shape_of(operands[0])
    sizes = list(ir.DenseI64ArrayAttr(op.attributes["slice_sizes"]))
    indices = _wide_enough(operands[1])
    last = [whole[d] - sizes[d] for d in index_map]
    _forget_order(op)
    clamped = stablehlo.ClampOp(
        _numbers(indices, [0] * len(last), vector_dim), indices, _numbers(indices, last, vector_dim)
    ).result
    own = _shifted(device, clamped, index_map, vector_dim, found, part)
    ends = [part[d] - 1 if d in found else end for d, end in zip(index_map, last, strict=True)]
    inside = stablehlo.AndOp(
        _compare(own, _numbers(own, [0] * len(ends), vector_dim), "GE"),
        _compare(own, _numbers(own, ends, vector_dim), "LE"),
    ).result
    if vector_dim < len(shape_of(indices)):
        inside = _all(inside, vector_dim)
    shape = ir.RankedTensorType(result_type).shape
    narrow = ir.RankedTensorType.get(shape, operands[0].type.element_type)
    taken: ir.Value = without_shardings(make_local(op, [operands[0], own], [narrow])).results[0]
    if narrow != result_type:
        taken = stablehlo.ConvertOp(result_type, taken).result
    offsets = list(numbers.offset_dims)
    kept = [dim for dim in range(len(shape)) if dim not in offsets]
    mask_type = ir.RankedTensorType.get(shape, ir.IntegerType.get_signless(1))
    mask = stablehlo.BroadcastInDimOp(mask_type, inside, kept).result
    return stablehlo.SelectOp(mask, taken, zeros(taken.type)).result


def scatter_indices(
    device: DeviceProgram,
    op: ir.Operation,
    operands: Sequence[ir.Value],
    found: Mapping[int, Axes],
) -> ir.Value:
    """The indices of a scatter for the device's part of its operands, split in the dims `found`.

    Indices of other parts are out of bounds, where a scatter writes nothing.
    """
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    index_map = list(numbers.scattered_dims_to_operand_dims)
    indices = _wide_enough(operands[len(op.results)])
    part = shape_of(operands[0])
    _forget_order(op)
    return _shifted(device, indices, index_map, int(numbers.index_vector_dim), found, part)


def _forget_order(op: ir.Operation) -> None:
    """Withdraws the promise that the indices are sorted: relative to the start of a part, those
    before it wrap around to the largest numbers if they are unsigned, or the least of all."""
    if "indices_are_sorted" in op.attributes:
        op.attributes["indices_are_sorted"] = ir.BoolAttr.get(False)


def _wide_enough(indices: ir.Value) -> ir.Value:
    """Indices of at least 32 bits: the start of a part may not fit into fewer."""
    element = indices.type.element_type
    if ir.IntegerType(element).width >= 32:
        return indices
    wide = ir.RankedTensorType.get(shape_of(indices), ir.IntegerType.get_signless(32))
    return stablehlo.ConvertOp(wide, indices).result


def _shifted(
    device: DeviceProgram,
    indices: ir.Value,
    index_map: Sequence[int],
    vector_dim: int,
    found: Mapping[int, Axes],
    part: Sequence[int],
) -> ir.Value:
    """`indices` relative to the start of the device's part."""
    total = indices
    for position, dim in enumerate(index_map):
        if dim in found:
            start = device.start(found[dim], part[dim])
            scalar = ir.RankedTensorType.get([], indices.type.element_type)
            start = stablehlo.ConvertOp(scalar, start).result
            everywhere = stablehlo.BroadcastInDimOp(indices.type, start, []).result
            here = [int(p == position) for p in range(len(index_map))]
            chosen = stablehlo.MulOp(everywhere, _numbers(indices, here, vector_dim)).result
            total = stablehlo.SubtractOp(total, chosen).result
    return total


def _numbers(like: ir.Value, numbers: Sequence[int], vector_dim: int) -> ir.Value:
    """A constant of the type of `like` with `numbers` along `vector_dim`."""
    shape = shape_of(like)
    element = like.type.element_type
    integer = ir.IntegerType(element)
    dtype = np.dtype(f"{'u' if integer.is_unsigned else ''}int{integer.width}")
    if vector_dim == len(shape):  # one number for each index
        dims, row = [], ir.RankedTensorType.get([], element)
    else:
        dims, row = [vector_dim], ir.RankedTensorType.get([len(numbers)], element)
    array = np.array(numbers, dtype).reshape(list(row.shape))
    constant = stablehlo.ConstantOp(ir.DenseElementsAttr.get(array, type=row)).result
    return stablehlo.BroadcastInDimOp(like.type, constant, dims).result


def _compare(left: ir.Value, right: ir.Value, direction: str) -> ir.Value:
    return stablehlo.CompareOp(left, right, stablehlo.ComparisonDirectionAttr.get(direction)).result


def _all(values: ir.Value, dim: int) -> ir.Value:
    """The conjunction of booleans along `dim`."""
    shape = [size for d, size in enumerate(shape_of(values)) if d != dim]
    boolean = ir.IntegerType.get_signless(1)
    scalar = ir.RankedTensorType.get([], boolean)
    true = stablehlo.ConstantOp(ir.DenseElementsAttr.get(np.array(True), type=scalar)).result
    reduce = stablehlo.ReduceOp(
        [ir.RankedTensorType.get(shape, boolean)], [values], [true], [dim]
    ).operation
    block = reduce.regions[0].blocks.append(scalar, scalar, arg_locs=[reduce.location] * 2)
    with ir.InsertionPoint(block):
        stablehlo.ReturnOp([stablehlo.AndOp(*block.arguments).result])
    return reduce.results[0]

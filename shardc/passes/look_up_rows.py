"""Replace products with one-hot matrices by gathers, and their gradients by scatters."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.analysis.program.one_hot import Lookup, OneHot, lookups
from shardc.ir.attributes import LOOKUPS, int_attr
from shardc.ir.constants import integer, zeros
from shardc.ir.pass_manager import Pass
from shardc.ir.tensor_types import num_elements, shape_of
from shardc.ir.walk import main_function
from shardc.rewrite.microbatches.ops import create, with_shape


@dataclass(frozen=True)
class LookUpRows(Pass):
    """Replaces each product that selects rows of a parameter by a one-hot matrix with a gather, and
    the product that is its gradient with a scatter.

    The results equal those of the products, up to the order of additions; sums of 16-bit floats
    stay in 32 bits. An id outside the table selects zeros. The product is also nan wherever it
    multiplies a zero of the matrix by a number that is not finite:

    - The lookup counts the non-finite elements of each column of the table. Where a column has more
      of them than the selected row, the result is nan.
    - The gradient adds to every row the sum over all tokens of 0, or nan for non-finite elements.
      So it stays a sum over tokens, which microbatches and devices can divide. If all infinities of
      a column belong to one row, this row is nan too: only there does the product give infinity.

    Products with activations (of experts) are left alone, and so are gradients of products that are
    not lookups. A second run changes nothing.

        %h = stablehlo.compare EQ, %ids, %iota
        %x = stablehlo.dot_general %h, %table, contracting_dims = [1] x [0]
        %g = stablehlo.dot_general %h, %dy, contracting_dims = [0] x [0]
    becomes, leaving aside ids outside the table and nan,
        %x = "stablehlo.gather"(%table, %ids)
        %g = "stablehlo.scatter"(%zeros, %ids, %dy) ({ stablehlo.add })

    Attributes:
        rows: tables with fewer rows stay products, which are as fast on matrix units.
    """

    name = "shardc-look-up-rows"
    never_refuses = "a product that is no lookup is left alone"

    rows: int = 128

    def apply(self, module: ir.Operation) -> None:
        found = lookups(main_function(module), self.rows)
        for each in found:
            with ir.InsertionPoint(each.op), each.op.location:
                if each.is_gradient:
                    rank = len(shape_of(each.op.results[0]))
                    order = [*range(1, rank), 0] if each.side == 1 else list(range(rank))
                    _replace(each.op.results[0], _added_up(each), order)
                else:
                    each.op.results[0].replace_all_uses_with(_looked_up(each))
            each.op.erase()
        if found:
            module.attributes[LOOKUPS] = int_attr(len(found))


def _looked_up(lookup: Lookup) -> ir.Value:
    """The selected rows of the table, in the layout of the product's result."""
    table, (dim,) = lookup.other, lookup.contracted
    ids, rows = _ids(lookup.one_hot), lookup.one_hot.rows
    shape, sizes = shape_of(lookup.op.results[0]), list(shape_of(table))
    sizes[dim] = 1
    row_rank, id_rank = len(sizes) - 1, len(shape_of(ids))
    own = list(range(id_rank)) if lookup.side == 0 else list(range(row_rank, len(shape)))
    columns = [d for d in range(len(shape)) if d not in own]
    taken = create(
        "stablehlo.gather",
        [with_shape(table, shape)],
        [table, _vectors(ids)],
        {
            "dimension_numbers": stablehlo.GatherDimensionNumbers.get(
                columns, [dim], [], [], [dim], id_rank
            ),
            "slice_sizes": ir.DenseI64ArrayAttr.get(sizes),
            "indices_are_sorted": ir.BoolAttr.get(False),
        },
    ).results[0]
    inside = stablehlo.AndOp(
        _compare(ids, integer(ids.type, 0), "GE"), _compare(ids, integer(ids.type, rows - 1), "LE")
    ).result
    inside = stablehlo.BroadcastInDimOp(with_shape(inside, shape), inside, own).result
    picked = stablehlo.SelectOp(inside, taken, zeros(taken.type)).result
    count = _sum(_not_finite(table), [dim])
    everywhere = stablehlo.BroadcastInDimOp(with_shape(count, shape), count, columns).result
    others = _compare(everywhere, _not_finite(picked), "GT")
    result = stablehlo.SelectOp(others, _nan(picked.type), picked).result
    return _convert(result, _element(lookup.op.results[0]))


def _added_up(lookup: Lookup) -> ir.Value:
    """The gradient of a table with rows as its first dim, before rounding."""
    rows = lookup.one_hot.rows
    wide = "f64" in (str(_element(lookup.other)), str(_element(lookup.op.results[0])))
    updates = _convert(lookup.other, ir.F64Type.get() if wide else ir.F32Type.get())
    contracted = sorted(lookup.contracted)
    ids = _transpose(_ids(lookup.one_hot), [lookup.contracted.index(d) for d in contracted])
    columns = [d for d in range(len(shape_of(updates))) if d not in contracted]
    total = with_shape(updates, [rows, *(shape_of(updates)[d] for d in columns)])
    scatter = ir.Operation.create(
        "stablehlo.scatter",
        results=[total],
        operands=[zeros(total), _vectors(ids), updates],
        attributes={
            "scatter_dimension_numbers": stablehlo.ScatterDimensionNumbers.get(
                columns, [0], [], [], [0], len(contracted)
            ),
            "indices_are_sorted": ir.BoolAttr.get(False),
            "unique_indices": ir.BoolAttr.get(False),
        },
        regions=1,
    )
    _add_region(scatter)
    finite = stablehlo.IsFiniteOp(updates).result
    poison = stablehlo.SelectOp(finite, zeros(updates.type), _nan(updates.type)).result
    poison = _sum(poison, contracted)
    everywhere = stablehlo.BroadcastInDimOp(total, poison, range(1, len(columns) + 1)).result
    return stablehlo.AddOp(scatter.results[0], everywhere).result


def _ids(one_hot: OneHot) -> ir.Value:
    """One id per row of a one-hot matrix, in the order and shape of its other dims."""
    source = one_hot.spread.operands[0]
    kept = list(ir.DenseI64ArrayAttr(one_hot.spread.attributes["broadcast_dimensions"]))
    compared = list(shape_of(one_hot.spread.results[0]))
    del compared[one_hot.along]
    shape = [size for d, size in enumerate(one_hot.shape) if d != one_hot.dim]
    ids = one_hot.ids
    if num_elements(source) != math.prod(compared):
        sizes = [n for d, n in zip(kept, shape_of(source), strict=True) if d != one_hot.along]
        dims = [d - (d > one_hot.along) for d in kept if d != one_hot.along]
        ids = _reshape(ids, sizes)
        ids = stablehlo.BroadcastInDimOp(with_shape(ids, compared), ids, dims).result
    return _reshape(ids, shape)


def _vectors(ids: ir.Value) -> ir.Value:
    """Ids as index vectors of one number."""
    return _reshape(ids, [*shape_of(ids), 1])


def _not_finite(value: ir.Value) -> ir.Value:
    """1.0 where a value is infinite or nan, 0.0 elsewhere."""
    flags = stablehlo.NotOp(stablehlo.IsFiniteOp(value).result).result
    return _convert(flags, ir.F32Type.get())


def _sum(value: ir.Value, dims: Sequence[int]) -> ir.Value:
    """The sum over some dims."""
    kept = [size for d, size in enumerate(shape_of(value)) if d not in dims]
    scalar = with_shape(value, [])
    reduce = stablehlo.ReduceOp([with_shape(value, kept)], [value], [zeros(scalar)], dims)
    _add_region(reduce.operation)
    return reduce.operation.results[0]


def _add_region(op: ir.Operation) -> None:
    """Gives an op the region of a plain addition."""
    scalar = with_shape(op.results[0], [])
    block = op.regions[0].blocks.append(scalar, scalar, arg_locs=[op.location] * 2)
    with ir.InsertionPoint(block):
        stablehlo.ReturnOp([stablehlo.AddOp(*block.arguments).result])


def _replace(old: ir.Value, value: ir.Value, order: Sequence[int]) -> None:
    """Replaces `old` by `value`, transposed to `order` and perhaps narrowed. A user that transposes
    it back or widens it again gets `value` itself, which avoids the rounding."""
    for use in list(old.uses):
        user = use.owner.operation
        if user.name == "stablehlo.transpose":
            then = list(ir.DenseI64ArrayAttr(user.attributes["permutation"]))
            _replace(user.results[0], value, [order[d] for d in then])
        elif user.name == "stablehlo.convert" and _element(user.results[0]) == _element(value):
            user.results[0].replace_all_uses_with(_transpose(value, order))
        else:
            continue
        user.erase()
    if list(old.uses):
        old.replace_all_uses_with(_convert(_transpose(value, order), _element(old)))


def _transpose(value: ir.Value, order: Sequence[int]) -> ir.Value:
    if list(order) == sorted(order):
        return value
    return stablehlo.TransposeOp(value, order).result


def _reshape(value: ir.Value, shape: Sequence[int]) -> ir.Value:
    if list(shape_of(value)) == list(shape):
        return value
    return stablehlo.ReshapeOp(with_shape(value, shape), value).result


def _convert(value: ir.Value, element: ir.Type) -> ir.Value:
    if _element(value) == element:
        return value
    return stablehlo.ConvertOp(ir.RankedTensorType.get(shape_of(value), element), value).result


def _element(value: ir.Value) -> ir.Type:
    return ir.RankedTensorType(value.type).element_type


def _compare(left: ir.Value, right: ir.Value, direction: str) -> ir.Value:
    return stablehlo.CompareOp(left, right, stablehlo.ComparisonDirectionAttr.get(direction)).result


def _nan(type_: ir.Type) -> ir.Value:
    element = ir.RankedTensorType(type_).element_type
    return stablehlo.constant(
        ir.DenseElementsAttr.get_splat(type_, ir.FloatAttr.get(element, math.nan))
    )

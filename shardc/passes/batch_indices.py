"""Turn dims that a gather or scatter indexes by position into batching dims."""

from collections.abc import Sequence
from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.analysis.values.facts import counts_along
from shardc.ir.pass_manager import Pass
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import all_functions, walk


@dataclass(frozen=True)
class BatchIndices(Pass):
    """Makes a batching dim of each dim that a gather or scatter indexes by an iota.

    `x[arange(n), i]` becomes `x[b, i[b]]` for every b: an index column that is an iota along a dim
    of the indices is removed, and that dim becomes the batching dim of the indexed operand dim. So
    the op can run on a part of the batch. At least one index column stays. A second run changes
    nothing.

        %i = stablehlo.concatenate %iota, %labels, dim = 1
        "stablehlo.gather"(%x, %i) <{collapsed_slice_dims = [0, 1], start_index_map = [0, 1], ..}>
    becomes
        "stablehlo.gather"(%x, %labels) <{collapsed_slice_dims = [1], operand_batching_dims = [0],
            start_indices_batching_dims = [0], start_index_map = [1], ..}>
    """

    name = "shardc-batch-indices"
    never_refuses = "an op whose indices are all data is left alone"

    def apply(self, module: ir.Operation) -> None:
        for function in all_functions(module):
            for op in list(walk(function)):
                if op.name in ("stablehlo.gather", "stablehlo.scatter"):
                    with op.location:
                        _rewrite(op)


@dataclass(frozen=True)
class _Numbers:
    """The dimension numbers of a gather or scatter, by their names in a gather."""

    offset_dims: list[int]
    collapsed: list[int]
    operand_batching: list[int]
    indices_batching: list[int]
    index_map: list[int]
    index_vector_dim: int


def _rewrite(op: ir.Operation) -> None:
    numbers = _numbers(op)
    position = 1 if op.name == "stablehlo.gather" else len(op.results)
    indices = op.operands[position]
    columns = _columns(indices, numbers.index_vector_dim)
    operand = shape_of(op.operands[0])
    batch: dict[int, int] = {}  # column -> dim of the indices
    for column, value in enumerate(columns):
        dim = None if value is None else counts_along(value)
        if dim is None or dim == numbers.index_vector_dim or len(batch) == len(columns) - 1:
            continue
        target = numbers.index_map[column]
        taken = dim in (*numbers.indices_batching, *batch.values())
        if target in numbers.collapsed and not taken and operand[target] == shape_of(indices)[dim]:
            batch[column] = dim
    if not batch:
        return
    kept = [column for column in range(len(columns)) if column not in batch]
    with ir.InsertionPoint(op):
        op.operands[position] = _joined(indices, columns, kept)
    # The remaining columns need not be sorted, even if all columns together are.
    op.attributes["indices_are_sorted"] = ir.BoolAttr.get(False)
    pairs = sorted(
        [
            *zip(numbers.operand_batching, numbers.indices_batching, strict=True),
            *((numbers.index_map[column], dim) for column, dim in batch.items()),
        ]
    )
    _set_numbers(
        op,
        _Numbers(
            numbers.offset_dims,
            [d for d in numbers.collapsed if d not in {d for d, _ in pairs}],
            [d for d, _ in pairs],
            [d for _, d in pairs],
            [numbers.index_map[column] for column in kept],
            numbers.index_vector_dim,
        ),
    )


def _numbers(op: ir.Operation) -> _Numbers:
    if op.name == "stablehlo.gather":
        n = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
        return _Numbers(
            list(n.offset_dims),
            list(n.collapsed_slice_dims),
            list(n.operand_batching_dims),
            list(n.start_indices_batching_dims),
            list(n.start_index_map),
            n.index_vector_dim,
        )
    s = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    return _Numbers(
        list(s.update_window_dims),
        list(s.inserted_window_dims),
        list(s.input_batching_dims),
        list(s.scatter_indices_batching_dims),
        list(s.scattered_dims_to_operand_dims),
        s.index_vector_dim,
    )


def _set_numbers(op: ir.Operation, n: _Numbers) -> None:
    numbers = (
        n.offset_dims,
        n.collapsed,
        n.operand_batching,
        n.indices_batching,
        n.index_map,
        n.index_vector_dim,
    )
    if op.name == "stablehlo.gather":
        op.attributes["dimension_numbers"] = stablehlo.GatherDimensionNumbers.get(*numbers)
    else:
        attribute = stablehlo.ScatterDimensionNumbers.get(*numbers)
        op.attributes["scatter_dimension_numbers"] = attribute


def _columns(indices: ir.Value, dim: int) -> list[ir.Value | None]:
    """The value of each column of the index vectors; None for columns that share one value.

    [] if the indices are not a concatenation, or the index vectors are not the last dim.
    """
    op = indices.owner
    if isinstance(op, ir.Block) or op.operation.name != "stablehlo.concatenate":
        return []
    made = op.operation
    if int(ir.IntegerAttr(made.attributes["dimension"]).value) != dim:
        return []
    if dim != len(shape_of(indices)) - 1:
        return []
    found: list[ir.Value | None] = []
    for piece in made.operands:
        size = shape_of(piece)[dim]
        found += [piece] if size == 1 else [None] * size
    return found


def _joined(indices: ir.Value, columns: Sequence[ir.Value | None], kept: Sequence[int]) -> ir.Value:
    """The index vectors with the columns that are kept."""
    dim = len(shape_of(indices)) - 1
    pieces = []
    for column in kept:
        piece = columns[column]
        if piece is None:
            shape = shape_of(indices)
            start, limit = [0] * len(shape), list(shape)
            start[dim], limit[dim] = column, column + 1
            piece = stablehlo.SliceOp(indices, start, limit, [1] * len(shape)).result
        pieces.append(piece)
    if len(pieces) == 1:
        return pieces[0]
    joined = [*shape_of(indices)[:-1], len(pieces)]
    element = ir.RankedTensorType(indices.type).element_type
    return ir.Operation.create(
        "stablehlo.concatenate",
        results=[ir.RankedTensorType.get(joined, element)],
        operands=pieces,
        attributes={"dimension": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), dim)},
    ).results[0]

"""What constants hold in a part of a square of queries and keys."""

import math
from collections.abc import Callable
from enum import Enum

import numpy as np
from jax.extend.mlir import ir

from shardc.analysis.slices.squares.moved_dims import Dims
from shardc.analysis.values.element_types import kept_as
from shardc.ir.tensor_types import shape_of
from shardc.rules.partial_sums import element_type


class Region(Enum):
    """A part of the square."""

    ABOVE = "above"  # key > query
    DIAGONAL = "diagonal"  # key == query


def same(row: Callable[[int, slice], np.ndarray], size: int, region: Region) -> float | None:
    """The number that all elements of a region have, found row by row, because squares are
    large."""
    found: set[float] = set()
    for query in range(size):
        start = query + (region is Region.ABOVE)
        keys = slice(start, size if region is Region.ABOVE else query + 1)
        found.update(map(float, np.unique(row(query, keys))))
        if len(found) > 1:
            return None
    return number(found.pop()) if found else None


def of_row(side: np.ndarray, query: int, keys: slice) -> np.ndarray:
    """The elements of a row of a square; axes along which nothing varies have size 1 there."""
    row = side[query if side.shape[0] > 1 else 0]
    return row[keys] if row.shape[0] > 1 else row


def constant(op: ir.Operation, dims: Dims, region: Region) -> float | None:
    """The number in a region of a constant, such as a mask that the function closes over."""
    found, attribute, (query, key) = filled(op), op.attributes["value"], dims
    if found is not None or query is None or key is None:
        return found
    kept = kept_as(ir.RankedTensorType(op.results[0].type).element_type)
    readable = isinstance(attribute, ir.DenseElementsAttr) and not attribute.is_splat
    if kept is None or not readable or element_type(op.results[0]) == "bf16":
        return None
    shape = shape_of(op.results[0])
    if shape[query] != shape[key]:
        return None
    square = np.moveaxis(np.array(attribute).reshape(shape), (query, key), (0, 1))
    return same(lambda row, keys: square[row, keys], shape[query], region)


def keeps_diagonal(op: ir.Operation, dims: Dims) -> bool:
    """Whether a slice of a square takes the same rows along both dims."""
    if None in dims:
        return False
    bounds = [
        list(ir.DenseI64ArrayAttr(op.attributes[name]))
        for name in ("start_indices", "limit_indices", "strides")
    ]
    query, key = ([each[dim] for each in bounds] for dim in dims if dim is not None)
    return query == key


def filled(op: ir.Operation) -> float | None:
    """The number that fills a constant; infinities too, which `shardc.ir.constants.splat` lacks."""
    attribute = op.attributes["value"]
    if not isinstance(attribute, ir.DenseElementsAttr) or not attribute.is_splat:
        return None
    one = attribute.get_splat_value()
    if isinstance(one, ir.FloatAttr | ir.IntegerAttr | ir.BoolAttr):
        return number(float(one.value))
    return None


def number(found: float) -> float | None:
    """A number; None if it is nan, which equals nothing."""
    return None if math.isnan(found) else found

"""What a square of queries and keys holds where a key comes after its query.

A causal mask puts a number there that the softmax makes zero. Which number that is, and whether it
becomes zero, is read off the ops between; see docs/proofs.md, "Token slices".
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np
from jax.extend.mlir import ir

from shardc.analysis.values.arithmetic import COMPARISONS
from shardc.analysis.values.facts import Values
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import defining_op

LOWEST_SCORE = -5e8  # what no score that is seen lies below: a mask of -1e9 hides behind it
MOST_OF_BIAS = 1e4  # what a bias may add to a score that is seen
VANISHES = 1e4  # exp(-x) of larger numbers is zero in every float type
DEEPEST = 200  # ops between a square and what it is made of, beyond which nothing is said


class Region(Enum):
    """A part of the square."""

    ABOVE = "above"  # key > query
    DIAGONAL = "diagonal"  # key == query


@dataclass(frozen=True)
class Low:
    """Each element lies at least `by` below one of its row that is on or below the diagonal."""

    by: float


Fact = float | Low | None
"""The number that all elements of a region are (of booleans 0 or 1), or `Low`, or nothing."""

Dims = tuple[int | None, int | None]
"""The dims of queries and keys in a value; None where it has none: all its rows are alike."""


class Square:
    """Facts about the values of stage functions.

    Args:
        sources: argument of a function -> the value that it is in the function that makes it.
    """

    def __init__(self, sources: Mapping[ir.Value, ir.Value]) -> None:
        self._sources = sources
        self._known: dict[tuple[ir.Value, Dims, Region], Fact] = {}
        self._values = Values()

    def fact(self, value: ir.Value, dims: Dims, region: Region, depth: int = 0) -> Fact:
        """What `value` holds in a region of the square that `dims` span."""
        key = value, dims, region
        if key not in self._known:
            self._known[key] = None  # of what is being asked
            if depth < DEEPEST:
                self._known[key] = self._found(value, dims, region, depth)
        return self._known[key]

    def _found(self, value: ir.Value, dims: Dims, region: Region, depth: int) -> Fact:
        op = defining_op(value)
        if op is None:
            source = self._sources.get(value)
            return None if source is None else self.fact(source, dims, region, depth + 1)
        name = op.name.removeprefix("stablehlo.")

        def of(position: int, at: Dims = dims) -> Fact:
            return self.fact(op.operands[position], at, region, depth + 1)

        if name == "constant":
            return _filled(op)
        if name in _MOVED:
            moved = _MOVED[name](op, dims)
            return None if moved is None else of(0, moved)
        if name == "compare":
            return self._compared(op, dims, region)
        if name == "select":
            return self._selected(op, dims, region, depth)
        if name == "optimization_barrier" or op.name == "sdy.sharding_constraint":
            return of(ir.OpResult(value).result_number)
        if name == "convert":
            return _converted(of(0), value)
        if name in _LOGICAL and not _is_boolean(value):
            return None
        if name in _UNARY:
            return _UNARY[name](of(0))
        if name in ("add", "subtract"):
            return self._added(op, dims, region, depth)
        if name in _BINARY:
            return _BINARY[name](of(0), of(1))
        return None

    def _selected(self, op: ir.Operation, dims: Dims, region: Region, depth: int) -> Fact:
        chooser = dims if shape_of(op.operands[0]) else (None, None)
        chosen = self.fact(op.operands[0], chooser, region, depth + 1)
        sides = [self.fact(op.operands[p], dims, region, depth + 1) for p in (1, 2)]
        if chosen is None or isinstance(chosen, Low):
            return sides[0] if sides[0] == sides[1] and isinstance(sides[0], float) else None
        found = sides[0] if chosen else sides[1]
        if region is Region.DIAGONAL or not isinstance(found, float):
            return found if isinstance(found, float) else None
        if not -math.inf < found <= 2 * LOWEST_SCORE:
            return found
        on = self.fact(op.operands[0], chooser, Region.DIAGONAL, depth + 1)
        seen = isinstance(on, float) and bool(on) != bool(chosen)
        seen = seen and self._is_score(op.operands[2 if chosen else 1])
        return Low(LOWEST_SCORE - found) if seen else None

    def _added(self, op: ir.Operation, dims: Dims, region: Region, depth: int) -> Fact:
        """Of scores and a bias: -inf stays, and so does what is low enough."""
        left, right = (self.fact(op.operands[p], dims, region, depth + 1) for p in (0, 1))
        sign = 1.0 if op.name == "stablehlo.add" else -1.0
        if isinstance(left, float) and isinstance(right, float):
            return _number(left + sign * right)
        if isinstance(left, Low) and right is None:
            return left if self._keeps_low(op.operands[1], dims) else None
        if isinstance(right, Low) and left is None and sign > 0:
            return right if self._keeps_low(op.operands[0], dims) else None
        for position, found, other in ((0, left, right), (1, right, left)):
            if not isinstance(found, float) or other is not None or (position and sign < 0):
                continue
            if found == -math.inf:
                return found
            if found <= 2 * LOWEST_SCORE:
                on = self.fact(op.operands[position], dims, Region.DIAGONAL, depth + 1)
                seen = isinstance(on, float) and abs(on) <= MOST_OF_BIAS
                if seen and self._is_score(op.operands[1 - position]):
                    return Low(LOWEST_SCORE - found)
        return None

    def _keeps_low(self, value: ir.Value, dims: Dims) -> bool:
        """Whether adding or subtracting a value leaves what is low far below what is seen."""
        return self._is_of_row(value, dims) or self._is_score(value)

    def _is_of_row(self, value: ir.Value, dims: Dims) -> bool:
        """Whether all keys of a query have the same, which leaves their differences as they are."""
        while dims[1] is not None:
            op = defining_op(value)
            name = "" if op is None else op.name.removeprefix("stablehlo.")
            moved = _MOVED[name](op, dims) if op is not None and name in _MOVED else None
            if op is None or moved is None:
                return False
            value, dims = op.operands[0], moved
        return True

    def _is_score(self, value: ir.Value, depth: int = 0) -> bool:
        """Whether a value is made of products and moderate constants: nothing that comes from
        outside, such as a mask of padding, may have made it low."""
        op = defining_op(value)
        if op is None:
            source = self._sources.get(value)
            return source is not None and depth < DEEPEST and self._is_score(source, depth + 1)
        name = op.name.removeprefix("stablehlo.")
        if name == "constant":
            filled = _filled(op)
            return isinstance(filled, float) and abs(filled) <= MOST_OF_BIAS
        if name not in _OF_SCORES or depth == DEEPEST:
            return name in ("dot_general", "iota")
        return all(self._is_score(operand, depth + 1) for operand in op.operands)

    def _compared(self, op: ir.Operation, dims: Dims, region: Region) -> Fact:
        """Whether a comparison of known numbers, such as of positions, is the same everywhere."""
        query, key = dims
        if query is None or key is None:
            return None
        known = [self._values.of(operand) for operand in op.operands]
        sides = [side[0] for side in known if side is not None and side.shape[0] == 1]
        if len(sides) < 2:
            return None
        if "compare_type" in op.attributes and "TOTALORDER" in str(op.attributes["compare_type"]):
            return None
        direction = str(op.attributes["comparison_direction"]).split()[-1].rstrip(">")
        shape = shape_of(op.results[0])
        size = shape[query]
        if size != shape[key]:
            return None
        # queries first, keys second, all others behind them; row by row, as squares are large
        left, right = (np.moveaxis(side, (query, key), (0, 1)) for side in sides)
        found: set[bool] = set()
        for row in range(size):
            keys = slice(row + 1, size) if region is Region.ABOVE else slice(row, row + 1)
            a, b = (_row(side, row, keys) for side in (left, right))
            results = np.unique(COMPARISONS[direction](a, b))
            found.update(bool(each) for each in results)
            if len(found) > 1:
                return None
        return float(found.pop()) if found else None


def _row(side: np.ndarray, row: int, keys: slice) -> np.ndarray:
    of_row = side[row if side.shape[0] > 1 else 0]
    return of_row[keys] if of_row.shape[0] > 1 else of_row


def _is_boolean(value: ir.Value) -> bool:
    return str(ir.RankedTensorType(value.type).element_type) == "i1"


def _converted(found: Fact, value: ir.Value) -> Fact:
    """Zeros and ones stay what they are in every type, all numbers near enough in floats."""
    if found in (0.0, 1.0):
        return found
    element = ir.RankedTensorType(value.type).element_type
    return found if isinstance(element, ir.FloatType) else None


def _number(found: float) -> Fact:
    return None if math.isnan(found) else found


def _filled(op: ir.Operation) -> Fact:
    attribute = op.attributes["value"]
    if not isinstance(attribute, ir.DenseElementsAttr) or not attribute.is_splat:
        return None
    one = attribute.get_splat_value()
    if isinstance(one, ir.FloatAttr | ir.IntegerAttr | ir.BoolAttr):
        return _number(float(one.value))
    return None


def _before_broadcast(op: ir.Operation, dims: Dims) -> Dims | None:
    order = list(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))
    sizes = shape_of(op.operands[0])

    def before(dim: int | None) -> int | None:
        if dim is None or dim not in order or sizes[order.index(dim)] == 1:
            return None
        return order.index(dim)

    return before(dims[0]), before(dims[1])


def _before_transpose(op: ir.Operation, dims: Dims) -> Dims | None:
    order = list(ir.DenseI64ArrayAttr(op.attributes["permutation"]))
    query, key = dims
    return None if query is None else order[query], None if key is None else order[key]


def _before_reshape(op: ir.Operation, dims: Dims) -> Dims | None:
    """Where only dims of size 1 come and go."""
    old, new = shape_of(op.operands[0]), shape_of(op.results[0])
    kept = [d for d, size in enumerate(old) if size != 1]
    made = [d for d, size in enumerate(new) if size != 1]
    if [old[d] for d in kept] != [new[d] for d in made]:
        return None
    query, key = (None if d is None or d not in made else kept[made.index(d)] for d in dims)
    return query, key


_MOVED: dict[str, Callable[[ir.Operation, Dims], Dims | None]] = {
    "broadcast_in_dim": _before_broadcast,
    "transpose": _before_transpose,
    "reshape": _before_reshape,
}


def _exponential(found: Fact) -> Fact:
    if isinstance(found, Low):
        return 0.0 if found.by >= VANISHES else None
    return 0.0 if found is not None and found <= -VANISHES else None


def _logistic(found: Fact) -> Fact:
    return _exponential(found) if isinstance(found, float) else None


def _multiplied(left: Fact, right: Fact) -> Fact:
    """0 times anything is 0: that of infinities is none is said in docs/proofs.md."""
    if left == 0.0 or right == 0.0:
        return 0.0
    if isinstance(left, float) and isinstance(right, float):
        return _number(left * right)
    for low, factor in ((left, right), (right, left)):
        if isinstance(low, Low) and isinstance(factor, float) and 0 < factor < math.inf:
            return Low(low.by * factor)
    return None


def _divided(left: Fact, right: Fact) -> Fact:
    if left == 0.0 and right != 0.0:
        return 0.0
    return _multiplied(left, 1.0 / right) if isinstance(right, float) and right else None


def _and(left: Fact, right: Fact) -> Fact:
    if 0.0 in (left, right):
        return 0.0
    return 1.0 if left == right == 1.0 else None


def _or(left: Fact, right: Fact) -> Fact:
    if 1.0 in (left, right):
        return 1.0
    return 0.0 if left == right == 0.0 else None


_UNARY: dict[str, Callable[[Fact], Fact]] = {
    "exponential": _exponential,
    "logistic": _logistic,
    "negate": lambda found: -found if isinstance(found, float) else None,
    "not": lambda found: 1.0 - found if isinstance(found, float) else None,
}
# What is a score if its operands are.
_OF_SCORES = (*_MOVED, "add", "subtract", "multiply", "divide", "negate", "convert", "tanh")
_LOGICAL = ("and", "or", "not")
_BINARY: dict[str, Callable[[Fact, Fact], Fact]] = {
    "multiply": _multiplied,
    "divide": _divided,
    "and": _and,
    "or": _or,
}

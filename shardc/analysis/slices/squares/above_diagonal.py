"""What a square of queries and keys holds where a key comes after its query.

A causal mask puts a number there that the softmax turns into zero. This analysis finds that number,
and whether it becomes zero, from the ops in between; see docs/proofs.md, "Token slices".
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jax.extend.mlir import ir

from shardc.analysis.slices.squares.moved_dims import MOVED, Dims
from shardc.analysis.slices.squares.premises import Answer, Answers, Premise
from shardc.analysis.slices.squares.reach import MOST_OF_BIAS, Reach
from shardc.analysis.slices.squares.regions import (
    Region,
    constant,
    keeps_diagonal,
    number,
    of_row,
    same,
)
from shardc.analysis.slices.squares.stacked_rows import row_written
from shardc.analysis.values.arithmetic import COMPARISONS
from shardc.analysis.values.facts import Values
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import defining_op
from shardc.rules.bounds import bounds, is_held
from shardc.rules.partial_sums import element_type

LOWEST_MASK = (
    -1e9
)  # numbers that hide scores, if these are premised to be a quarter of them at most
MOST_EXACT = 8  # integers that every float type holds, and their sums
VANISHES = 1e4  # exp(-x) of larger numbers is zero in every float type


@dataclass(frozen=True)
class Low:
    """Each element is at least `by` less than some element of its row on or below the diagonal, and
    at most `top`, which is far below zero."""

    by: float
    top: float


Fact = float | Low | None
"""The number that all elements of a region are (of booleans 0 or 1), or `Low`, or nothing."""


class Square:
    """Facts about the values of stage functions.

    Args:
        sources: argument of a function -> the value that it is in the function that makes it.
        at_hand: whether each element of a value is in some slice.
    """

    def __init__(
        self, sources: Mapping[ir.Value, ir.Value], at_hand: Callable[[ir.Value], bool]
    ) -> None:
        self._sources = sources
        self._answers = Answers()
        self._values = Values()
        self._reach = Reach(sources, at_hand, self._number, self._answers)

    def fact(self, value: ir.Value, dims: Dims, region: Region) -> Fact:
        """What `value` holds in a region of the square that `dims` span."""

        def find() -> Fact:
            found = self._found(value, dims, region)
            lost = isinstance(found, float) and _is_float(value) and not is_held(found, value)
            return None if lost else found

        return self._answers.of(("fact", value, dims, region), None, find)

    def is_finite(self, value: ir.Value, dims: Dims) -> bool:
        """Whether all numbers of a value above the diagonal are finite."""
        return self._reach.is_finite(value, dims)

    def resting_on(self, ask: Callable[[], Answer]) -> tuple[Answer, frozenset[Premise]]:
        """An answer, and the premises on which it rests."""
        return self._answers.resting_on(ask)

    def _number(self, value: ir.Value, dims: Dims) -> float | None:
        found = self.fact(value, dims, Region.ABOVE)
        return found if isinstance(found, float) else None

    def _found(self, value: ir.Value, dims: Dims, region: Region) -> Fact:
        op = defining_op(value)
        if op is None:
            source = self._sources.get(value)
            return None if source is None else self.fact(source, dims, region)
        name = op.name.removeprefix("stablehlo.")

        def of(position: int, at: Dims = dims) -> Fact:
            return self.fact(op.operands[position], at, region)

        if name == "constant":
            return constant(op, dims, region)
        if name == "slice":
            found = of(0) if keeps_diagonal(op, dims) else None
            return found if isinstance(found, float) else None
        if name == "dynamic_slice":
            row = row_written(op, self._sources, self._values)
            return None if row is None else self.fact(row, dims, region)
        if name in MOVED:
            moved = MOVED[name](op, dims)
            return None if moved is None else of(0, moved)
        if name == "compare":
            return self._compared(op, dims, region)
        if name == "select":
            return self._selected(op, dims, region)
        if name == "optimization_barrier" or op.name == "sdy.sharding_constraint":
            return of(ir.OpResult(value).result_number)
        if name == "convert":
            return _converted(of(0), value)
        if name in _LOGICAL:
            return (
                _LOGICAL[name](*map(of, range(len(op.operands))))
                if element_type(value) == "i1"
                else None
            )
        if name == "multiply" and 0.0 in (of(0), of(1)):
            other = op.operands[int(of(0) == 0.0)]
            return 0.0 if self.is_finite(other, dims) else None
        if not _is_float(value):
            return None  # integers wrap around and are divided with a remainder
        if name in _UNARY:
            return _UNARY[name](of(0))
        if name in ("add", "subtract"):
            return self._added(op, dims, region)
        if name in ("multiply", "divide"):
            return self._scaled(op, dims, of)
        return None

    def _selected(self, op: ir.Operation, dims: Dims, region: Region) -> Fact:
        chooser = dims if shape_of(op.operands[0]) else (None, None)
        chosen = self.fact(op.operands[0], chooser, region)
        sides = [self.fact(op.operands[p], dims, region) for p in (1, 2)]
        if chosen is None or isinstance(chosen, Low):
            return sides[0] if sides[0] == sides[1] and isinstance(sides[0], float) else None
        found = sides[0] if chosen else sides[1]
        if region is Region.DIAGONAL or not isinstance(found, float):
            return found if isinstance(found, float) else None
        if not -math.inf < found <= LOWEST_MASK or not _is_float(op.results[0]):
            return found
        on = self.fact(op.operands[0], chooser, Region.DIAGONAL)
        if not isinstance(on, float) or bool(on) == bool(chosen):
            return None
        other = op.operands[2 if chosen else 1]
        if isinstance(self.fact(other, dims, Region.DIAGONAL), float):
            return found  # a mask to be added to scores
        by = -found - self._reach.score(other, dims, -found / 4)
        return Low(by, found) if by > 0 else None

    def _added(self, op: ir.Operation, dims: Dims, region: Region) -> Fact:
        """The sum of scores and a bias: -inf stays, and low enough numbers stay low."""
        left, right = (self.fact(op.operands[p], dims, region) for p in (0, 1))
        sign = 1.0 if op.name == "stablehlo.add" else -1.0
        if isinstance(left, float) and isinstance(right, float):
            return _exact_sum(left, sign * right)
        for position, low, other in ((0, left, right), (1, right, left)):
            if isinstance(low, Low) and not isinstance(other, Low) and (sign > 0 or not position):
                return self._moved_apart(low, op.operands[1 - position], dims)
        for position, found, other in ((0, left, right), (1, right, left)):
            if not isinstance(found, float) or other is not None or (position and sign < 0):
                continue
            if found == -math.inf:
                return found if self.is_finite(op.operands[1 - position], dims) else None
            if found <= LOWEST_MASK:
                on = self.fact(op.operands[position], dims, Region.DIAGONAL)
                if isinstance(on, float) and abs(on) <= MOST_OF_BIAS:
                    score = op.operands[1 - position]
                    most = self._reach.score(score, dims, -found / 4)
                    by = -found - 2 * most - abs(on)
                    return Low(by, found + most) if by > 0 else None
        return None

    def _moved_apart(self, low: Low, bias: ir.Value, dims: Dims) -> Low | None:
        """What is left of the distance to a seen element once a bias has been added to both."""
        top = low.top + self._reach.at_most(bias, dims, -low.top / 2)
        if top >= 0:
            return None
        if self._is_of_row(bias, dims):
            return Low(low.by, top)
        limits = bounds(bias, self._sources)
        apart = limits.high - limits.low
        return Low(low.by - apart, top) if apart <= min(MOST_OF_BIAS, low.by / 2) else None

    def _scaled(self, op: ir.Operation, dims: Dims, of: Callable[[int], Fact]) -> Fact:
        """A product or quotient: of known numbers if it is exact, and of low numbers with a factor
        that is the same for all keys of a query."""
        left, right = of(0), of(1)
        if op.name == "stablehlo.divide":
            if left == 0.0:
                known = right if isinstance(right, float) else None
                kept = self._reach.keeps_from_zero(op.operands[1], dims) if known is None else known
                return 0.0 if kept else None
            if not isinstance(right, float) or not 0 < abs(right) < math.inf:
                return None
            right = 1.0 / right
        for low, factor, position in ((left, right, 1), (right, left, 0)):
            if isinstance(low, Low) and isinstance(factor, float) and 0 < factor < math.inf:
                alike = self._is_of_row(op.operands[position], dims)
                return Low(low.by * factor, low.top * factor) if alike else None
        if isinstance(left, float) and isinstance(right, float):
            # A large product only has to be large: it may be rounded.
            large = VANISHES <= abs(left * right) < math.inf
            exact = right in (1.0, -1.0) or (left in (1.0, -1.0) and op.name != "stablehlo.divide")
            return number(left * right) if large or exact else None
        return None

    def _is_of_row(self, value: ir.Value, dims: Dims) -> bool:
        """Whether a value is the same for all keys of a query, so that it preserves their
        differences."""
        while dims[1] is not None:
            op = defining_op(value)
            name = "" if op is None else op.name.removeprefix("stablehlo.")
            moved = MOVED[name](op, dims) if op is not None and name in MOVED else None
            if op is None or moved is None:
                return False
            value, dims = op.operands[0], moved
        return True

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
        # queries first, keys second, all others behind them
        left, right = (np.moveaxis(side, (query, key), (0, 1)) for side in sides)

        def row(query: int, keys: slice) -> np.ndarray:
            return COMPARISONS[direction](of_row(left, query, keys), of_row(right, query, keys))

        return same(row, size, region)


def _is_float(value: ir.Value) -> bool:
    """Whether a value is of a float type with infinities, and with integers up to 16 at least."""
    element = ir.RankedTensorType(value.type).element_type
    return isinstance(element, ir.F16Type | ir.BF16Type | ir.F32Type | ir.F64Type)


def _converted(found: Fact, value: ir.Value) -> Fact:
    """A converted number: zeros and ones are exact in every type, all numbers near enough in
    floats."""
    return found if found in (0.0, 1.0) or _is_float(value) else None


def _exponential(found: Fact) -> Fact:
    if isinstance(found, Low):
        return 0.0 if found.top <= -VANISHES else None
    return 0.0 if found is not None and found <= -VANISHES else None


def _logistic(found: Fact) -> Fact:
    return _exponential(found) if isinstance(found, float) else None


def _exact_sum(left: float, right: float) -> Fact:
    """The sum of two numbers where no float type rounds it."""
    small = all(found == int(found) for found in (left, right) if abs(found) <= MOST_EXACT)
    if 0.0 in (left, right) or (small and max(abs(left), abs(right)) <= MOST_EXACT):
        return left + right
    return number(left + right) if {left, right} & {math.inf, -math.inf} else None


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
    "log": lambda found: -math.inf if found == 0 else None,
    "sqrt": lambda found: found if found in (0.0, 1.0) else None,
    "negate": lambda found: -found if isinstance(found, float) else None,
}
_LOGICAL: dict[str, Callable[..., Fact]] = {
    "and": _and,
    "or": _or,
    "not": lambda found: 1.0 - found if isinstance(found, float) else None,
}

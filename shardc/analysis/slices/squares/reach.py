"""How far from zero the elements of a square may be, on premises about its inputs.

Elements that a slice leaves out are multiplied by zero or hidden by a finite mask, so they vanish
if they are finite, or small enough. No slice has them; but slices have the queries and keys behind
them, and the premises are about these. See docs/proofs.md, "Premises".
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.analysis.slices.squares.moved_dims import MOVED, Dims
from shardc.analysis.slices.squares.premises import Answers, Premise
from shardc.ir.constants import MADE_OF_NOTHING
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import defining_op
from shardc.rules.bounds import bounds, is_integer, largest_of

MODERATE = 1e9  # asked of what is multiplied by zero: no step that trains has larger numbers
LEAST = 1e-6  # asked of what zero is divided by
MOST_OF_BIAS = 1e4  # what may multiply a score, or be added to one, in all

Number = Callable[[ir.Value, Dims], float | None]


@dataclass(frozen=True)
class Score:
    """No element is further from zero than `factor` times the largest of `products`, plus
    `added`."""

    factor: float
    added: float
    products: frozenset[ir.Operation] = frozenset()


class Reach:
    """Magnitudes and scores.

    Args:
        sources: argument of a function -> the value that it is in the function that makes it.
        at_hand: whether each element of a value is in some slice.
        number: the number that a square holds everywhere above the diagonal, if that is known.
        answers: records on what each answer rests.
    """

    def __init__(
        self,
        sources: Mapping[ir.Value, ir.Value],
        at_hand: Callable[[ir.Value], bool],
        number: Number,
        answers: Answers,
    ) -> None:
        self._sources, self._at_hand = sources, at_hand
        self._number, self._answers = number, answers

    def is_finite(self, value: ir.Value, dims: Dims) -> bool:
        """Whether all numbers of a square above the diagonal are finite."""
        return self.magnitude(value, dims) < math.inf

    def at_most(self, value: ir.Value, dims: Dims, most: float) -> float:
        """The largest |x| above the diagonal if it is known not to exceed `most`; otherwise `most`,
        on a premise about a value that is not a square; inf if neither holds."""
        known = self.magnitude(value, dims, given=False)
        found = None if self._number(value, dims) is not None else (value, dims)
        while known > most and found is not None and not self._at_hand(found[0]):
            found = _before_move(*found)
        if known > most and found is not None and largest_of(found[0]):
            return self._asked(found[0], min(most, largest_of(found[0]) / 4))
        known = min(known, self.magnitude(value, dims))
        return known if known <= most else math.inf

    def magnitude(self, value: ir.Value, dims: Dims, given: bool = True) -> float:
        """The largest |x| above the diagonal; inf where that is unknown, or x may be nan.

        Args:
            given: whether the answer may rest on premises.
        """
        key = "magnitude", value, dims, given
        return self._answers.of(key, math.inf, lambda: self._found(value, dims, given))

    def _found(self, value: ir.Value, dims: Dims, given: bool) -> float:
        number, op = self._number(value, dims), defining_op(value)
        if number is not None:
            return abs(number)
        if is_integer(value) or (op is not None and op.name in MADE_OF_NOTHING):
            return max(map(abs, bounds(value, self._sources)))
        if not largest_of(value):
            return math.inf
        if given:
            proved = self.magnitude(value, dims, given=False)
            if proved < math.inf:
                return proved
            if self._at_hand(value):
                return self._asked(value, min(MODERATE, largest_of(value) / 4))
        if op is None:
            source = self._sources.get(value)
            return math.inf if source is None else self.magnitude(source, dims, given)
        found = self._made(op, value, dims, given)
        return found if found <= largest_of(value) else math.inf

    def _asked(self, value: ir.Value, most: float, least: float = 0.0) -> float:
        self._answers.take(Premise(value, most, least))
        return most

    def _made(self, op: ir.Operation, value: ir.Value, dims: Dims, given: bool) -> float:
        name = op.name.removeprefix("stablehlo.")

        def of(position: int, at: Dims = dims) -> float:
            return self.magnitude(op.operands[position], at, given)

        if name in MOVED:
            moved = MOVED[name](op, dims)
            return math.inf if moved is None else of(0, moved)
        if name == "dot_general":
            return self._product(op, dims, given)
        if name in ("optimization_barrier", "sdy.sharding_constraint"):
            return of(ir.OpResult(value).result_number)
        if name in _SAME:
            return of(0)
        if name in ("add", "subtract"):
            return of(0) + of(1)
        if name == "multiply":
            return _times(of(0), of(1))
        if name == "divide":
            return _times(of(0), self._inverse(op.operands[1], dims, given))
        if name in ("maximum", "minimum"):
            return max(of(0), of(1))
        if name == "select":
            chooser = dims if shape_of(op.operands[0]) else (None, None)
            chosen = self._number(op.operands[0], chooser)
            return max(of(1), of(2)) if chosen is None else of(1 if chosen else 2)
        if name == "sqrt" and bounds(op.operands[0], self._sources).low >= 0:
            return math.sqrt(of(0))
        if name in _BOUNDED:
            return max(map(abs, bounds(value, self._sources))) if of(0) < math.inf else math.inf
        return math.inf

    def keeps_from_zero(self, value: ir.Value, dims: Dims) -> bool:
        """Whether no element is zero or nan."""
        return self._inverse(value, dims, given=True) < math.inf

    def _inverse(self, divisor: ir.Value, dims: Dims, given: bool) -> float:
        """How far from zero 1 / x may be; for values that are not squares, on premises."""
        number = self._number(divisor, dims)
        if number is not None:
            return 1 / abs(number) if number else math.inf
        low, high = bounds(divisor, self._sources)
        least = max(low, -high)
        if least > 0 and self.magnitude(divisor, dims, given) < math.inf:
            return 1 / least
        found: tuple[ir.Value, Dims] | None = divisor, dims
        while given and found is not None and not self._at_hand(found[0]):
            found = _before_move(*found)
        if not given or found is None or not largest_of(found[0]):
            return math.inf
        self._asked(found[0], min(MODERATE, largest_of(found[0]) / 4), LEAST)
        return 1 / LEAST

    def _product(self, op: ir.Operation, dims: Dims, given: bool) -> float:
        """A product; premises keep its operands at hand so small that it does not overflow."""
        count = contracted(op)
        most = min(MODERATE, math.sqrt(largest_of(op.results[0]) / (4 * count)))
        found = float(count)
        for operand, at in zip(op.operands, operand_dims(op, dims), strict=True):
            each = self.magnitude(operand, at, given=False)
            if each == math.inf and given and self._at_hand(operand):
                each = self._asked(operand, most)
            elif each == math.inf:
                each = self.magnitude(operand, at, given)
            found = _times(found, each)
        return found

    def score(self, value: ir.Value, dims: Dims, largest: float) -> float:
        """How far from zero a score may be, below or above the diagonal, on the premise that its
        scaled products are not larger than `largest`; inf if it is not a score.

        A score consists of products and of values with bounds of their own: nothing from outside,
        such as a padding mask, may have made it low.
        """
        found = self._score(value, dims)
        if found is None:
            return math.inf
        for product in found.products:
            most = math.sqrt(largest / max(found.factor * contracted(product), 1e-6))
            for operand in product.operands:
                self._asked(operand, min(MODERATE, most))
        return largest + found.added

    def _score(self, value: ir.Value, dims: Dims) -> Score | None:
        def find() -> Score | None:
            found = self._made_score(value, dims)
            moderate = found is not None and max(found.factor, found.added) <= MOST_OF_BIAS
            return found if moderate else None

        return self._answers.of(("score", value, dims), None, find)

    def _made_score(self, value: ir.Value, dims: Dims) -> Score | None:
        op = defining_op(value)
        if op is None:
            source = self._sources.get(value)
            return None if source is None else self._score(source, dims)
        name = op.name.removeprefix("stablehlo.")
        if name == "dot_general" and len(op.operands) == 2 and contracted(op) > 1:
            # An outer product is as large as its operands: it may carry a mask of padding.
            known = all(map(self._at_hand, op.operands)) and not is_integer(value)
            return Score(1.0, 0.0, frozenset((op,))) if known else None
        if name in MOVED or (name in ("negate", "convert") and not is_integer(value)):
            moved = MOVED[name](op, dims) if name in MOVED else dims
            return None if moved is None else self._score(op.operands[0], moved)
        most = max(map(abs, bounds(value, self._sources)))
        if most < math.inf:
            return Score(0.0, most) if self.is_finite(value, dims) else None
        if name not in ("add", "subtract", "multiply", "divide") or is_integer(value):
            return None
        left = self._score(op.operands[0], dims)
        if name == "divide":
            # A score divided by another has no bound: the divisor must keep away from zero.
            by = self._inverse(op.operands[1], dims, given=True)
            return None if left is None else _grown(left, by)
        right = self._score(op.operands[1], dims)
        if left is None or right is None:
            return None
        if name in ("add", "subtract"):
            products = left.products | right.products
            return Score(left.factor + right.factor, left.added + right.added, products)
        if left.factor and right.factor:
            return None  # as large as the square of a product
        return _grown(left, right.added) if left.factor else _grown(right, left.added)


def _before_move(value: ir.Value, dims: Dims) -> tuple[ir.Value, Dims] | None:
    """The operand of an op that only moves elements, and the dims there."""
    op = defining_op(value)
    name = "" if op is None else op.name.removeprefix("stablehlo.")
    moved = MOVED[name](op, dims) if op is not None and name in MOVED else None
    return None if op is None or moved is None else (op.operands[0], moved)


def contracted(op: ir.Operation) -> int:
    """The number of terms that each element of a product adds up."""
    dims = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    shape = shape_of(op.operands[0])
    return math.prod(shape[dim] for dim in dims.lhs_contracting_dimensions)


def operand_dims(op: ir.Operation, dims: Dims) -> tuple[Dims, Dims]:
    """The dims of queries and keys in the operands of a product."""
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    found = []
    ranks = [len(shape_of(operand)) for operand in op.operands]
    batch = list(numbers.lhs_batching_dimensions), list(numbers.rhs_batching_dimensions)
    summed = list(numbers.lhs_contracting_dimensions), list(numbers.rhs_contracting_dimensions)
    first = len(batch[0])
    for rank, own, gone in zip(ranks, batch, summed, strict=True):
        free = [d for d in range(rank) if d not in (*own, *gone)]
        here = dict(enumerate(own)) | dict(enumerate(free, first))
        first += len(free)
        found.append(tuple(None if d is None else here.get(d) for d in dims))
    (lhs_query, lhs_key), (rhs_query, rhs_key) = found
    return (lhs_query, lhs_key), (rhs_query, rhs_key)


def _grown(score: Score, by: float) -> Score:
    """The score multiplied by numbers that are at most `by` away from zero."""
    return Score(score.factor * by, score.added * by, score.products)


def _times(left: float, right: float) -> float:
    return math.inf if math.inf in (left, right) else left * right


_SAME = {"negate", "abs", "convert"}
# Finite for any finite operand, and bounded if `bounds` says so.
_BOUNDED = {"tanh", "logistic", "sine", "cosine", "sign", "exponential"}

"""Range analysis: bounds on the elements of a value, for all arguments of a program."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from jax.extend.mlir import ir

from shardc.ir.constants import is_complex, splat
from shardc.ir.tensor_types import num_elements, shape_of
from shardc.ir.walk import defining_op
from shardc.rules.reducers import reducer

MOST_OPS = 100  # visited per query; values beyond them are unbounded

# The elements of the result are elements of the first operand (or components of them).
_MOVING = frozenset(
    """stablehlo.broadcast_in_dim stablehlo.reshape stablehlo.transpose stablehlo.slice
    stablehlo.dynamic_slice stablehlo.reverse stablehlo.gather stablehlo.real stablehlo.imag
    sdy.sharding_constraint sdy.reshard sdy.all_gather sdy.all_slice sdy.all_to_all sdy.all_reduce
    sdy.reduce_scatter""".split()
)
# The elements of the result are elements of these operands.
_CHOOSING: dict[str, tuple[int, ...]] = {
    "stablehlo.select": (1, 2),
    "stablehlo.dynamic_update_slice": (0, 1),
    "stablehlo.pad": (0, 1),
    "stablehlo.complex": (0, 1),
}
# The largest finite number of each supported float type.
_LARGEST = {
    "f16": 65504.0,
    "bf16": 3.3895313892515355e38,
    "f32": 3.4028234663852886e38,
    "f64": math.inf,  # Python's own floats overflow to infinity
}
# The smallest normal number: below it, numbers may be flushed to zero.
_SMALLEST = {"f16": 2.0**-14, "bf16": 2.0**-126, "f32": 2.0**-126, "f64": 2.0**-1022}
# Bits of their significands: multiples of `_GRID` below 2^bits * `_GRID` add without rounding.
_BITS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
_GRID = 2.0**-4
_NORMAL = 2.0**-14  # no device flushes this to zero, in any of these types


class Bounds(NamedTuple):
    """Each element x is nan or, up to a few roundings, `low` <= x <= `high`; for complex numbers
    this holds for both components. Integers are never nan, and their bounds are exact."""

    low: float
    high: float


ANY = Bounds(-math.inf, math.inf)
_UNIT = Bounds(-1.0, 1.0)


def bounds(value: ir.Value, sources: Mapping[ir.Value, ir.Value] | None = None) -> Bounds:
    """Bounds on the elements of a tensor that hold for all arguments of the program.

    Starts from constants, iotas, converts, and ops whose results are bounded for any operand.
    Overflow counts: a value that could become infinite is unbounded. A divisor or the argument of a
    root that could be flushed to zero may be zero.

    Args:
        sources: argument of a function -> the value that it is in the function that makes it.
    """
    return _Question(sources or {}).bounds(value)


class _Question:
    """One query, which visits each value once."""

    def __init__(self, sources: Mapping[ir.Value, ir.Value]) -> None:
        self.sources = sources
        self.known: dict[ir.Value, Bounds] = {}
        self.left = MOST_OPS

    def bounds(self, value: ir.Value) -> Bounds:
        if value not in self.known:
            self.left -= 1
            limits, op = of_type(value), defining_op(value)
            if self.left < 0:
                found = None
            elif op is None:
                found = self.bounds(self.sources[value]) if value in self.sources else None
            else:
                found = self._made(op, value)
            self.known[value] = limits if found is None else _within(found, limits, value)
        return self.known[value]

    def _made(self, op: ir.Operation, value: ir.Value) -> Bounds | None:
        """Bounds of a result of `op`, before clipping to the range of its type."""
        name, operands = op.name.removeprefix("stablehlo."), op.operands
        if op.name in _MOVING:
            return self.bounds(operands[0])
        if op.name in _CHOOSING:
            return _hull([self.bounds(operands[p]) for p in _CHOOSING[op.name]])
        if name == "concatenate":
            return _hull([self.bounds(each) for each in operands])
        if name == "optimization_barrier":
            return self.bounds(operands[ir.OpResult(value).result_number])
        if name == "constant":
            return _of_constant(op)
        if name == "iota":
            dim = int(ir.IntegerAttr(op.attributes["iota_dimension"]).value)
            return Bounds(0, max(shape_of(value)[dim] - 1, 0))
        if name == "convert":
            return self._converted(operands[0], value)
        if name == "reduce" and len(operands) == 2:
            return self._reduced(op)
        if is_complex(value) or any(is_complex(each) for each in operands):
            return None
        if name in _ALWAYS:
            return _ALWAYS[name]
        if is_integer(value) and name not in _OF_INTEGERS:
            return None
        if name not in _ELEMENTWISE:
            return None
        each = [self.bounds(operand) for operand in operands]
        found = _ELEMENTWISE[name](*each)
        return _rounded(found, each, 2, value) if name in ("add", "subtract") else found

    def _converted(self, source: ir.Value, value: ir.Value) -> Bounds | None:
        found = self.bounds(source)
        if is_complex(value) and not is_complex(source):
            return _hull([found, Bounds(0, 0)])  # no imaginary part
        kept = is_integer(source) or not is_integer(value)  # nan converts to any integer
        return found if kept and is_complex(value) == is_complex(source) else None

    def _reduced(self, op: ir.Operation) -> Bounds | None:
        each, start, name = self.bounds(op.operands[0]), self.bounds(op.operands[1]), reducer(op)
        if name in ("maximum", "minimum"):
            return _hull([each, start])
        if name != "add" or is_complex(op.results[0]):
            return None
        count = num_elements(op.operands[0]) // max(num_elements(op.results[0]), 1)
        terms = _times(each, Bounds(count, count)), start
        found = _corners(lambda a, b: a + b, *terms)
        return _rounded(found, [*terms, each], count + 1, op.results[0])


def of_type(value: ir.Value) -> Bounds:
    """The bounds of the element type: the range of integers and booleans, none for floats."""
    element = ir.ShapedType(value.type).element_type
    if not isinstance(element, ir.IntegerType):
        return ANY
    if element.width == 1 or element.is_unsigned:
        return Bounds(0, (1 << element.width) - 1)
    return Bounds(-(1 << (element.width - 1)), (1 << (element.width - 1)) - 1)


def largest_of(value: ir.Value) -> float:
    """The largest finite number of a float type; 0 of types whose arithmetic is not followed."""
    return _LARGEST.get(str(ir.ShapedType(value.type).element_type), 0.0)


def is_held(number: float, value: ir.Value) -> bool:
    """Whether the float type of `value` has a number so large or small, up to rounding: no overflow
    makes it infinite, and no device flushes it to zero. True for zeros and infinities."""
    element = str(ir.ShapedType(value.type).element_type)
    exact = number == 0 or math.isinf(number)
    return exact or _SMALLEST[element] <= abs(number) <= _LARGEST[element]


def is_integer(value: ir.Value) -> bool:
    """Whether the elements are integers or booleans."""
    return isinstance(ir.ShapedType(value.type).element_type, ir.IntegerType)


def _within(found: Bounds, limits: Bounds, value: ir.Value) -> Bounds:
    """`found` if the element type can hold it: integers wrap around, floats overflow."""
    if is_integer(value):
        return found if limits.low <= found.low and found.high <= limits.high else limits
    element = str(ir.ShapedType(value.type).element_type)
    if is_complex(value):
        element = element.removeprefix("complex<").removesuffix(">")
    if element not in _LARGEST:  # of narrower types, of which some flush 0.2 to zero
        return Bounds(0 if found.low >= 0 else -math.inf, 0 if found.high <= 0 else math.inf)
    largest, smallest = _LARGEST[element], _SMALLEST[element]
    low = found.low if found.low >= -largest else -math.inf
    high = found.high if found.high <= largest else math.inf
    return Bounds(0 if 0 < low < smallest else low, 0 if -smallest < high < 0 else high)


def _rounded(found: Bounds, terms: list[Bounds], count: int, value: ir.Value) -> Bounds:
    """A sum of `count` floats with room for its roundings, of which much may be left where large
    terms cancel. None is needed if all limits lie on a grid that the type has: roundings keep the
    order of numbers, so no sum gets past a limit that is no rounding itself."""
    bits = _BITS.get(str(ir.ShapedType(value.type).element_type))
    limits = [x for each in (found, *terms) for x in each if math.isfinite(x)]
    if bits is None or all(x % _GRID == 0 and abs(x) <= 2.0**bits * _GRID for x in limits):
        return found
    room = max(map(abs, limits)) * max(count, 64) * 2.0**-bits  # 64: its terms are rounded, too
    return Bounds(found.low - room, found.high + room)


def _of_constant(op: ir.Operation) -> Bounds | None:
    number = splat(op.results[0])
    if number is not None:
        return _hull([Bounds(part, part) for part in _components(number, op.results[0])])
    try:
        numbers = np.asarray(op.attributes["value"])
    except (TypeError, ValueError):  # the bindings cannot read complex elements and rare floats
        return None
    if numbers.size == 0 or numbers.dtype.kind not in "bif" or np.isnan(numbers).any():
        return None
    return Bounds(numbers.min().item(), numbers.max().item())


def _components(number: complex, value: ir.Value) -> list[float]:
    return [number.real, number.imag] if is_complex(value) else [number.real]


def _hull(each: list[Bounds]) -> Bounds:
    return Bounds(min(b.low for b in each), max(b.high for b in each))


def _corners(combine: Callable[[float, float], float], a: Bounds, b: Bounds) -> Bounds:
    """Bounds of an op that is monotonic in each operand; unbounded if a corner is undefined."""
    found = [combine(x, y) for x in a for y in b]
    return ANY if any(math.isnan(each) for each in found) else Bounds(min(found), max(found))


def _times(a: Bounds, b: Bounds) -> Bounds:
    """Zero times an unbounded number is zero, or nan if it is infinite."""
    return _corners(lambda x, y: 0 if 0 in (x, y) else x * y, a, b)


def _divided(a: Bounds, b: Bounds) -> Bounds:
    """Infinity divided by infinity is nan."""
    if b.high > -_NORMAL and b.low < _NORMAL:
        return ANY
    return _corners(lambda x, y: 0 if math.isinf(y) else x / y, a, b)


def _exponential(a: Bounds) -> Bounds:
    return Bounds(*(math.exp(x) if x < 700 else math.inf for x in a))


def _absolute(a: Bounds) -> Bounds:
    low = 0 if a.low <= 0 <= a.high else min(abs(a.low), abs(a.high))
    return Bounds(low, max(abs(a.low), abs(a.high)))


def _root(a: Bounds) -> Bounds:
    return Bounds(*(math.sqrt(max(x, 0)) for x in a))  # nan for negative numbers


def _inverse_root(a: Bounds) -> Bounds:
    if a.low < _NORMAL:
        return ANY  # -inf of -0
    return Bounds(1 / math.sqrt(a.high), 1 / math.sqrt(a.low))


def _clamp(low: Bounds, a: Bounds, high: Bounds) -> Bounds:
    return _smaller(_larger(a, low), high)


def _larger(a: Bounds, b: Bounds) -> Bounds:
    return Bounds(max(a.low, b.low), max(a.high, b.high))


def _smaller(a: Bounds, b: Bounds) -> Bounds:
    return Bounds(min(a.low, b.low), min(a.high, b.high))


_ALWAYS = {"tanh": _UNIT, "sine": _UNIT, "cosine": _UNIT, "sign": _UNIT, "logistic": Bounds(0, 1)}
_OF_INTEGERS = ("add", "subtract", "multiply", "negate", "abs", "maximum", "minimum", "clamp")
_ELEMENTWISE: dict[str, Callable[..., Bounds]] = {
    "add": lambda a, b: _corners(lambda x, y: x + y, a, b),
    "subtract": lambda a, b: _corners(lambda x, y: x - y, a, b),
    "multiply": _times,
    "divide": _divided,
    "negate": lambda a: Bounds(-a.high, -a.low),
    "abs": _absolute,
    "maximum": _larger,
    "minimum": _smaller,
    "clamp": _clamp,
    "exponential": _exponential,
    "sqrt": _root,
    "rsqrt": _inverse_root,
}

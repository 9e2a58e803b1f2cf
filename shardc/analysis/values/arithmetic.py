"""Constant evaluation of elementwise ops, in the arithmetic of their element type.

Each function takes the operands as NumPy arrays of the types of `kept_as`, and returns None if the
result is not an integer on which every implementation of the op agrees.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jax.extend.mlir import ir

from shardc.analysis.values.element_types import as_float, integer_range, kept_as

Numbers = np.ndarray
Rule = Callable[..., Numbers | None]

COMPARISONS: dict[str, Callable[..., Numbers]] = {
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "EQ": np.equal,
    "NE": np.not_equal,
}


def _divide(left: Numbers, right: Numbers) -> Numbers | None:
    """Rounds towards zero, unlike NumPy."""
    rest = _remainder(left, right)
    return None if rest is None else (left - rest) // right


def _remainder(left: Numbers, right: Numbers) -> Numbers | None:
    """The remainder has the sign of `left`."""
    if np.any(right == 0) or (left.dtype.kind == "i" and np.any(right == -1)):
        return None  # the least integer divided by -1 overflows
    return np.fmod(left, right)


def _shift_left(number: Numbers, bits: Numbers) -> Numbers | None:
    return np.left_shift(number, bits) if _may_shift(number, bits) else None


def _shift_right(number: Numbers, bits: Numbers) -> Numbers | None:
    """Replicates the highest bit, even of an unsigned number."""
    return _shifted_right("int", number, bits)


def _shift_right_logical(number: Numbers, bits: Numbers) -> Numbers | None:
    return _shifted_right("uint", number, bits)


def _shifted_right(kind: str, number: Numbers, bits: Numbers) -> Numbers | None:
    if not _may_shift(number, bits):
        return None
    same = np.dtype(f"{kind}{8 * number.dtype.itemsize}")
    return np.right_shift(number.astype(same), bits.astype(same)).astype(number.dtype)


def _may_shift(number: Numbers, bits: Numbers) -> bool:
    return bool(np.all(bits >= 0) and np.all(bits < 8 * number.dtype.itemsize))


def _clamp(low: Numbers, number: Numbers, high: Numbers) -> Numbers:
    return np.minimum(np.maximum(number, low), high)


_BITWISE: dict[str, Rule] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
}
_NUMERIC: dict[str, Rule] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "negate": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "clamp": _clamp,
}
_OF_INTEGERS: dict[str, Rule] = {
    **_NUMERIC,
    **_BITWISE,
    "divide": _divide,
    "remainder": _remainder,
    "shift_left": _shift_left,
    "shift_right_arithmetic": _shift_right,
    "shift_right_logical": _shift_right_logical,
}
_OF_FLOATS: dict[str, Rule] = {
    **_NUMERIC,
    **dict.fromkeys(
        ("floor", "ceil", "round_nearest_even", "round_nearest_afz"), lambda number: number
    ),
}
_RULES = {"b": _BITWISE, "i": _OF_INTEGERS, "u": _OF_INTEGERS, "f": _OF_FLOATS}
ELEMENTWISE = frozenset(
    f"stablehlo.{name}" for name in (*_OF_INTEGERS, *_OF_FLOATS, "compare", "convert")
)


def computed(op: ir.Operation, operands: Sequence[Numbers]) -> Numbers | None:
    """The result of an op of `ELEMENTWISE` on these operands, which broadcast to each other."""
    name = op.name.removeprefix("stablehlo.")
    element = ir.RankedTensorType(op.results[0].type).element_type
    if name == "convert":
        return converted(operands[0], element)
    if name == "compare":
        return _compared(op, *operands)
    rule = _RULES[operands[0].dtype.kind].get(name)
    if rule is None:
        return None
    with np.errstate(over="ignore"):  # NumPy warns when scalars wrap around
        numbers = rule(*operands)
    if numbers is None or operands[0].dtype.kind != "f":
        return numbers
    return as_float(numbers, element)


def converted(numbers: Numbers, element: ir.Type) -> Numbers | None:
    """`numbers` in another element type: integers wrap around, floats must be in its range."""
    kept = kept_as(element)
    if kept is None:
        return None
    if kept.kind == "b":
        return numbers != 0
    if kept.kind == "f":
        return as_float(numbers.astype(np.int8) if numbers.dtype.kind == "b" else numbers, element)
    limits = integer_range(element)
    if numbers.dtype.kind == "f" and limits is not None:
        low, high = limits
        if np.any(numbers < low) or np.any(numbers > high):
            return None
    return numbers.astype(kept)


def _compared(op: ir.Operation, left: Numbers, right: Numbers) -> Numbers | None:
    attributes = op.attributes
    if "compare_type" in attributes and "TOTALORDER" in str(attributes["compare_type"]):
        return None  # distinguishes -0 from 0
    direction = str(attributes["comparison_direction"]).split()[-1].rstrip(">")
    return COMPARISONS[direction](left, right)

"""Which numbers an element type holds exactly."""

import numpy as np
from jax.extend.mlir import ir

from shardc.ir.tensor_types import dtype_name

# Float type -> p: the type holds all integers of magnitude up to 2^p; arithmetic on them that stays
# in this range is exact, even if a compiler computes it in a wider type.
_BITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
_WIDTHS = (8, 16, 32, 64)


def kept_as(element: ir.Type) -> np.dtype | None:
    """The NumPy type that represents an element type; None for an unsupported type.

    Integers and booleans have their own, in which NumPy's arithmetic wraps around as theirs does;
    floats are represented as float64.
    """
    if isinstance(element, ir.IntegerType):
        if element.width == 1:
            return np.dtype(bool) if element.is_signless else None
        if element.width not in _WIDTHS:
            return None
        return np.dtype(f"{'u' * element.is_unsigned}int{element.width}")
    return np.dtype(float) if dtype_name(element) in _BITS else None


def integer_range(element: ir.Type) -> tuple[int, int] | None:
    """The least and the greatest integer of an integer type; None for other types."""
    kept = kept_as(element)
    if kept is None or kept.kind not in "iu":
        return None
    limits = np.iinfo(kept)
    return int(limits.min), int(limits.max)


def as_float(numbers: np.ndarray, element: ir.Type) -> np.ndarray | None:
    """`numbers` as float64; None unless the float type `element` holds each of them exactly."""
    bits = _BITS.get(dtype_name(element))
    if bits is None or not np.all(np.isfinite(numbers)):
        return None
    limit = 1 << bits
    if numbers.dtype.kind in "iu":  # check before float64 rounds them
        within = np.all(numbers <= limit) if _holds(numbers, limit) else True
        within = within and (np.all(numbers >= -limit) if _holds(numbers, -limit) else True)
        return numbers.astype(float) if within else None
    numbers = numbers.astype(float)
    whole = np.all(np.abs(numbers) <= limit) and np.all(numbers == np.floor(numbers))
    return numbers if whole else None


def _holds(numbers: np.ndarray, limit: int) -> bool:
    limits = np.iinfo(numbers.dtype)
    return bool(limits.min <= limit <= limits.max)

"""Which numbers an element type holds exactly."""

import numpy as np
from jax.extend.mlir import ir

from shardc.ir.tensor_types import dtype_name

# Float types -> p: they hold all integers up to 2^p, and arithmetic on these that stays within is
# exact, in whatever wider type a compiler computes it.
_BITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
_WIDTHS = (8, 16, 32, 64)


def kept_as(element: ir.Type) -> np.dtype | None:
    """The NumPy type in which numbers of an element type are kept; None of one that is not known.

    Integers and booleans have their own, in which NumPy's arithmetic wraps around as theirs does;
    what floats hold is kept as float64.
    """
    if isinstance(element, ir.IntegerType):
        if element.width == 1:
            return np.dtype(bool) if element.is_signless else None
        if element.width not in _WIDTHS:
            return None
        return np.dtype(f"{'u' * element.is_unsigned}int{element.width}")
    return np.dtype(float) if dtype_name(element) in _BITS else None


def integer_range(element: ir.Type) -> tuple[int, int] | None:
    """The least and the greatest integer of an integer type; None of another type."""
    kept = kept_as(element)
    if kept is None or kept.kind not in "iu":
        return None
    limits = np.iinfo(kept)
    return int(limits.min), int(limits.max)


def as_float(numbers: np.ndarray, element: ir.Type) -> np.ndarray | None:
    """`numbers` as a float type holds them; None unless it holds each of them exactly."""
    bits = _BITS.get(dtype_name(element))
    if bits is None or not np.all(np.isfinite(numbers)):
        return None
    limit = 1 << bits
    if numbers.dtype.kind in "iu":  # before they lose bits on the way through float64
        within = np.all(numbers <= limit) if _holds(numbers, limit) else True
        within = within and (np.all(numbers >= -limit) if _holds(numbers, -limit) else True)
        return numbers.astype(float) if within else None
    numbers = numbers.astype(float)
    whole = np.all(np.abs(numbers) <= limit) and np.all(numbers == np.floor(numbers))
    return numbers if whole else None


def _holds(numbers: np.ndarray, limit: int) -> bool:
    limits = np.iinfo(numbers.dtype)
    return bool(limits.min <= limit <= limits.max)

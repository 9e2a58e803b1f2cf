"""Infinities, nan, zeros and subnormal numbers among the arguments of a program, and how results
that have them are compared."""

import numpy as np

EXTREMES = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40)


def same(want: np.ndarray, have: np.ndarray, tolerance: float = 1e-5) -> bool:
    """Whether two results have the same nan and infinities, and elsewhere nearly the same numbers.

    Args:
        tolerance: of the largest finite magnitude; numbers below the smallest normal one may be
            flushed to zero.
    """
    want, have = np.asarray(want), np.asarray(have)
    if want.shape != have.shape or want.dtype != have.dtype:
        return False
    if want.dtype.kind not in "fc":
        return bool(np.array_equal(want, have))
    if not all(
        np.array_equal(holds(want), holds(have)) for holds in (np.isnan, np.isposinf, np.isneginf)
    ):
        return False
    finite = np.isfinite(want)
    a, b = want[finite].astype(np.float64), have[finite].astype(np.float64)
    limit = tolerance * np.abs(a).max(initial=0.0) + 1e-37
    return bool(np.all(np.abs(a - b) <= limit))

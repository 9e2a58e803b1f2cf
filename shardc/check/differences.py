"""Whether two runs of a program agree up to the order of additions."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.extend.mlir import ir

from shardc.ir.tensor_types import dtype_of
from shardc.ir.walk import walk

Array = npt.NDArray[Any]
Arrays = Sequence[Array]

# By the bytes of the narrowest float in the program: relative to a result's largest magnitude.
_TOLERANCE = {8: 1e-9, 4: 2e-4, 2: 5e-2, 1: 0.5}
_NUDGE = {8: 1e-12, 4: 1e-6, 2: 4e-3, 1: 0.1}
_NUDGED_RUNS = 3


def narrowest_float(module: ir.Operation) -> int:
    """Bytes of the narrowest floating type that any op of the module computes in; 8 if none is."""
    found = {8}
    for op in walk(module):
        for value in op.results:
            dtype = dtype_of(value)
            if dtype.startswith(("float", "bfloat", "complex")):
                size = jnp.dtype(dtype).itemsize
                found.add(size // 2 if dtype.startswith("complex") else size)
    return max(1, min(found))


def differing(want: Arrays, got: Arrays, width: int, *, same_types: bool = True) -> dict[int, str]:
    """Position of a result -> how it differs by more than rounding.

    Args:
        width: as returned by `narrowest_float`.
        same_types: require equal element types.
    """
    if len(want) != len(got):
        return {-1: f"{len(got)} results instead of {len(want)}"}
    found = {}
    for i, pair in enumerate(zip(want, got, strict=True)):
        expected, have = map(np.asarray, pair)
        if expected.shape != have.shape:
            found[i] = f"shape {have.shape} instead of {expected.shape}"
        elif same_types and expected.dtype != have.dtype:
            found[i] = f"{have.dtype} instead of {expected.dtype}"
        elif problem := _difference(expected, have, _TOLERANCE[width]):
            found[i] = problem
    return found


def _difference(want: Array, have: Array, tolerance: float) -> str:
    if not jnp.issubdtype(want.dtype, np.inexact):
        count = int(np.count_nonzero(want != have))
        return f"{count} of {want.size} values differ" if count else ""
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    left, right = want.astype(wide), have.astype(wide)
    limit = tolerance * np.abs(left[np.isfinite(left)]).max(initial=1.0)
    wrong = ~np.isclose(right, left, rtol=tolerance, atol=limit, equal_nan=True)
    if not wrong.any():
        return ""
    first = tuple(int(n) for n in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {want.size} values differ, the first at {list(first)}:"
        f" {have[first]} instead of {want[first]}"
    )


def by_roundings(
    run: Callable[[list[Array]], Arrays],
    args: Arrays,
    want: Arrays,
    found: dict[int, str],
    width: int,
) -> dict[int, str]:
    """The differences in `found` that rounding of the arguments does not cause."""
    random = np.random.default_rng(1)
    for _ in range(_NUDGED_RUNS if found else 0):
        again = run([_nudged(np.asarray(a), random, width) for a in args])
        roundings = differing(want, again, width)
        found = {i: problem for i, problem in found.items() if i not in roundings}
        if not found:
            break
    return found


def _nudged(array: Array, random: np.random.Generator, width: int) -> Array:
    if not jnp.issubdtype(array.dtype, np.inexact):
        return array
    factor = 1 + _NUDGE[width] * random.normal(size=array.shape)
    return np.asarray(array * factor).astype(array.dtype)

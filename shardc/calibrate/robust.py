"""Least squares on logarithms, robust against a few bad samples."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

Misses = Callable[[np.ndarray], np.ndarray]

SCALE = 0.1  # residuals beyond this count linearly, not quadratically
ROUNDS = 60
STEP = 1e-4


class Fitted(NamedTuple):
    """Fitted constants and their residuals.

    Attributes:
        values: the constants.
        errors: relative standard error of each; infinite if the samples do not determine it.
        misses: logarithm of predicted over measured, for each sample.
    """

    values: np.ndarray
    errors: np.ndarray
    misses: np.ndarray


def robust_fit(
    misses: Misses,
    start: Sequence[float],
    low: Sequence[float],
    high: Sequence[float],
) -> Fitted:
    """The positive constants that minimise `misses(constants)`.

    Levenberg-Marquardt on the logarithms of the constants, with Huber's weights.
    Source: Holland, Welsch, "Robust regression using iteratively reweighted least-squares",
    Communications in Statistics 6(9), 1977.

    Args:
        misses: constants -> logarithms of predicted over measured; at least one.
        low, high: bounds of each constant, above 0.
    """
    bottom, top = np.log(low), np.log(high)
    x = np.clip(np.log(start), bottom, top)
    found = misses(np.exp(x))
    damping = 1e-2
    for _ in range(ROUNDS):
        weights = _weights(found)
        slopes = _slopes(misses, x, found)
        curved = slopes.T @ (weights[:, None] * slopes)
        pull = slopes.T @ (weights * found)
        lift = damping * (np.diag(curved) + 1e-9)
        moved = np.clip(x - np.linalg.solve(curved + np.diag(lift), pull), bottom, top)
        tried = misses(np.exp(moved))
        if _cost(tried) < _cost(found):
            done = np.abs(moved - x).max() < 1e-5
            x, found, damping = moved, tried, max(damping / 3, 1e-9)
            if done:
                break
        elif damping > 1e6:
            break
        else:
            damping *= 5
    return Fitted(np.exp(x), _errors(misses, x, found), found)


def _weights(misses: np.ndarray) -> np.ndarray:
    weights: np.ndarray = np.minimum(1.0, SCALE / np.maximum(np.abs(misses), 1e-12))
    return weights


def _cost(misses: np.ndarray) -> float:
    size = np.abs(misses)
    return float(np.where(size < SCALE, size**2 / 2, SCALE * (size - SCALE / 2)).sum())


def _slopes(misses: Misses, x: np.ndarray, here: np.ndarray) -> np.ndarray:
    """Derivatives of the misses with respect to log constants, [samples, constants]."""
    columns = []
    for i in range(len(x)):
        moved = x.copy()
        moved[i] += STEP
        columns.append((misses(np.exp(moved)) - here) / STEP)
    return np.stack(columns, axis=1)


def _errors(misses: Misses, x: np.ndarray, found: np.ndarray) -> np.ndarray:
    weights = _weights(found)
    slopes = _slopes(misses, x, found)
    curved = slopes.T @ (weights[:, None] * slopes)
    free = max(len(found) - len(x), 1)
    variance = float((weights * found**2).sum()) / free
    spread = np.full(len(x), np.inf)
    known = np.diag(curved) > 1e-6
    if known.any():
        inverse = np.linalg.pinv(curved[np.ix_(known, known)])
        spread[known] = np.sqrt(np.maximum(np.diag(inverse), 0.0) * variance)
    return spread

"""What the tables of edges allow, examined once for all edges that share one."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shardc.solver.problem.problem import Floats


class TableFacts(NamedTuple):
    """Facts about a table.

    Attributes:
        finite: the pairs that are allowed.
        all_finite: all are.
        splits: it is a sum of costs of its two nodes, up to rounding.
    """

    finite: npt.NDArray[np.bool_]
    all_finite: bool
    splits: bool


class SharedTables:
    """Facts about tables; those that several edges share are remembered, either way round.

    Args:
        tables: of all edges; a transposed one is known, too.
    """

    def __init__(self, tables: Sequence[Floats]) -> None:
        counts = Counter(map(id, tables))
        # Kept, so that no id is used again.
        self._shared = {id(t): t for t in tables if counts[id(t)] > 1 and t.base is None}
        self._known: dict[tuple[int, bool], TableFacts] = {}

    def facts(self, table: Floats) -> TableFacts:
        turned = table.base is not None
        key = id(table.base if turned else table), turned
        if key[0] not in self._shared:
            return _facts(table)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _facts(table)
        return found


def _facts(table: Floats) -> TableFacts:
    finite = np.isfinite(table)
    all_finite = bool(finite.all())
    return TableFacts(finite, all_finite, all_finite and _splits(table))


def _splits(matrix: Floats) -> bool:
    """Whether matrix[p, q] = a[p] + b[q], up to rounding."""
    corner = float(matrix[0, 0])
    for p, q in ((-1, -1), (len(matrix) // 2, -1), (-1, matrix.shape[1] // 2)):
        far, row, column = float(matrix[p, q]), float(matrix[p, 0]), float(matrix[0, q])
        if abs(far - row - column + corner) > 1e-14 * (abs(far) + abs(row) + abs(column)):
            return False
    rest = matrix - matrix[:, :1] - (matrix[:1] - corner)
    return bool(np.abs(rest).max() <= 1e-14 * np.abs(matrix).max())

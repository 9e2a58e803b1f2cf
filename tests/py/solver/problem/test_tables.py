"""A table is examined once, however many edges share it and whichever way round."""

import numpy as np
import pytest

from shardc.solver.problem import tables
from shardc.solver.problem.problem import Floats
from shardc.solver.problem.tables import SharedTables

FORBIDDEN = np.array([[0.0, np.inf], [1.0, 2.0], [np.inf, np.inf]])
SUM = np.array([1.0, 5.0, 2.0])[:, None] + np.array([3.0, 0.0])
OTHER = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]])


def test_shared_tables_are_examined_once_each_way(monkeypatch: pytest.MonkeyPatch) -> None:
    examined: list[Floats] = []
    examine = tables._facts

    def counted(table: Floats) -> tables.TableFacts:
        examined.append(table)
        return examine(table)

    monkeypatch.setattr(tables, "_facts", counted)
    alone = OTHER.copy()
    shared = SharedTables([FORBIDDEN, SUM, OTHER, FORBIDDEN, alone, SUM, OTHER])
    for _ in range(3):
        for table, splits in ((FORBIDDEN, False), (SUM, True), (OTHER, False), (alone, False)):
            for way in (table, table.T):
                found = shared.facts(way)
                np.testing.assert_array_equal(found.finite, np.isfinite(way))
                assert (found.all_finite, found.splits) == (table is not FORBIDDEN, splits)
    assert len(examined) == 2 * 3 + 2 * 3  # once each way; that of one edge each time

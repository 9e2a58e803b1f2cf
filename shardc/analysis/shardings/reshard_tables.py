"""Costs of resharding between all pairs of strategies of neighbouring ops, in shared tables."""

import functools
import math
from dataclasses import dataclass

import numpy as np

from shardc.analysis.shardings.strategies import Strategy
from shardc.cost.links import Link, Links
from shardc.cost.reshard import reshards
from shardc.plan.layout import Mesh, TensorSharding
from shardc.solver.problem.problem import Floats

LinkItems = tuple[tuple[str, Link], ...]
Column = tuple[TensorSharding, ...]  # of one operand or result under each strategy


@dataclass(frozen=True)
class StrategyColumns:
    """The strategies of an op seen from its operands and results.

    Attributes:
        strategies: kept alive, because this object is looked up by their id.
        shards: number of parts of each result under each strategy.
    """

    strategies: tuple[Strategy, ...]
    operands: tuple[Column, ...]
    results: tuple[Column, ...]
    shards: tuple[tuple[int, ...], ...]


@functools.lru_cache(maxsize=64)
def reshard_tables(axes: tuple[tuple[str, int], ...], links: LinkItems) -> "ReshardTables":
    """The tables for all stages with such a mesh, memoized.

    Args:
        axes: name and size of each axis of the mesh.
        links: items of `axis_links`.
    """
    num_devices = math.prod(size for _, size in axes)
    return ReshardTables(Mesh(axes, tuple(range(num_devices))), dict(links))


class ReshardTables:
    """Columns and tables on one mesh, interned so that the solver recognizes equal ones by id.

    Tables are keyed by the ids of their two columns, and keep them, so that no id is used again.
    """

    def __init__(self, mesh: Mesh, links: Links) -> None:
        self.mesh, self.links = mesh, links
        self._interned: dict[Column, Column] = {}
        self._columns: dict[int, StrategyColumns] = {}
        self._tables: dict[tuple[object, ...], tuple[Floats, Column, Column]] = {}

    def intern(self, column: Column) -> Column:
        """The one object that stands for all columns equal to `column`."""
        return self._interned.setdefault(column, column)

    def columns(self, strategies: tuple[Strategy, ...]) -> StrategyColumns:
        """The columns of `strategies`, created once for all equal ops, which share them."""
        found = self._columns.get(id(strategies))
        if found is None:
            operands = zip(*(s.operands for s in strategies), strict=True)
            results = tuple(zip(*(s.results for s in strategies), strict=True))
            found = self._columns[id(strategies)] = StrategyColumns(
                strategies,
                tuple(map(self.intern, operands)),
                tuple(map(self.intern, results)),
                tuple(tuple(self.mesh.num_shards(s.axes) for s in column) for column in results),
            )
        return found

    def seconds(
        self,
        made: Column,
        used: Column,
        shape: tuple[int, ...],
        itemsizes: tuple[int, int],
        repeats: int,
    ) -> Floats:
        """[i, j]: seconds of `repeats` reshards from made[i] to used[j]; inf where impossible.

        `itemsizes`: bytes of an element, and of one that is a partial sum.
        """
        key = (id(made), id(used), shape, itemsizes, repeats)
        known = self._tables.get(key)
        if known is None:
            rows = {s: i for i, s in enumerate(dict.fromkeys(made))}
            columns = {s: i for i, s in enumerate(dict.fromkeys(used))}
            found = reshards(
                rows, columns, self.mesh, shape, itemsizes[0], self.links, itemsizes[1]
            )
            unique = np.array([[each.seconds for each in row] for row in found], np.float64)
            pairs = np.ix_([rows[s] for s in made], [columns[s] for s in used])
            known = self._tables[key] = unique[pairs] * repeats, made, used
        return known[0]

    def tie(self, a: Column, b: Column) -> Floats:
        """[i, j]: 0 if a[i] and b[j] are the same sharding, otherwise inf."""
        return np.array([[0.0 if x == y else np.inf for y in b] for x in a])

    def finish_s(
        self,
        made: TensorSharding,
        options: Column,
        shape: tuple[int, ...],
        itemsizes: tuple[int, int],
    ) -> float:
        """Seconds to reduce the partial sums of a value into the cheapest of `options`."""
        if not made.unreduced:
            return 0.0
        whole = [option for option in options if not option.unreduced]
        (found,) = reshards([made], whole, self.mesh, shape, itemsizes[0], self.links, itemsizes[1])
        return min(each.seconds for each in found)

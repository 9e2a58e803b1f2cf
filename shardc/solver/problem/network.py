"""A contracted problem in flat arrays, for searches that scan all of it many times."""

from collections import deque

import numpy as np

from shardc.solver.problem.problem import Floats, Ints
from shardc.solver.problem.reduced import Reduced


class Network:
    """Nodes 0..n-1 of a contracted problem, each with one block of all its edge tables.

    Attributes:
        reduced: the problem.
        sizes, first: strategies per node, and the index of its first one among all.
        flat: node costs of all strategies.
        rank: position of each node in a breadth-first order, so that long paths run along it.
        order: nodes by rank.
        near: per node, its neighbours by rank.
        blocks: per node, the tables of its edges side by side: [its strategies, all of theirs].
        columns: per node, the first column of each neighbour in its block.
        earlier: per node, the number of neighbours with a lower rank.
        cells: all tables one after the other, then a zero.
    """

    def __init__(self, reduced: Reduced) -> None:
        self.reduced = reduced
        self.sizes = reduced.sizes
        self.first = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)
        self.flat: Floats = np.concatenate([*reduced.costs, np.zeros(0)])
        tables: list[dict[int, Floats]] = [{} for _ in self.sizes]
        for (u, v), table in zip(reduced.edges, reduced.tables, strict=True):
            tables[u][v] = table
            tables[v][u] = table.T
        self.order = _breadth_first([list(row) for row in tables])
        self.rank = np.empty(len(self.sizes), np.int64)
        self.rank[self.order] = np.arange(len(self.order))
        rank = self.rank.tolist()
        self.near: list[Ints] = []
        self.blocks: list[Floats] = []
        self.columns: list[Ints] = []
        self.earlier: list[int] = []
        for v, row in enumerate(tables):
            near = sorted(row, key=rank.__getitem__)
            self.near.append(np.array(near, np.int64))
            self.blocks.append(
                np.ascontiguousarray(np.concatenate([row[w] for w in near], axis=1))
                if near
                else np.zeros((self.sizes[v], 0))
            )
            widths = [self.sizes[w] for w in near]
            self.columns.append(np.concatenate([[0], np.cumsum(widths)]).astype(np.int64))
            self.earlier.append(sum(rank[w] < rank[v] for w in near))
        ends = np.array(reduced.edges, np.int64).reshape(-1, 2).T
        self._ends = ends[0], ends[1]
        self._widths = np.array(self.sizes, np.int64)[ends[1]]
        cells = np.array([table.size for table in reduced.tables], np.int64)
        self._offsets = np.cumsum(cells) - cells
        self._edge = {edge: number for number, edge in enumerate(reduced.edges)}
        self.cells: Floats = np.concatenate([*(t.ravel() for t in reduced.tables), np.zeros(1)])
        self.num_cells = len(self.cells) - 1

    def cost(self, choice: Ints) -> float:
        """Cost of a choice, including the constant."""
        u, v = self._ends
        edges = self.cells[self._offsets + choice[u] * self._widths + choice[v]]
        nodes = self.flat[self.first[:-1] + choice]
        return self.reduced.constant + float(nodes.sum()) + float(edges.sum())

    def cells_of(self, v: int, w: int) -> tuple[int, int, int]:
        """The first cell of the edge between `v` and `w`, and the steps from one strategy of each
        to its next."""
        number = self._edge.get((v, w))
        if number is not None:
            return int(self._offsets[number]), self.sizes[w], 1
        return int(self._offsets[self._edge[w, v]]), 1, self.sizes[v]

    def forbidden(self, choice: Ints) -> list[int]:
        """The nodes of forbidden pairs in a choice."""
        u, v = self._ends
        cells = self.cells[self._offsets + choice[u] * self._widths + choice[v]]
        broken = np.flatnonzero(np.isinf(cells))
        return sorted({*u[broken].tolist(), *v[broken].tolist()})

    def priced(self, prices: Floats | None) -> Floats:
        """Node costs of all strategies plus the cost of their memory at `prices`."""
        memory = self.reduced.memory
        if prices is None or memory is None:
            return self.flat
        return self.flat + memory.price_of_strategies(prices)

    def beside(self, v: int, choice: Ints) -> Floats:
        """Per strategy of `v`, the cost of its edges with all neighbours unchanged."""
        columns = self.columns[v][:-1] + choice[self.near[v]]
        found: Floats = self.blocks[v][:, columns].sum(axis=1)
        return found


def _breadth_first(near: list[list[int]]) -> Ints:
    """Orders each component from one end: the node reached last from some other node."""
    seen = [False] * len(near)
    order: list[int] = []
    for start in range(len(near)):
        if not seen[start]:
            end = _reach(start, near)[-1]
            component = _reach(end, near)
            order += component
            for v in component:
                seen[v] = True
    return np.array(order, np.int64)


def _reach(start: int, near: list[list[int]]) -> list[int]:
    found = {start: None}
    queue = deque([start])
    while queue:
        for w in near[queue.popleft()]:
            if w not in found:
                found[w] = None
                queue.append(w)
    return list(found)

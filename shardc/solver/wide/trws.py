"""Sequential message passing: a bound without large tables, and a choice with a global view.

Tree-reweighted message passing in its sequential form (Kolmogorov, IEEE PAMI 28(10), 2006). It
approximately solves the linear relaxation, in passes that scan each cell once. A node waits for its
neighbours before it only, so all nodes whose turn has come take it together.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from shardc.solver.interrupt import poll
from shardc.solver.problem.network import Network
from shardc.solver.problem.problem import Floats, Ints

CELLS_PER_NODE = 300  # overhead of a pass per node
CELLS_TOGETHER = 1 << 14  # of the tables that are scanned in one go; only these are copied


class Done(NamedTuple):
    """Edges of the first nodes of a group to neighbours that have chosen, one of each node.

    Attributes:
        coming: [node, strategy]: positions of the neighbours' messages.
        neighbours: one per node.
        cells: [node, strategy]: positions of the neighbour's first strategy among all cells.
        step: from one strategy of the neighbour to the next, [node, 1].
    """

    coming: Ints
    neighbours: Ints
    cells: Ints
    step: Ints


class Sending(NamedTuple):
    """Edges from nodes of a group to neighbours after them, which are scanned together.

    Attributes:
        tables: their tables side by side: [strategy of a node, all of the neighbours'].
        rows: the sender of each edge: its place in the group.
        coming: [edge, strategy]: positions of the neighbours' messages.
        edge: of each column.
        first: column of each edge.
        at: position of each column among all messages.
    """

    tables: Floats
    rows: Ints
    coming: Ints
    edge: Ints
    first: Ints
    at: Ints


class Group(NamedTuple):
    """Nodes with equally many strategies that take their turn together.

    Attributes:
        nodes: them, those with the most neighbours before them first.
        at: [node, strategy]: positions among all strategies.
        most: [node, 1]: neighbours before or after it, whichever are more; at least 1.
        kept: per node the share of its belief that it does not pass on.
        later: [node, strategy]: positions of the messages of neighbours after them: of the first of
            each node, of the second, ...; that of a zero if there are not as many.
        done: the edges to neighbours before them: the first of each node, the second, ...
        sending: the edges to neighbours after them.
    """

    nodes: Ints
    at: Ints
    most: Ints
    kept: Floats
    later: list[Ints]
    done: list[Done]
    sending: list[Sending]


class Messages:
    """Messages along all edges, kept between passes; any messages give a valid bound.

    A pass visits the nodes in order of rank (or backwards). A node adds what its neighbours sent
    (its belief), and distributes it evenly over the edges to the nodes after it.

    Attributes:
        work: cells of one pass.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        sizes = network.sizes
        degrees = np.array([len(near) for near in network.near], np.int64)
        slots = degrees * np.array(sizes, np.int64)
        self._first = np.concatenate([[0], np.cumsum(slots)]).astype(np.int64).tolist()
        self._sent: Floats = np.zeros(self._first[-1] + 1)  # and a zero
        # The place of each node among the neighbours of each of its neighbours.
        self._place: list[dict[int, int]] = [
            {w: i for i, w in enumerate(near.tolist())} for near in network.near
        ]
        self._groups: dict[bool, list[Group]] = {}
        self.work = network.num_cells + CELLS_PER_NODE * len(sizes)

    def received(self, v: int) -> Floats:
        """The last messages of the neighbours of `v`, in their order by rank: [neighbours,
        strategies]; may be written to."""
        degree, size = len(self.network.near[v]), self.network.sizes[v]
        return self._sent[self._first[v] : self._first[v + 1]].reshape(degree, size)

    def run(
        self, costs: Floats, *, forward: bool, slacks: Floats | None = None
    ) -> tuple[float, Ints]:
        """One pass over all nodes.

        Args:
            costs: of all strategies, priced.
            slacks: raised to lower bounds on how far choices with a strategy are above the bound.
        Returns:
            A lower bound on the cost of every choice (without the constant), and a choice: each
            node takes the best for the choices already made and the messages of the others.
        """
        network, sent = self.network, self._sent
        choice = np.zeros(len(network.sizes), np.int64)
        bounds = np.zeros(len(network.sizes))
        if forward not in self._groups:
            self._groups[forward] = list(self._grouped(forward))
        for group in self._groups[forward]:
            poll()
            belief = costs.take(group.at)
            for coming in group.later:
                belief += sent.take(coming)
            known = belief.copy()
            for coming, neighbours, cells, step in group.done:
                count = len(neighbours)
                chosen = choice.take(neighbours)[:, None] * step
                known[:count] += network.cells.take(cells + chosen)
                belief[:count] += sent.take(coming)
            choice[group.nodes] = known.argmin(axis=1)
            least = np.minimum.reduce(belief, axis=1)
            bounds[group.nodes] = group.kept * least
            share = belief / group.most
            slack = group.kept[:, None] * (belief - least[:, None]) if slacks is not None else None
            for tables, rows, coming, edge, first, to in group.sending:
                own = (share.take(rows, axis=0) - sent.take(coming)).T
                sums = tables + (own if len(rows) == 1 else own.take(edge, axis=1))
                # Row by row: the minimum over whole rows is several times faster than within rows.
                sent[to] = message = np.minimum.reduce(sums, axis=0)
                if slack is not None:
                    edges = np.minimum.reduceat(sums - message, first, axis=1)
                    np.add.at(slack, rows, edges.T)
            if slacks is not None and slack is not None:
                slacks[group.at] = np.maximum(slacks[group.at], slack)
        order = network.order if forward else network.order[::-1]
        # Added one by one, so that the sum does not depend on the groups.
        bound = float(np.add.accumulate(bounds[order])[-1]) if len(order) else 0.0
        return bound, choice

    def _grouped(self, forward: bool) -> Iterator[Group]:
        """The nodes in the order of their turns, those with equally many strategies together."""
        network = self.network
        turn = [0] * len(network.sizes)
        found: dict[tuple[int, int], list[int]] = {}
        order = network.order.tolist()
        for v in order if forward else order[::-1]:
            before, _ = self._sides(v, forward)
            near = network.near[v].tolist()
            turn[v] = max((turn[near[i]] + 1 for i in before), default=0)
            found.setdefault((turn[v], network.sizes[v]), []).append(v)
        for key in sorted(found):
            yield self._group(found[key], forward)

    def _sides(self, v: int, forward: bool) -> tuple[range, range]:
        """The places of the neighbours of `v` before and after it in a pass."""
        earlier = self.network.earlier[v]
        low, high = range(earlier), range(earlier, len(self.network.near[v]))
        return (low, high) if forward else (high, low)

    def _group(self, found: list[int], forward: bool) -> Group:
        network = self.network
        nodes = sorted(found, key=lambda v: -len(self._sides(v, forward)[0]))
        before, after = zip(*(self._sides(v, forward) for v in nodes), strict=True)
        most = [max(len(low), len(high), 1) for low, high in zip(before, after, strict=True)]
        kept = [1.0 - len(high) / n for high, n in zip(after, most, strict=True)]
        strategies = np.arange(network.sizes[nodes[0]])
        done, later = [], []
        for k in range(len(before[0])):
            edges = [(v, low[k]) for v, low in zip(nodes, before, strict=True) if k < len(low)]
            neighbours = [int(network.near[v][i]) for v, i in edges]
            tables = [network.cells_of(v, w) for (v, _), w in zip(edges, neighbours, strict=True)]
            first, own, step = np.array(tables, np.int64).T[:, :, None]
            cells = first + own * strategies
            done.append(Done(self._coming(edges), np.array(neighbours, np.int64), cells, step))
        for k in range(max(map(len, after))):
            edges = [(v, high[k]) for v, high in zip(nodes, after, strict=True) if k < len(high)]
            some = [row for row, high in enumerate(after) if k < len(high)]
            coming = np.full((len(nodes), len(strategies)), len(self._sent) - 1)
            coming[some] = self._coming(edges)
            later.append(coming)
        return Group(
            np.array(nodes, np.int64),
            network.first[nodes][:, None] + strategies,
            np.array(most, np.int64)[:, None],
            np.array(kept),
            later,
            done,
            list(self._sending(nodes, after)),
        )

    def _coming(self, edges: list[tuple[int, int]]) -> Ints:
        """[edge, strategy]: positions of the messages to nodes over the edges at their places."""
        size = self.network.sizes[edges[0][0]]
        first = np.array([self._first[v] + i * size for v, i in edges], np.int64)
        return first[:, None] + np.arange(size)

    def _sending(self, nodes: list[int], after: Sequence[range]) -> Iterator[Sending]:
        """The edges of a group to the nodes after it, in batches of few cells."""
        batch: list[tuple[int, int, Floats]] = []
        cells = 0
        for row, (v, places) in enumerate(zip(nodes, after, strict=True)):
            columns = self.network.columns[v].tolist()
            for i in places:
                table = self.network.blocks[v][:, columns[i] : columns[i + 1]]
                if batch and cells + table.size > CELLS_TOGETHER:
                    yield self._batch(nodes, batch)
                    batch, cells = [], 0
                batch.append((row, i, table))
                cells += table.size
        if batch:
            yield self._batch(nodes, batch)

    def _batch(self, nodes: list[int], batch: list[tuple[int, int, Floats]]) -> Sending:
        """Edges to scan together: the place of the sender, that of the neighbour, the table."""
        rows, places, tables = zip(*batch, strict=True)
        edges = [(nodes[row], i) for row, i in zip(rows, places, strict=True)]
        widths = [table.shape[1] for table in tables]
        first = np.cumsum([0, *widths[:-1]])
        edge = np.repeat(np.arange(len(edges)), widths)
        to = []
        for (v, i), width in zip(edges, widths, strict=True):
            w = int(self.network.near[v][i])
            to.append(self._first[w] + self._place[w][v] * width)
        return Sending(
            tables[0] if len(tables) == 1 else np.concatenate(tables, axis=1),
            np.array(rows, np.int64),
            self._coming(edges),
            edge,
            first,
            (np.array(to, np.int64) - first)[edge] + np.arange(len(edge)),
        )

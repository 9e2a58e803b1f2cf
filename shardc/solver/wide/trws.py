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


class Sending(NamedTuple):
    """Edges from nodes of a group to neighbours after them, which are scanned together.

    Attributes:
        tables: their tables side by side: [strategy of a node, all of the neighbours'].
        edge: of each column, among all (place, node) of the group.
        rows: the sender of each edge: its place in the group.
        first: column of each edge.
        at: position of each column among all messages.
    """

    tables: Floats
    edge: Ints
    rows: Ints
    first: Ints
    at: Ints


class Group(NamedTuple):
    """Nodes with equally many strategies that take their turn together.

    Where a node has fewer neighbours than another one, zeros stand for the rest.

    Attributes:
        nodes: them.
        at: [node, strategy]: positions among all strategies.
        most: [node, 1]: neighbours before or after it, whichever are more; at least 1.
        kept: per node the share of its belief that it does not pass on.
        num_later: neighbours after a node, at most.
        coming: [place, node, strategy]: positions of the messages of its neighbours: of those after
            it, then of those before it.
        before: [place, node]: its neighbours before it.
        cells: [place, node, strategy]: positions of their first strategies among all cells.
        step: [place, node]: from one of their strategies to the next.
        sending: the edges to neighbours after them.
    """

    nodes: Ints
    at: Ints
    most: Ints
    kept: Floats
    num_later: int
    coming: Ints
    before: Ints
    cells: Ints
    step: Ints
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
        self._zero = self._first[-1]
        self._sent: Floats = np.zeros(self._zero + 1)
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
            received = sent.take(group.coming)
            later = received[: group.num_later]
            belief = costs.take(group.at)
            for messages in later:
                belief += messages
            known = belief.copy()
            chosen = choice.take(group.before) * group.step
            edges = network.cells.take(group.cells + chosen[:, :, None])
            for cells, messages in zip(edges, received[group.num_later :], strict=True):
                known += cells
                belief += messages
            choice[group.nodes] = known.argmin(axis=1)
            least = np.minimum.reduce(belief, axis=1)
            bounds[group.nodes] = group.kept * least
            slack = group.kept[:, None] * (belief - least[:, None]) if slacks is not None else None
            own = (belief / group.most - later).reshape(-1, belief.shape[1]).T
            for tables, edge, rows, first, to in group.sending:
                sums = tables + own.take(edge[:1] if len(rows) == 1 else edge, axis=1)
                # Row by row: the minimum over whole rows is several times faster than within rows.
                sent[to] = message = np.minimum.reduce(sums, axis=0)
                if slack is not None:
                    np.add.at(slack, rows, np.minimum.reduceat(sums - message, first, axis=1).T)
            if slacks is not None and slack is not None:
                slacks[group.at] = np.maximum(slacks[group.at], slack)
        order = network.order if forward else network.order[::-1]
        # Added one by one, so that the sum does not depend on the groups.
        bound = float(np.add.accumulate(bounds[order])[-1]) if len(order) else 0.0
        return bound, choice

    def _grouped(self, forward: bool) -> Iterator[Group]:
        """The nodes in the order of their turns, those with equally many strategies and about as
        many neighbours together."""
        network = self.network
        turn = [0] * len(network.sizes)
        found: dict[tuple[int, int, int], list[int]] = {}
        order = network.order.tolist()
        for v in order if forward else order[::-1]:
            before, _ = self._sides(v, forward)
            near = network.near[v].tolist()
            turn[v] = max((turn[near[i]] + 1 for i in before), default=0)
            few = (len(near).bit_length() + 1) // 2  # zeros stand for at most 3 of 4 neighbours
            found.setdefault((turn[v], network.sizes[v], few), []).append(v)
        for key in sorted(found):
            yield self._group(found[key], forward)

    def _sides(self, v: int, forward: bool) -> tuple[range, range]:
        """The places of the neighbours of `v` before and after it in a pass."""
        earlier = self.network.earlier[v]
        low, high = range(earlier), range(earlier, len(self.network.near[v]))
        return (low, high) if forward else (high, low)

    def _group(self, nodes: list[int], forward: bool) -> Group:
        network = self.network
        before, after = zip(*(self._sides(v, forward) for v in nodes), strict=True)
        most = [max(len(low), len(high), 1) for low, high in zip(before, after, strict=True)]
        kept = [1.0 - len(high) / n for high, n in zip(after, most, strict=True)]
        strategies = np.arange(network.sizes[nodes[0]])
        num_later, num_before = max(map(len, after)), max(map(len, before))
        coming = np.full((num_later + num_before, len(nodes), len(strategies)), self._zero)
        neighbours, step = np.zeros((2, num_before, len(nodes)), np.int64)
        cells = np.full((num_before, len(nodes), len(strategies)), network.num_cells)
        for row, (v, low, high) in enumerate(zip(nodes, before, after, strict=True)):
            for k, i in enumerate(high):
                coming[k, row] = self._first[v] + i * len(strategies) + strategies
            for k, i in enumerate(low):
                coming[num_later + k, row] = self._first[v] + i * len(strategies) + strategies
                w = neighbours[k, row] = int(network.near[v][i])
                first, own, step[k, row] = network.cells_of(v, int(w))
                cells[k, row] = first + own * strategies
        return Group(
            np.array(nodes, np.int64),
            network.first[nodes][:, None] + strategies,
            np.array(most, np.int64)[:, None],
            np.array(kept),
            num_later,
            coming,
            neighbours,
            cells,
            step,
            list(self._sending(nodes, after)),
        )

    def _sending(self, nodes: list[int], after: Sequence[range]) -> Iterator[Sending]:
        """The edges of a group to the nodes after it, in batches of few cells."""
        batch: list[tuple[int, int, Floats]] = []
        cells = 0
        for row, (v, places) in enumerate(zip(nodes, after, strict=True)):
            columns = self.network.columns[v].tolist()
            for i in places:
                table = self.network.blocks[v][:, columns[i] : columns[i + 1]]
                if batch and cells + table.size > CELLS_TOGETHER:
                    yield self._batch(nodes, after, batch)
                    batch, cells = [], 0
                batch.append((row, i, table))
                cells += table.size
        if batch:
            yield self._batch(nodes, after, batch)

    def _batch(
        self, nodes: list[int], after: Sequence[range], batch: list[tuple[int, int, Floats]]
    ) -> Sending:
        """Edges to scan together: the place of the sender, that of the neighbour, the table."""
        widths = [table.shape[1] for _, _, table in batch]
        first = np.cumsum([0, *widths[:-1]])
        edges, to = [], []
        for row, i, table in batch:
            v = nodes[row]
            w = int(self.network.near[v][i])
            edges.append((i - after[row].start) * len(nodes) + row)
            to.append(self._first[w] + self._place[w][v] * table.shape[1])
        tables = [table for _, _, table in batch]
        return Sending(
            tables[0] if len(tables) == 1 else np.concatenate(tables, axis=1),
            np.repeat(edges, widths),
            np.array([row for row, _, _ in batch], np.int64),
            first,
            np.repeat(np.array(to, np.int64) - first, widths) + np.arange(sum(widths)),
        )

"""Sequential message passing: a bound without large tables, and a choice with a global view.

Tree-reweighted message passing in its sequential form (Kolmogorov, IEEE PAMI 28(10), 2006). It
approximately solves the linear relaxation, in passes that scan each cell once.
"""

from typing import NamedTuple

import numpy as np

from shardc.solver.interrupt import poll
from shardc.solver.problem.network import Network
from shardc.solver.problem.problem import Floats, Ints

CELLS_PER_NODE = 300  # overhead of a pass per node


class Edge(NamedTuple):
    """An edge over which a node sends in one direction.

    Attributes:
        table: [its strategies, the neighbour's].
        coming: the neighbour's last message.
        message: that to the neighbour.
    """

    table: Floats
    coming: Floats
    message: Floats


class Step(NamedTuple):
    """A node's part of a pass in one direction. The arrays are views: nothing is copied.

    Attributes:
        first, end: of its strategies among all.
        block: its tables.
        done: per neighbour before it: the neighbour, its first column in `block`, its last message.
        edges: to the neighbours after it.
        most: neighbours before or after it, whichever are more.
    """

    node: int
    first: int
    end: int
    block: Floats
    done: list[tuple[int, int, Floats]]
    edges: list[Edge]
    most: int


class Messages:
    """Messages along all edges, kept between passes; any messages give a valid bound.

    A pass visits the nodes in order of rank (or backwards). A node adds what its neighbours sent
    (its belief), and distributes it evenly over the edges to the nodes after it.

    Attributes:
        work: cells of one pass.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        sizes, rank = network.sizes, network.rank
        degrees = np.array([len(near) for near in network.near], np.int64)
        slots = degrees * np.array(sizes, np.int64)
        self._first = np.concatenate([[0], np.cumsum(slots)]).astype(np.int64).tolist()
        self._sent: Floats = np.zeros(self._first[-1])
        self._order = sorted(range(len(sizes)), key=rank.tolist().__getitem__)
        # The place of each node among the neighbours of each of its neighbours.
        self._place: list[dict[int, int]] = [
            {w: i for i, w in enumerate(near.tolist())} for near in network.near
        ]
        self._steps: dict[bool, list[Step]] = {}
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
        choice = [0] * len(self.network.sizes)
        bound = 0.0
        if forward not in self._steps:
            order = self._order if forward else reversed(self._order)
            self._steps[forward] = [self._step(v, forward) for v in order]
        for v, first, end, block, done, edges, most in self._steps[forward]:
            poll()
            cost = costs[first:end]
            if not most:
                choice[v] = s = int(cost.argmin())
                bound += float(cost[s])
                if slacks is not None:
                    here = slacks[first:end]
                    np.maximum(here, cost - cost[s], out=here)
                continue
            belief = cost
            for _, theirs, _ in edges:
                belief = belief + theirs
            known = belief
            for w, column, theirs in done:
                known = known + block[:, column + choice[w]]
                belief = belief + theirs
            choice[v] = int(known.argmin())
            kept = 1.0 - len(edges) / most
            slack = None
            if kept:
                least = float(np.minimum.reduce(belief))
                bound += kept * least
                if slacks is not None:
                    slack = kept * (belief - least)
            share = belief / most
            for table, theirs, message in edges:
                # Row by row: the minimum over whole rows is several times faster than within rows.
                sums = table + (share - theirs)[:, None]
                np.minimum.reduce(sums, axis=0, out=message)
                if slacks is not None:
                    edge = np.minimum.reduce(sums - message, axis=1)
                    slack = edge if slack is None else slack + edge
            if slacks is not None and slack is not None:
                here = slacks[first:end]
                np.maximum(here, slack, out=here)
        return bound, np.array(choice, np.int64)

    def _step(self, v: int, forward: bool) -> Step:
        """The part of node `v`."""
        network, size = self.network, self.network.sizes[v]
        near, columns = network.near[v].tolist(), network.columns[v].tolist()
        earlier, block, box = network.earlier[v], network.blocks[v], self.received(v)
        before, after = range(earlier), range(earlier, len(near))
        done, left = (before, after) if forward else (after, before)
        edges = []
        for i in left:
            w = near[i]
            at = self._first[w] + self._place[w][v] * network.sizes[w]
            message = self._sent[at : at + network.sizes[w]]
            edges.append(Edge(block[:, columns[i] : columns[i + 1]], box[i], message))
        first = int(network.first[v])
        return Step(
            v,
            first,
            first + size,
            block,
            [(near[i], columns[i], box[i]) for i in done],
            edges,
            max(earlier, len(near) - earlier),
        )

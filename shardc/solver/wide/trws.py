"""Sequential message passing: a bound without large tables, and a choice with a global view.

Tree-reweighted message passing in its sequential form (Kolmogorov, IEEE PAMI 28(10), 2006). It
approximately solves the linear relaxation, in passes that scan each cell once.
"""

import numpy as np

from shardc.solver.interrupt import poll
from shardc.solver.problem.network import Network
from shardc.solver.problem.problem import Floats, Ints

CELLS_PER_NODE = 300  # overhead of a pass per node


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
        # The destination of each node's messages: a row of the receiver's box per edge.
        place: list[dict[int, int]] = [
            {w: i for i, w in enumerate(near.tolist())} for near in network.near
        ]
        self._targets: list[Ints] = []
        self._owners: list[Ints] = []
        for v, near in enumerate(network.near):
            rows = [
                np.arange(sizes[w]) + (self._first[w] + place[w][v] * sizes[w])
                for w in near.tolist()
            ]
            self._targets.append(np.concatenate([*rows, np.zeros(0, np.int64)]).astype(np.int64))
            widths = np.diff(network.columns[v])
            self._owners.append(np.repeat(np.arange(len(near)), widths))
        self._order = sorted(range(len(sizes)), key=rank.tolist().__getitem__)
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
            A lower bound on the cost of every choice (constant excluded), and a choice: each node
            A lower bound on the cost of every choice (without the constant), and a choice: each
            node takes the best for the choices already made and the messages of the others.
        """
        network, sent = self.network, self._sent
        choice = np.zeros(len(network.sizes), np.int64)
        starts = network.first.tolist()
        bound = 0.0
        for v in self._order if forward else reversed(self._order):
            poll()
            size, near = network.sizes[v], network.near[v]
            degree, earlier = len(near), network.earlier[v]
            cost = costs[starts[v] : starts[v + 1]]
            if not degree:
                choice[v] = s = cost.argmin()
                bound += float(cost[s])
                if slacks is not None:
                    here = slacks[starts[v] : starts[v + 1]]
                    np.maximum(here, cost - cost[s], out=here)
                continue
            box = sent[self._first[v] : self._first[v + 1]].reshape(degree, size)
            block, columns = network.blocks[v], network.columns[v]
            if forward:
                done, left, count = slice(0, earlier), slice(earlier, degree), degree - earlier
                cells = slice(columns[earlier], None)
            else:
                done, left, count = slice(earlier, degree), slice(0, earlier), earlier
                cells = slice(0, columns[earlier])
            coming = box[left]
            belief = cost + box.sum(axis=0)
            known = block[:, columns[:-1][done] + choice[near[done]]].sum(axis=1)
            choice[v] = (cost + known + coming.sum(axis=0)).argmin()
            most = max(earlier, degree - earlier)
            kept = 1.0 - count / most
            slack = None
            if kept:
                least = float(belief.min())
                bound += kept * least
                slack = kept * (belief - least)
            if count:
                share = belief / most - coming
                owners = self._owners[v][cells]
                # Row by row: the minimum over whole rows is several times faster than within rows.
                table = np.ascontiguousarray(share.T).take(owners - owners[0], axis=1)
                table += block[:, cells]
                message = np.minimum.reduce(table, axis=0)
                sent[self._targets[v][cells]] = message
                if slacks is not None:
                    table -= message
                    edges = np.minimum.reduceat(
                        table, (columns[:-1][left] - columns[left.start]), axis=1
                    ).sum(axis=1)
                    slack = edges if slack is None else slack + edges
            if slacks is not None and slack is not None:
                here = slacks[starts[v] : starts[v + 1]]
                np.maximum(here, slack, out=here)
        return bound, choice

"""Re-chooses many nodes at once, all others fixed: elimination that fixes nodes if tables grow.

Conditioning: Dechter, Artificial Intelligence 41, 1990 (cutset). Fixed nodes keep their current
strategy, so the result is exact on all others and never costs more than the initial choice.
"""

import heapq
import math
import random
from collections.abc import Callable, Sequence

import numpy as np

from shardc.solver.problem.network import Network
from shardc.solver.problem.problem import Floats, Ints

CELLS_PER_NODE = 1500  # overhead of eliminating one node


class _Ball:
    """The free nodes during elimination.

    Attributes:
        local: per node its costs, with all edges to fixed nodes.
        factors: per node its tables by number: (nodes, rising; axes in that order). A table shared
            by two edges has two numbers.
        near: per node, the free nodes that share a table with it.
    """

    def __init__(
        self, network: Network, costs: Floats, choice: Ints, free: Sequence[int], is_free: Ints
    ) -> None:
        first = network.first
        self.local: dict[int, Floats] = {}
        self.factors: dict[int, dict[int, tuple[tuple[int, ...], Floats]]] = {v: {} for v in free}
        self.near: dict[int, set[int]] = {v: set() for v in free}
        self.count = 0
        for v in free:
            near, block, columns = network.near[v], network.blocks[v], network.columns[v]
            inside = is_free[near]
            local = costs[first[v] : first[v + 1]]
            if not inside.all():
                held = ~inside
                local = local + block[:, columns[:-1][held] + choice[near[held]]].sum(axis=1)
            self.local[v] = local
            for i in np.flatnonzero(inside).tolist():
                w = int(near[i])
                if v < w:
                    self.add((v, w), block[:, columns[i] : columns[i + 1]])

    def add(self, nodes: tuple[int, ...], table: Floats) -> None:
        """Adds a table over `nodes`, in rising order."""
        if len(nodes) == 1:
            self.local[nodes[0]] = self.local[nodes[0]] + table
            return
        self.count += 1
        for v in nodes:
            self.factors[v][self.count] = nodes, table
            self.near[v].update(nodes)
            self.near[v].discard(v)

    def hold(self, v: int, strategy: int) -> list[int]:
        """Fixes `v` at `strategy` and removes it; returns the affected nodes."""
        around = self.near.pop(v)
        for w in around:
            self.near[w].discard(v)
        for number, (nodes, table) in self.factors.pop(v).items():
            rest = tuple(w for w in nodes if w != v)
            for w in rest:
                del self.factors[w][number]
            at = nodes.index(v)
            self.add(rest, table[(slice(None),) * at + (strategy,)])
        return sorted(around)

    def total(self, v: int) -> tuple[tuple[int, ...], Floats]:
        """Sums all factors of `v` in one table over (v, *others), and removes them."""
        found = self.factors.pop(v)
        others = tuple(sorted(self.near.pop(v)))
        axis = {w: i + 1 for i, w in enumerate(others)}
        table = self.local[v].reshape((-1,) + (1,) * len(others))
        for number, (nodes, part) in found.items():
            at = nodes.index(v)
            if at:
                part = part.transpose(at, *range(at), *range(at + 1, len(nodes)))
            shape = [len(part)] + [1] * len(others)
            for w, size in zip(nodes[:at] + nodes[at + 1 :], part.shape[1:], strict=True):
                shape[axis[w]] = size
                del self.factors[w][number]
            table = table + part.reshape(shape)
        for w in others:
            self.near[w].discard(v)
        return others, table


def improve(
    network: Network,
    costs: Floats,
    choice: Ints,
    free: Sequence[int],
    most_cells: int,
    rng: random.Random,
    check_time: Callable[[], None] = lambda: None,
) -> tuple[Ints, int]:
    """Best choice for the nodes `free`, with all others and a few random ones of them fixed.

    Eliminates in order of table size; whenever a table would exceed `most_cells`, one of its nodes
    is fixed, preferably one with many neighbours.

    Args:
        costs: of all strategies, priced.
        check_time: called periodically; may raise.
    Returns:
        The choice, and the work in cells.
    """
    is_free = np.zeros(len(choice), bool)
    is_free[list(free)] = True
    ball = _Ball(network, costs, choice, free, is_free)
    most = math.log(most_cells)
    log_size = {v: math.log(network.sizes[v]) for v in free}
    noise = {v: rng.random() for v in free}
    degree = {v: len(ball.near[v]) for v in free}

    def weight(v: int) -> float:
        return sum(log_size[w] for w in ball.near[v]) + log_size[v]

    heap = [(weight(v) + noise[v], v) for v in free]
    heapq.heapify(heap)
    done: list[tuple[int, tuple[int, ...], Floats]] = []
    work = 0
    while heap:
        key, v = heapq.heappop(heap)
        if v not in ball.near:
            continue
        now = weight(v)
        if now + noise[v] > key + 1e-9:
            heapq.heappush(heap, (now + noise[v], v))
            continue
        while now > most and v in ball.near and ball.near[v]:
            around = [*sorted(ball.near[v]), v]
            target = max(around, key=lambda w: degree[w] * rng.random())
            for w in ball.hold(target, int(choice[target])):
                heapq.heappush(heap, (weight(w) + noise[w], w))
            now = weight(v) if v in ball.near else 0.0
        if v not in ball.near:
            continue
        if len(done) % 256 == 255:
            check_time()
        others, table = ball.total(v)
        done.append((v, others, table))
        work += table.size // 2 + CELLS_PER_NODE
        if others:
            ball.add(others, np.minimum.reduce(table, axis=0))
            for w in others:
                heapq.heappush(heap, (weight(w) + noise[w], w))
    better: list[int] = choice.tolist()
    for v, others, table in reversed(done):
        place: tuple[slice | int, ...] = (slice(None), *(better[w] for w in others))
        better[v] = int(table[place].argmin())
    return np.array(better, np.int64), work

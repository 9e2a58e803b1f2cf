"""Finds the equal layers of a problem: consecutive runs of nodes that are alike.

Builders of a problem number its nodes in program order, so equal layers are equal runs of numbers.
Two nodes are alike if their costs, bytes and edge tables are equal, and those of their
neighbours; names of ops or values do not matter.
"""

import hashlib

import numpy as np
import numpy.typing as npt

from shardc.solver.problem.problem import Ints, Problem

ROUNDS = 2  # radius of the neighbourhood that is compared
MOST_PERIODS = 64  # layer lengths to try, most frequent first
Words = npt.NDArray[np.uint64]


def equal_layers(problem: Problem) -> Ints:
    """Per node, the first node that represents it and all like it in the other layers.

    Every run of p nodes that is like the p nodes before it is a layer equal to the previous one.
    If runs of several lengths contain a node, the one that covers the most nodes times
    repetitions wins, as opposed to equal weights inside a layer or two equal moments of all
    weights. Nodes in no such run represent themselves.
    """
    labels = np.unique(_labels(problem), return_inverse=True)[1]
    before = _node_before(labels)
    leaders = np.arange(len(labels))
    for v in np.flatnonzero(before >= 0).tolist():  # ascending: earlier leaders are final
        leaders[v] = leaders[before[v]]
    return leaders


def _node_before(labels: Ints) -> Ints:
    """Per node, its counterpart in the previous layer; -1 if there is none."""
    runs = []  # value, period, first node that equals its counterpart, and the end
    for period in _periods(labels):
        same = np.concatenate([[False], labels[period:] == labels[:-period], [False]])
        ends = np.flatnonzero(same[1:] != same[:-1])
        starts, lengths = ends[::2], ends[1::2] - ends[::2]
        long = lengths >= period
        for start, length in zip(starts[long].tolist(), lengths[long].tolist(), strict=True):
            worth = (length + period) ** 2 / period
            runs.append((-worth, period, start + period, start + period + length))
    before = np.full(len(labels), -1, np.int64)
    taken = np.zeros(len(labels), bool)
    for _, period, start, stop in sorted(runs):
        run = np.arange(start, stop)
        free = run[~taken[run]]
        before[free] = free - period
        taken[start - period : stop] = True
    return before


def _periods(labels: Ints) -> list[int]:
    """Distances at which labels recur, most frequent first."""
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    again = ordered[1:] == ordered[:-1]
    distances, counts = np.unique((order[1:] - order[:-1])[again], return_counts=True)
    best = np.lexsort((distances, -counts))
    found: list[int] = distances[best][:MOST_PERIODS].tolist()
    return found


def _labels(problem: Problem) -> Words:
    """A number per node, equal for nodes that are alike including their neighbourhood."""
    known = {id(table): table for table in problem.edge_costs}  # tables are often shared
    numbers = {key: _number(table.tobytes()) for key, table in known.items()}
    tables = np.array([numbers[id(table)] for table in problem.edge_costs], np.uint64)
    usages = problem.usages or [np.zeros(0, np.int64)] * problem.num_nodes
    labels = np.array(
        [
            _number(cost.tobytes() + usage.tobytes())
            for cost, usage in zip(problem.costs, usages, strict=True)
        ],
        np.uint64,
    )
    ends = np.array(problem.edges, np.int64).reshape(-1, 2)
    for _ in range(ROUNDS):
        seen = np.zeros(len(labels), np.uint64)
        for here, there, side in ((0, 1, 1), (1, 0, 2)):
            sent = _mix(labels[ends[:, there]] + _mix(tables + np.uint64(side)))
            np.add.at(seen, ends[:, here], sent)
        labels = _mix(labels + _mix(seen))
    return labels


def _number(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def _mix(words: Words) -> Words:
    """Spreads the bits (the last steps of MurmurHash3, A. Appleby, public domain)."""
    words = (words ^ (words >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    words = (words ^ (words >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return words ^ (words >> np.uint64(33))

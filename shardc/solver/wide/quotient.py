"""Initial messages for a network of equal layers, from one in which every third layer is the same.

Messages need about a hundred passes from scratch. In a chain of equal layers they hardly differ
from layer to layer. So they are computed on a network with one node for all corresponding nodes of
every third layer, and each node gets its part of them. Three, so that the layers before and after
a layer differ from it and from each other.
"""

import numpy as np

from shardc.solver.problem.network import Network
from shardc.solver.problem.problem import Floats, Ints
from shardc.solver.problem.reduced import Reduced
from shardc.solver.wide.trws import Messages

LAYERS = 3
STALL_PASSES, LEAST_GAIN, MOST_PASSES = 6, 1e-4, 100


def groups_of(network: Network, leaders: Ints) -> Ints:
    """Per node a number: equal for nodes that are alike and in layers a multiple of three apart.

    Args:
        leaders: per node of the original problem, its representative.
    """
    order = np.argsort(leaders, kind="stable")
    firsts = np.searchsorted(leaders[order], leaders[order])
    layer = np.empty(len(leaders), np.int64)
    layer[order] = np.arange(len(leaders)) - firsts
    numbers: dict[tuple[int, int, bytes], int] = {}
    keys = (
        (int(leaders[name]), int(layer[name]) % LAYERS, cost.tobytes())
        for name, cost in zip(network.reduced.names, network.reduced.costs, strict=True)
    )
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)


def warm_messages(network: Network, costs: Floats, groups: Ints) -> tuple[Messages, int]:
    """Initial messages, and the work they took.

    Args:
        costs: of all strategies, priced.
        groups: the group of each node; nodes of a group have equally many strategies.
    """
    small, counts = _quotient(network, costs, groups)
    theirs = Messages(small)
    best, before, count = -np.inf, -np.inf, 0
    for count in range(1, MOST_PASSES + 1):
        bound, _ = theirs.run(small.flat, forward=count % 2 == 1)
        best = max(best, bound)
        if count % STALL_PASSES == 0:
            if best - before < LEAST_GAIN * abs(best):
                break
            before = best
    found = Messages(network)
    group_of: list[int] = groups.tolist()
    for v, near in enumerate(network.near):
        group, mine = group_of[v], found.received(v)
        sent = theirs.received(group)
        row = {w: i for i, w in enumerate(small.near[group].tolist())}
        for i, w in enumerate(near.tolist()):
            other = group_of[w]
            if other != group:
                mine[i] = sent[row[other]] / counts[min(group, other), max(group, other)]
    return found, count * theirs.work + network.num_cells


def _quotient(
    network: Network, priced: Floats, groups: Ints
) -> tuple[Network, dict[tuple[int, int], int]]:
    """The network of the groups with all costs added, and the multiplicity of each edge.

    An edge inside a group adds to the costs of its node.
    """
    reduced, group_of = network.reduced, groups.tolist()
    costs: dict[int, Floats] = {}
    for v, group in enumerate(group_of):
        own = priced[network.first[v] : network.first[v + 1]]
        costs[group] = costs[group] + own if group in costs else own
    tables: dict[tuple[int, int], Floats] = {}
    counts: dict[tuple[int, int], int] = {}
    for (u, v), table in zip(reduced.edges, reduced.tables, strict=True):
        a, b = group_of[u], group_of[v]
        if a == b:
            costs[a] = costs[a] + np.diagonal(table)
            continue
        key, turned = ((a, b), table) if a < b else ((b, a), table.T)
        counts[key] = counts.get(key, 0) + 1
        tables[key] = tables[key] + turned if key in tables else turned
    count = len(costs)
    small = Reduced(
        costs=tuple(costs[group] for group in range(count)),
        edges=tuple(tables),
        tables=tuple(tables.values()),
        memory=None,
        constant=0.0,
        times=np.zeros(0, np.int64),
        names=tuple(range(count)),
        terms=tuple({} for _ in range(count)),
        num_nodes=count,
        steps=(),
    )
    return Network(small), counts

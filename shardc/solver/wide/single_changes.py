"""Improves a choice by changing single nodes, after a search that ended within its gap."""

from collections import deque
from collections.abc import Callable

import numpy as np

from shardc.solver.problem.memory_times import Live, Memory
from shardc.solver.problem.problem import Floats, Ints, Problem


def change_single_nodes(
    problem: Problem,
    live: Live,
    memory: Memory | None,
    choice: Ints,
    check_time: Callable[[], None],
) -> Ints:
    """A choice that no change of a single node makes cheaper within the memory limit.

    Iterated conditional modes (Besag 1986): a node is visited again when a neighbour has changed.
    Every change lowers the cost, so it terminates; linear in the edges if little changes.

    Args:
        live, memory: of `problem`; None if nothing is limited.
        choice: feasible.
        check_time: raises when time is up.
    """
    found = choice.copy()
    near: list[list[tuple[int, Floats]]] = [[] for _ in problem.costs]
    costs = list(problem.costs)
    for (u, v), table in zip(problem.edges, problem.edge_costs, strict=True):
        if u == v:
            costs[u] = costs[u] + table.diagonal()
        else:
            near[u].append((v, table.T))
            near[v].append((u, table))
    held = None if memory is None else memory.profile(found)
    waiting = deque(range(len(costs)))
    waits = [True] * len(costs)
    while waiting:
        check_time()
        v = waiting.popleft()
        waits[v] = False
        total = costs[v].copy()
        for w, table in near[v]:
            total += table[found[w]]
        now = found[v]
        for new in np.argsort(total, kind="stable").tolist():
            if not total[new] < total[now] - 1e-12 * abs(total[now]):
                break
            if held is not None and memory is not None:
                after = held.copy()
                for (lo, hi), usage in live.terms[v].items():
                    after[lo:hi] += usage[new] - usage[now]
                if int(after.max(initial=0)) > memory.limit:
                    continue
                held = after
            found[v] = new
            for w, _ in near[v]:
                if not waits[w]:
                    waits[w] = True
                    waiting.append(w)
            break
    return found

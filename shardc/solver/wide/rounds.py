"""Rounds of descent; between them, strategies that no better choice uses are removed."""

import heapq
import math
import random

import numpy as np

from shardc.solver.exact.running_solve import Search
from shardc.solver.problem.contraction import contract, contract_further
from shardc.solver.problem.network import Network
from shardc.solver.problem.problem import Floats
from shardc.solver.problem.reduced import Reduced
from shardc.solver.wide.descent import CELLS_PER_LOOK, Descent

NODES_TO_TABULATE = 1_000  # smaller problems are left to elimination and CP-SAT
FEW_NODES_TO_TABULATE = 100  # the same if the budget is below this much work (in cells)
WORK_TO_TABULATE = 600_000_000
LOOKS_FOR_MESSAGES = 100  # but covers this many scans of all cells
# From this much work on, they are still tabulated if a first round of at most so many scans of all
# cells does not solve them: descent gets stuck in some, and elimination is slower in others.
WORK_FOR_BOTH, LOOKS_FOR_BOTH = 60_000_000, 250
CELLS_TO_TABULATE = 1 << 24  # of one table: problems that need no larger one are not wide
# Shares of all work for messages, oscillation and polish, and the rates at which prices move during
# messages: from, to. The next rounds continue until the work is spent.
FIRST_ROUND = (0.25, 0.10, 0.15, (0.3, 0.03))
NEXT_ROUNDS = (0.03, 0.04, 0.08, (0.06, 0.02))
# Passes of messages in the first round and while nothing fits, up to this share of all work.
LEAST_PASSES, MOST_OF_PASSES = 100, 0.7
LEAST_LOOKS, MOST_LOOKS = 50, 200  # of a refinement
REFINEMENT = (0.2, 0.2, 0.6, (0.06, 0.02))  # of a choice found by other phases
RATES_OF_OSCILLATION = (0.1, 0.01)
RATES_IN_NEED = (1.0, 1.0)  # while nothing was found that fits
LEAST_REMOVED = 0.1  # share of all strategies below which another contraction does not pay


def is_wide(search: Search) -> bool:
    """Whether elimination needs too large tables, with too many nodes to split them.

    Splitting tables repeatedly ends in proofs, but gives good choices late; messages give them
    soon if there is work for enough passes. So with a small budget, fewer nodes count as many.
    """
    most_nodes = NODES_TO_TABULATE
    cells = sum(table.size for table in search.reduced.tables)
    if LOOKS_FOR_MESSAGES * cells < search.work < WORK_TO_TABULATE:
        most_nodes = min(FEW_NODES_TO_TABULATE, most_nodes)
    if len(search.reduced.sizes) <= most_nodes:
        return False
    return _needs_more_cells(search.reduced, CELLS_TO_TABULATE)


def may_tabulate(search: Search) -> bool:
    """Whether elimination goes on with a wide problem that a first round does not solve."""
    return len(search.reduced.sizes) <= NODES_TO_TABULATE and search.work >= WORK_FOR_BOTH


def _needs_more_cells(reduced: Reduced, most_cells: int) -> bool:
    """Whether eliminating nodes by smallest table creates a table above `most_cells`."""
    sizes, edges = reduced.sizes, reduced.edges
    near: list[set[int]] = [set() for _ in sizes]
    for u, v in edges:
        near[u].add(v)
        near[v].add(u)
    log_size = [math.log(size) for size in sizes]

    def weight(v: int) -> float:
        return math.fsum(log_size[u] for u in near[v]) + log_size[v]

    heap = [(weight(v), v) for v in range(len(sizes))]
    heapq.heapify(heap)
    done = [False] * len(sizes)
    while heap:
        key, v = heapq.heappop(heap)
        if done[v]:
            continue
        now = weight(v)
        if now > key + 1e-9:
            heapq.heappush(heap, (now, v))
            continue
        if now > math.log(most_cells):
            return True
        done[v] = True
        for u in near[v]:
            near[u] |= near[v]
            near[u] -= {u, v}
        for u in near[v]:
            heapq.heappush(heap, (weight(u), u))
    return False


def descend(search: Search, prices: Floats, rng: random.Random) -> None:
    """Spends the budget of work on a wide problem, with all times limited; ends early once it is
    solved or is to be tabulated.

    Args:
        prices: of all times; changed to the last ones used.
    """
    if len(search.live.times):  # otherwise `search.reduced` already is this contraction
        search.begin("contract")
        search.enter(contract(search.problem, search.live))
        search.note(f"{len(search.reduced.costs)} nodes, all {len(search.reduced.times)} times")
    whole = search.work_left
    descent = Descent(Network(search.reduced), search, prices[search.reduced.times], rng)
    if may_tabulate(search):
        whole = min(whole, LOOKS_FOR_BOTH * (CELLS_PER_LOOK + descent.messages.work))
    try:
        round_ = FIRST_ROUND
        while search.work_left > 0:
            messages, oscillation, polish, rates = round_
            work = messages * whole
            if descent.best is None or round_ is FIRST_ROUND:
                work = max(work, min(LEAST_PASSES * descent.messages.work, MOST_OF_PASSES * whole))
                rates = FIRST_ROUND[3]
            search.begin("messages")
            descent.pass_messages(work, rates)
            _note(descent, search)
            search.begin("oscillate")
            in_need = descent.best is None and round_ is NEXT_ROUNDS
            descent.oscillate(
                oscillation * whole, RATES_IN_NEED if in_need else RATES_OF_OSCILLATION
            )
            _note(descent, search)
            search.begin("polish")
            descent.polish(polish * whole)
            _note(descent, search)
            if search.settled():
                return
            prices[search.reduced.times] = descent.prices
            _remove_strategies(descent, search)
            if search.settled() or may_tabulate(search) or not is_wide(search):
                return
            if search.reduced is not descent.network.reduced:
                start = prices[search.reduced.times]
                descent = Descent(Network(search.reduced), search, start, rng)
            round_ = NEXT_ROUNDS
    finally:
        descent.report()
    search.note("the budget of work is spent")


def refine(search: Search, prices: Floats, rng: random.Random, share: float) -> None:
    """Searches for a better choice of a problem of any width, and for a bound.

    Args:
        share: of the remaining work that may be spent. If below 1, at most a few hundred scans of
            the whole problem; a few dozen are made even if nothing remains.
        prices: of all times; changed to the last ones used.
    """
    reduced = search.reduced
    messages, oscillation, polish, rates = REFINEMENT
    descent = Descent(Network(reduced), search, prices[reduced.times], rng)
    work, look = share * search.work_left, CELLS_PER_LOOK + descent.messages.work
    if share < 1.0:
        work = min(work, MOST_LOOKS * look)
    work = max(work, LEAST_LOOKS * look)
    if not descent.prices.any():
        rates = FIRST_ROUND[3]
    try:
        descent.pass_messages(messages * work, rates)
        if reduced.memory is not None:
            descent.oscillate(oscillation * work, RATES_OF_OSCILLATION)
        descent.polish(polish * work)
    finally:
        descent.report()
        prices[reduced.times] = descent.prices


def _note(descent: Descent, search: Search) -> None:
    descent.report()
    search.note(f"{int((descent.prices > 0).sum())} times have a price")


def _remove_strategies(descent: Descent, search: Search) -> None:
    """Contracts without the strategies that are proven to occur in no better choice."""
    if search.best is None:
        return
    least = descent.least_costs()
    first = descent.network.first
    kept = [
        np.flatnonzero((least[a:b] <= search.best_cost - search.tolerance() / 2) & fits)
        for a, b, fits in zip(
            first[:-1], first[1:], search.reduced.fitting_strategies(), strict=True
        )
    ]
    if not all(map(len, kept)):
        search.raise_bound(search.best_cost - search.tolerance() / 2)
        return
    if sum(map(len, kept)) < (1.0 - LEAST_REMOVED) * len(least):
        search.begin("remove strategies")
        search.enter(contract_further(search.reduced, kept))
        search.note(f"{len(search.reduced.costs)} nodes left")

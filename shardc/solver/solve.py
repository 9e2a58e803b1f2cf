"""The way from a problem to a choice with a proven bound."""

import math
import random
import time
from collections.abc import Callable, Sequence

import numpy as np

from shardc.errors import InfeasibleError
from shardc.solver.certify import certify
from shardc.solver.contraction import Reduced, contract, contract_further
from shardc.solver.oracle import Oracle
from shardc.solver.polish import polish
from shardc.solver.prices import least_memory, price_memory, raise_until_it_fits
from shardc.solver.problem import Floats, Problem, Progress, Solution, evaluate
from shardc.solver.search import OutOfTimeError, Search

MOST_CELLS_FOR_CP_SAT = 60_000  # pairs of strategies over all edges that CP-SAT is given
FIRST_CELLS = 60_000_000  # of the tables of one pass, 0.3 s
MOST_CELLS = 16 * FIRST_CELLS
CELLS_PER_SECOND = (
    20_000_000  # turns the time limit into a budget of work; slower than machines are
)


class LimitError(InfeasibleError):
    """No choice meets the memory limit.

    Attributes:
        peak_bytes: smallest peak of any choice that was found.
        least_bytes: no choice has a smaller peak (proven).
    """

    def __init__(self, limit: int, peak_bytes: int, least_bytes: int) -> None:
        self.peak_bytes = peak_bytes
        self.least_bytes = least_bytes
        proof = (
            "and none can do better"
            if least_bytes >= peak_bytes
            else (f"and every choice needs at least {least_bytes:,} bytes")
        )
        super().__init__(
            f"no choice of shardings fits into {limit:,} bytes per device: the smallest peak found"
            f" is {peak_bytes:,} bytes, {peak_bytes - limit:,} too many, {proof}",
            code="SHARDC-220",
            help="raise the memory limit, use more devices or stages, or use more microbatches",
        )


def solve(
    problem: Problem,
    *,
    time_limit_s: float = 60.0,
    seed: int = 0,
    gap: float = 0.0,
    progress: Callable[[Progress], None] | None = None,
    hint: Sequence[int] | None = None,
) -> Solution:
    """Looks for the cheapest choice that meets the limit, and proves how far it is from optimal.

    Phases: contract (exact); eliminate (exact where tables stay small, otherwise a bound and a
    start); price memory, if some choice breaks the limit; polish; certify with CP-SAT where the
    contracted problem is small. Ends as soon as the bound meets the objective.

    The result depends on `problem`, `seed` and `time_limit_s` only, as long as the clock does not
    run out first: phases stop by counted work. Any time: the wall-clock limit, or Ctrl-C
    (KeyboardInterrupt), ends the search with the best choice so far and its bound; the last line of
    the log says so.

    Args:
        time_limit_s: wall-clock limit, and measure of the work to spend; contraction always ends.
        gap: ends as soon as the choice is proven to cost at most this share above the optimum;
            1e-3 is several times faster than 0.0 where memory is tight.
        progress: called at each phase and at each improvement; may raise KeyboardInterrupt.
        hint: a choice to start from, feasible or not.
    Raises:
        InfeasibleError: SHARDC-220, no choice meets the limit; says by how many bytes
            (`LimitError`). SHARDC-221, the finite costs leave no choice at all.
        KeyboardInterrupt: interrupted before any feasible choice was found.
    """
    start_s = time.monotonic()
    problem.check()
    reduced = contract(problem)
    work = time_limit_s * CELLS_PER_SECOND
    search = Search(reduced, time_limit_s, progress, start_s, work, gap)
    search.note(
        f"{problem.num_nodes} nodes -> {len(reduced.costs)}, {len(problem.edges)} edges ->"
        f" {len(reduced.edges)}, {0 if reduced.memory is None else len(reduced.memory.base)} times"
    )
    interrupted = ""
    try:
        if hint is not None:
            search.offer(reduced.restrict(np.asarray(hint, np.int64)))
        _run(search, seed)
    except OutOfTimeError:
        interrupted = "stopped by the time limit"
    except KeyboardInterrupt:
        if search.best is None:
            raise
        interrupted = "interrupted"
    if interrupted:
        search.log.append(f"{interrupted} after {search.seconds():.2f} s")
    if search.best is None:
        _raise_infeasible(reduced, search)
    assert search.best is not None
    return _solution(problem, search)


def _run(search: Search, seed: int) -> None:
    """All phases after the contraction.

    Each round proves a bound, finds a choice, and removes every strategy that no choice better than
    the best one can take; what is left is smaller, so that the next round sees farther.
    """
    rng = random.Random(seed)
    cells = FIRST_CELLS
    prices: Floats | None = None
    while True:
        reduced = search.reduced
        if not reduced.costs:
            search.offer(np.zeros(0, np.int64))
            if search.best is None:
                search.least_bytes = search.least_peak or 0
            search.raise_bound(reduced.constant if search.best is not None else math.inf)
            return
        search.begin("bound")
        oracle = Oracle(reduced, search.check_time, max(cells, 40_000 * len(reduced.costs)))
        if reduced.memory is not None:
            prices = _meet_limit(oracle, search, prices)
            if search.lower_bound == math.inf:
                return
        bound, choice, slacks = oracle.minimise_both_ways(prices)
        search.work_left -= 4 * oracle.order.num_cells
        search.raise_bound(bound)
        search.offer(choice)
        if not search.closed() and search.lower_bound < math.inf:
            polish(oracle, search, prices, rng, 10)
        exact = "exact" if oracle.order.exact else "mini-buckets"
        search.note(f"{len(reduced.costs)} nodes, {exact}, {oracle.order.num_cells:,} cells")
        if search.closed() or search.lower_bound == math.inf:
            return
        spare = search.best_cost - bound - search.tolerance() / 2
        kept = [
            np.flatnonzero((slack <= spare) & fits)
            for slack, fits in zip(slacks, reduced.fitting_strategies(), strict=True)
        ]
        if not all(map(len, kept)):
            search.raise_bound(search.best_cost - search.tolerance() / 2)
            return
        removed = 1.0 - sum(map(len, kept)) / len(oracle.flat)
        if removed < 0.02:
            if oracle.order.exact or cells >= MOST_CELLS or search.work_left < 0:
                break
            cells *= 4
            continue
        search.begin("remove strategies")
        smaller = contract_further(reduced, kept)
        if prices is not None:
            prices = prices[np.searchsorted(reduced.times, smaller.times)]
        search.enter(smaller)
    _finish(oracle, search, prices, seed, rng)


def _finish(
    oracle: Oracle, search: Search, prices: Floats | None, seed: int, rng: random.Random
) -> None:
    """Closes what gap is left: CP-SAT where it can, local search until the budget is spent."""
    cells = sum(int(np.isfinite(table).sum()) for table in search.reduced.tables)
    if cells <= MOST_CELLS_FOR_CP_SAT:
        search.begin("certify")
        certify(search.reduced, search, deterministic_s=search.limit_s / 4, seed=seed)
        search.note(f"CP-SAT on {cells:,} pairs")
        if search.closed() or search.lower_bound == math.inf:
            return
    search.begin("polish")
    steps = polish(oracle, search, prices, rng, 1000)
    search.note(f"{steps} steps")


def _meet_limit(oracle: Oracle, search: Search, prices: Floats | None) -> Floats:
    """Prices the memory; looks for a choice within the limit by all means."""
    memory = search.reduced.memory
    assert memory is not None
    rounds = max(10, min(100, int(search.work_left / 4 / max(oracle.order.num_cells, 20_000))))
    if search.best is None:
        search.offer(oracle.minimise(None)[1])
    if search.best is None:
        least, _ = least_memory(oracle, search, 20)
        search.least_bytes = max(search.least_bytes, least)
        if least > memory.limit:
            search.raise_bound(math.inf)
            return np.zeros(len(memory.base))
    start = np.zeros(len(memory.base)) if prices is None else prices
    prices = price_memory(oracle, search, start, rounds)
    if search.best is None and search.lower_bound < math.inf:
        raise_until_it_fits(oracle, search, prices, rounds)
    search.note(f"{int((prices > 0).sum())} of {len(prices)} times have a price")
    return prices


def _raise_infeasible(reduced: Reduced, search: Search) -> None:
    memory = reduced.memory
    if memory is None or search.least_peak is None:
        raise InfeasibleError(
            "no choice of strategies has a finite cost: the constraints contradict each other",
            code="SHARDC-221",
            help="remove one of the sharding constraints",
        )
    raise LimitError(memory.limit, search.least_peak, min(search.least_bytes, search.least_peak))


def _solution(problem: Problem, search: Search) -> Solution:
    """Scores the best choice by the definition."""
    assert search.best is not None
    choice = tuple(search.best.tolist())
    score = evaluate(problem, choice)
    assert score.feasible, "the expanded choice must be what the contracted one was"
    bound = score.cost if search.optimal() else min(search.lower_bound, score.cost)
    return Solution(
        choice=choice,
        objective=score.cost,
        lower_bound=bound,
        feasible=True,
        optimal=search.optimal(),
        log=tuple(search.log),
    )

"""The way from a problem to a choice with a proven bound."""

import math
import random
import time
from collections.abc import Callable, Sequence

import numpy as np

from shardc.errors import InfeasibleError
from shardc.solver.certify import certify
from shardc.solver.contraction import Reduced, contract
from shardc.solver.oracle import Oracle
from shardc.solver.polish import polish
from shardc.solver.prices import least_memory, price_memory, raise_until_it_fits
from shardc.solver.problem import Floats, Problem, Progress, Solution, evaluate
from shardc.solver.search import OutOfTimeError, Search

MOST_CELLS_FOR_CP_SAT = 60_000  # pairs of strategies over all edges that CP-SAT is given
CELLS_PER_SECOND = 20_000_000  # turns the time limit into a budget of work; slower than machines are


class LimitError(InfeasibleError):
    """No choice meets the memory limit.

    Attributes:
        peak_bytes: smallest peak of any choice that was found.
        least_bytes: no choice has a smaller peak (proven).
    """

    def __init__(self, limit: int, peak_bytes: int, least_bytes: int) -> None:
        self.peak_bytes = peak_bytes
        self.least_bytes = least_bytes
        proof = "and none can do better" if least_bytes >= peak_bytes else (
            f"and every choice needs at least {least_bytes:,} bytes"
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
    progress: Callable[[Progress], None] | None = None,
    hint: Sequence[int] | None = None,
) -> Solution:
    """Looks for the cheapest choice that meets the limit, and proves how far it can be from optimal.

    Phases: contract (exact); eliminate (exact where tables stay small, otherwise a bound and a
    start); price memory, if some choice breaks the limit; polish; certify with CP-SAT where the
    contracted problem is small. Ends as soon as the bound meets the objective.

    The result depends on `problem`, `seed` and `time_limit_s` only, as long as the clock does not
    run out first: phases stop by counted work. Any time: the wall-clock limit, or Ctrl-C
    (KeyboardInterrupt), ends the search with the best choice so far and its bound; the last line of
    the log says so.

    Args:
        time_limit_s: wall-clock limit, and measure of the work to spend; contraction always ends.
        progress: called at each phase and at each improvement; may raise KeyboardInterrupt.
        hint: a choice to start from, feasible or not.
    Raises:
        InfeasibleError: SHARDC-220, no choice meets the limit, says by how many bytes (`LimitError`);
            SHARDC-221, the finite costs leave no choice at all.
        KeyboardInterrupt: interrupted before any feasible choice was found.
    """
    start_s = time.monotonic()
    problem.check()
    reduced = contract(problem)
    search = Search(reduced, time_limit_s, progress, start_s, time_limit_s * CELLS_PER_SECOND)
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
    return _solution(problem, reduced, search)


def _run(search: Search, seed: int) -> None:
    """All phases after the contraction."""
    reduced = search.reduced
    rng = random.Random(seed)
    if not reduced.costs:
        empty = np.zeros(0, np.int64)
        search.offer(empty)
        search.raise_bound(reduced.constant if search.best is not None else math.inf)
        return
    search.begin("eliminate")
    oracle = Oracle(reduced, search.check_time)
    bound, choice = oracle.minimise(None)
    search.raise_bound(bound)
    search.offer(choice)
    exact = "exact" if oracle.order.exact else "mini-buckets"
    search.note(f"{exact}, {oracle.order.num_cells:,} cells")
    if search.closed() or search.lower_bound == math.inf:
        return
    prices: Floats | None = None
    if reduced.memory is not None:
        prices = _meet_limit(oracle, search)
        if search.closed():
            return
    cells = sum(int(np.isfinite(table).sum()) for table in reduced.tables)
    if cells <= MOST_CELLS_FOR_CP_SAT:
        search.begin("certify")
        certify(reduced, search, deterministic_s=search.limit_s / 4, seed=seed)
        search.note(f"CP-SAT on {cells:,} pairs")
        if search.closed() or search.lower_bound == math.inf:
            return
    search.begin("polish")
    steps = polish(oracle, search, prices, rng)
    search.note(f"{steps} steps")


def _meet_limit(oracle: Oracle, search: Search) -> Floats:
    """Prices the memory; looks for a choice within the limit by all means."""
    search.begin("price memory")
    memory = search.reduced.memory
    assert memory is not None
    rounds = max(10, min(200, int(search.work_left / 3 / max(oracle.order.num_cells, 20_000))))
    prices = price_memory(oracle, search, rounds)
    if search.best is None:
        raise_until_it_fits(oracle, search, prices, rounds)
    if search.best is None:
        least, _ = least_memory(oracle, search, rounds)
        search.least_bytes = max(search.least_bytes, least)
    search.note(f"{int((prices > 0).sum())} times have a price")
    return prices


def _raise_infeasible(reduced: Reduced, search: Search) -> None:
    memory = reduced.memory
    if memory is None or search.least_peak is None:
        raise InfeasibleError(
            "no choice of strategies has a finite cost: the constraints contradict each other",
            code="SHARDC-221",
            help="remove one of the sharding constraints",
        )
    peak = search.least_peak[1]
    proven = peak if search.lower_bound == math.inf else max(search.least_bytes, 0)
    raise LimitError(memory.limit, peak, min(proven, peak))


def _solution(problem: Problem, reduced: Reduced, search: Search) -> Solution:
    """Expands the best choice and scores it by the definition."""
    assert search.best is not None
    choice = tuple(reduced.expand(search.best).tolist())
    score = evaluate(problem, choice)
    assert score.feasible, "the expanded choice must be what the contracted one was"
    bound = score.cost if search.closed() else min(search.lower_bound, score.cost)
    return Solution(
        choice=choice,
        objective=score.cost,
        lower_bound=bound,
        feasible=True,
        optimal=search.closed(),
        log=tuple(search.log),
    )

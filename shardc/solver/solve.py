"""From a problem to a choice with a proven bound."""

import itertools
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from shardc.errors import InfeasibleError
from shardc.solver.exact.certify import certify
from shardc.solver.exact.lagrangian import Oracle
from shardc.solver.exact.prices import least_memory, price_memory, raise_until_it_fits
from shardc.solver.exact.running_solve import OutOfTimeError, Search
from shardc.solver.interrupt import finish, is_finishing
from shardc.solver.problem.contraction import contract, contract_further
from shardc.solver.problem.problem import Floats, Problem, Progress, Solution, evaluate
from shardc.solver.wide.rounds import descend, is_wide, may_tabulate, refine
from shardc.solver.wide.single_changes import change_single_nodes
from shardc.solver.wide.unfolding import folded, prove_unfolded, search_folded

FREE, TIED, RELAXED = "free", "tied", "relaxed"  # the values of `equal_layers`

MOST_CELLS_FOR_CP_SAT = 60_000  # pairs of strategies over all edges that CP-SAT may get
WORK_PER_PAIR = 1_000  # of building the model, whatever CP-SAT makes of it
FIRST_CELLS = 60_000_000  # of the tables of one pass, 0.3 s
MOST_CELLS = 16 * FIRST_CELLS
MOST_RESTARTS = 6  # with times added; the next one limits memory at all times
CELLS_PER_SECOND = 20_000_000  # converts an effort into work; lower than the rate of real machines
LEAST_CELLS = 1_000_000
REFINING_FIRST = 0.1  # share of the remaining work that refines the choice in the first round
REFINING = 0.02  # and in later rounds, after strategies were removed
PASSES = 3  # the budget of work must cover at least this many


class LimitError(InfeasibleError):
    """No choice meets the memory limit.

    Attributes:
        peak_bytes: smallest peak of any choice found; None: there was no search for one.
        least_bytes: proven: no choice has a smaller peak; at most the limit: it may still be met.
        missing_bytes: excess of the smallest peak, or of `least_bytes` without a search.
        stage: the one that does not fit, once it is known.
    """

    def __init__(self, limit: int, peak_bytes: int | None, least_bytes: int) -> None:
        self.stage: int | None = None
        self.peak_bytes = peak_bytes
        self.least_bytes = least_bytes
        self.missing_bytes = (least_bytes if peak_bytes is None else peak_bytes) - limit
        found = "the smallest peak found is"
        if peak_bytes is None:
            found, peak_bytes, proof = "every choice needs at least", least_bytes, ""
        elif least_bytes >= peak_bytes:
            proof = ", and none can do better"
        elif least_bytes > limit:
            proof = f", and every choice needs at least {least_bytes:,} bytes"
        else:
            proof = ", which is not proven to be the smallest possible"
        super().__init__(
            f"no choice of shardings fits into {limit:,} bytes per device: {found}"
            f" {peak_bytes:,} bytes, {peak_bytes - limit:,} too many{proof}",
            code="SHARDC-220",
            help="raise the memory limit, use more devices or stages, or use more microbatches",
        )


def solve(
    problem: Problem,
    *,
    time_limit_s: float = 60.0,
    effort_s: float | None = None,
    seed: int = 0,
    gap: float = 0.0,
    progress: Callable[[Progress], None] | None = None,
    hint: Sequence[int] | None = None,
    equal_layers: str = FREE,
    cutoff: float = math.inf,
) -> Solution:
    """Searches for the cheapest choice within the limit, and proves how far it is from optimal.

    If equal layers are to share one choice, a folded problem is solved first, whose answer is a
    choice of the whole problem (`shardc.solver.wide.unfolding`).

    Phases: contract (exact); eliminate (exact while tables stay small, otherwise a bound and a
    start); price memory, if some choice exceeds the limit; polish; certify with CP-SAT if the
    contracted problem is small. Ends as soon as the bound meets the objective. A choice that is not
    proven optimal cannot be improved by changing the strategy of a single node.

    The result depends only on `problem`, `hint`, `seed`, `gap` and `effort_s`, as long as the clock
    does not run out first: phases stop by counted work. The wall-clock limit, or Ctrl-C
    (KeyboardInterrupt), ends the search at any time with the best choice so far and its bound; the
    last line of the log says so.

    Args:
        time_limit_s: wall-clock limit; contraction always completes.
        effort_s: work to spend, in seconds of a slow machine; None: as much as the time limit.
        gap: ends as soon as the choice is proven to cost at most this share above the optimum;
            1e-3 is several times faster than 0.0 if memory is tight.
        progress: called at each phase and at each improvement; may raise KeyboardInterrupt.
        hint: a choice to start from, feasible or not.
        equal_layers: "free": every node has its own choice. "tied": the nodes of equal layers
            share one in the answer (unless no such choice was found). "relaxed": in large problems
            they share one at first, and differ if that is necessary to meet `gap`.
            The bound is that of the whole problem in any case.
        cutoff: ends as soon as there is a choice and it is proven that none costs less than this.
    Raises:
        InfeasibleError: SHARDC-220, no choice meets the limit; says by how many bytes
            (`LimitError`). SHARDC-221, no choice has a finite cost. SHARDC-222, none
            was found in time.
        KeyboardInterrupt: interrupted before any feasible choice was found.
    """
    start_s = time.monotonic()
    if is_finishing():
        time_limit_s = 0.0
    problem.check()
    assert equal_layers in (FREE, TIED, RELAXED), equal_layers
    effort_s = time_limit_s if effort_s is None else effort_s
    work = effort_s * CELLS_PER_SECOND
    search = Search(problem, time_limit_s, effort_s, progress, start_s, work, gap, cutoff=cutoff)
    interrupted = ""
    try:
        if hint is not None:
            search.offer_whole(np.asarray(hint, np.int64))
        _search(search, seed, equal_layers)
        if search.best is not None and not search.optimal() and equal_layers != TIED:
            search.begin("change single nodes")
            changed = change_single_nodes(
                problem, search.live, search.whole, search.best, search.check_time
            )
            search.offer_whole(changed)
            search.note("no other strategy of one node alone is better")
    except OutOfTimeError:
        interrupted = "stopped by the time limit"
    except KeyboardInterrupt:
        if search.best is None:
            raise
        finish()
        interrupted = "interrupted"
    if interrupted:
        search.log.append(f"{interrupted} after {search.seconds():.2f} s")
    if search.best is None:
        _raise_infeasible(problem, search)
    assert search.best is not None
    return replace(_solution(problem, search), cut_short=bool(interrupted))


def _search(search: Search, seed: int, equal_layers: str) -> None:
    """Searches the folded problem, if there is one, and the whole one if that is not enough."""
    layers = None
    if equal_layers != FREE:
        layers = folded(search.problem, asked=equal_layers == TIED)
    if layers is not None:
        found = search_folded(search, layers, _run, seed)
        if found is not None:
            prove_unfolded(search, layers, found, seed, relax=equal_layers == RELAXED)
            if equal_layers == TIED or search.settled() or search.work_left < 0:
                return
    _run(search, seed, np.zeros(len(search.live.times)))


def _run(search: Search, seed: int, prices: Floats) -> None:
    """Solves relaxations that limit memory at a few times only, until the answer fits at all times.

    Nodes that are not live at those times hold no relevant memory, so they contract far better.

    Args:
        prices: of all times; changed to the last ones used.
    """
    rng = random.Random(seed)
    times: set[int] = set()
    for restart in itertools.count():
        search.begin("contract")
        search.enter(contract(search.problem, search.live.only(times)))
        search.note(
            f"{search.problem.num_nodes} nodes -> {len(search.reduced.costs)},"
            f" {len(search.problem.edges)} edges -> {len(search.reduced.edges)},"
            f" {len(search.reduced.times)} of {len(search.live.times)} times"
        )
        if is_wide(search):
            times |= set(search.live.times.tolist())
            descend(search, prices, rng)
            too_wide = is_wide(search) and not may_tabulate(search)
            if search.settled() or (search.best is not None and too_wide):
                return
        if _solve_relaxation(search, times, prices, rng, seed):
            return
        times |= search.missed if restart < MOST_RESTARTS else set(search.live.times.tolist())


def _solve_relaxation(
    search: Search, times: set[int], prices: Floats, rng: random.Random, seed: int
) -> bool:
    """Rounds of: prove a bound, find a choice, remove all strategies that no better choice uses.

    The rest shrinks each time, so the next round gets further.

    Args:
        times: at which `search.reduced` limits memory.
        prices: of all times; changed to the best found.
    Returns:
        Whether the search is over; if not, memory must be limited at `search.missed`, too.
    """
    most_cells = int(min(MOST_CELLS, max(search.work_left / PASSES, LEAST_CELLS)))
    cells = min(FIRST_CELLS, most_cells)
    share = REFINING_FIRST
    while True:
        reduced = search.reduced
        if not reduced.costs:
            fits = reduced.memory is None or bool(
                (reduced.memory.base <= reduced.memory.limit).all()
            )
            search.offer(np.zeros(0, np.int64))
            if not fits and search.best is None:
                search.least_bytes = max(search.least_bytes, search.least_peak or 0)
            search.raise_bound(reduced.constant if fits else math.inf)
            return search.settled() or not search.missed
        search.begin("bound")
        budget = int(min(max(1.0, len(reduced.costs) / 1000) * cells, most_cells))
        if reduced.memory is not None:
            coarse = Oracle(reduced, search.check_time, budget // 8)
            if coarse.order.num_cells > FIRST_CELLS // 20:
                prices[reduced.times] = _meet_limit(coarse, search, prices[reduced.times])
                if search.settled():
                    return True
                if search.missed - times:
                    return False
        oracle = Oracle(reduced, search.check_time, budget)
        here = prices[reduced.times] if reduced.memory is not None else None
        for bound, choice in oracle.choices_while_tuning(here):
            search.raise_bound(bound)
            search.offer(choice)
        if here is not None and not search.settled():
            prices[reduced.times] = here = _meet_limit(oracle, search, here)
        if search.settled():
            return True
        if search.missed - times:
            return False
        bound, choice, slacks = oracle.minimise_both_ways(here)
        search.work_left -= 4 * oracle.order.num_cells
        search.raise_bound(bound)
        search.offer(choice)
        if not search.settled():
            refine(search, prices, rng, share)
            share = REFINING
        exact = "exact" if oracle.order.exact else "mini-buckets"
        search.note(f"{len(reduced.costs)} nodes, {exact}, {oracle.order.num_cells:,} cells")
        if search.settled():
            return True
        if search.missed - times:
            return False
        spare = search.best_cost - bound - search.tolerance() / 2
        kept = [
            np.flatnonzero((slack <= spare) & fits)
            for slack, fits in zip(slacks, reduced.fitting_strategies(), strict=True)
        ]
        if not all(map(len, kept)):
            search.raise_bound(search.best_cost - search.tolerance() / 2)
            return True
        removed = 1.0 - sum(map(len, kept)) / len(oracle.flat)
        last = oracle.order.exact or cells >= most_cells or search.work_left < 0
        if removed < 0.02 and last:
            _finish(search, prices, seed, rng)
            return search.settled() or not search.missed - times
        if removed < 0.3 and not last:
            cells = min(4 * cells, most_cells)
        if removed >= 0.02:
            search.begin("remove strategies")
            search.enter(contract_further(reduced, kept))


def _finish(search: Search, prices: Floats, seed: int, rng: random.Random) -> None:
    """Closes the remaining gap: CP-SAT if possible, local search until the budget is spent."""
    cells = sum(int(np.isfinite(table).sum()) for table in search.reduced.tables)
    if cells <= MOST_CELLS_FOR_CP_SAT and WORK_PER_PAIR * cells <= search.work:
        search.begin("certify")
        certify(search.reduced, search, deterministic_s=search.effort_s / 4, seed=seed)
        search.note(f"CP-SAT on {cells:,} pairs")
        if search.settled():
            return
    search.begin("refine")
    refine(search, prices, rng, 1.0)
    search.note("the budget of work is spent")


def _meet_limit(oracle: Oracle, search: Search, prices: Floats) -> Floats:
    """Prices the memory; searches for a choice within the limit by all means."""
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
            return prices
    prices = price_memory(oracle, search, prices, rounds)
    if search.best is None and not search.missed:
        raise_until_it_fits(oracle, search, prices, rounds)
    search.note(f"{int((prices > 0).sum())} of {len(prices)} times have a price")
    return prices


def _raise_infeasible(problem: Problem, search: Search) -> None:
    if search.least_peak is None and search.lower_bound < math.inf:
        raise InfeasibleError(
            f"no choice of strategies was found in {search.seconds():.0f} seconds",
            code="SHARDC-222",
            help="give the planner more time",
        )
    if problem.usage_limit is None or search.least_peak is None:
        raise InfeasibleError(
            "no choice of strategies has a finite cost: the constraints contradict each other",
            code="SHARDC-221",
            help="remove one of the sharding constraints",
        )
    least = min(search.least_bytes, search.least_peak)
    raise LimitError(problem.usage_limit, search.least_peak, least)


def _solution(problem: Problem, search: Search) -> Solution:
    """Scores the best choice by definition."""
    assert search.best is not None
    choice = tuple(search.best.tolist())
    score = evaluate(problem, choice)
    assert score.feasible, "the expanded choice must be what the contracted one was"
    # The minimum that every choice pays is a bound, too, if the search stopped before a better one.
    least = sum(cost.min() for cost in problem.costs) + sum(t.min() for t in problem.edge_costs)
    bound = score.cost if search.optimal() else min(max(search.lower_bound, least), score.cost)
    return Solution(
        choice=choice,
        objective=score.cost,
        lower_bound=float(bound),
        feasible=True,
        optimal=search.optimal(),
        log=tuple(search.log),
        num_folded=search.num_folded,
        folded_objective=search.folded_cost,
    )

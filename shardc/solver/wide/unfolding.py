"""Solves equal layers as one first, then separately: an early choice, and the cost of sharing.

The nodes of equal layers are folded into one set (`shardc.solver.problem.shared_choices`), which is
searched like any problem. Its answer, unfolded, is a choice of the whole problem. The bound is
proven on the whole problem: its memory is limited only at the times that the folded search
priced, which is a relaxation, and messages are passed at these prices.
"""

import random
from collections.abc import Callable

import numpy as np

from shardc.errors import InfeasibleError
from shardc.solver.exact.running_solve import OutOfTimeError, Search
from shardc.solver.problem.contraction import contract
from shardc.solver.problem.network import Network
from shardc.solver.problem.problem import Floats, Problem, evaluate
from shardc.solver.problem.repeats import equal_layers
from shardc.solver.problem.shared_choices import Folded, fold
from shardc.solver.wide.descent import Descent
from shardc.solver.wide.quotient import groups_of, warm_messages
from shardc.solver.wide.trws import CELLS_PER_NODE

LEAST_NODES = 8_000  # below, the whole problem is as fast: measured at 3,600 and 6,600 nodes
MOST_LEFT = 0.5  # share of the nodes that may remain for optional folding
FOR_FOLDED = 0.5  # share of work and time for the folded problem
LEAST_SHARE = 0.1  # of that, however much smaller it is than the whole: its scans are cheap
GAP_OF_FOLDED = 0.5  # share of the requested gap that is left to it
LEAST_PASSES = 15  # of messages over all nodes; fewer prove nothing useful
MOST_PASSES = 100
UNLIMITED = 0.2  # share of the work for the problem without a limit, if the answer fits
PASSES_TO_FIT = 20  # if there is no choice by then, memory is tight
Run = Callable[[Search, int, Floats], None]


def folded(problem: Problem, *, asked: bool) -> Folded | None:
    """`problem` with equal layers folded; None if that does not pay.

    Args:
        asked: the layers must agree, however little it saves.
    """
    if not asked and problem.num_nodes < LEAST_NODES:
        return None
    leaders = equal_layers(problem)
    num_left = int((leaders == np.arange(len(leaders))).sum())
    if num_left > (problem.num_nodes - 1 if asked else MOST_LEFT * problem.num_nodes):
        return None
    return fold(problem, leaders)


def search_folded(search: Search, layers: Folded, run: Run, seed: int) -> Floats | None:
    """Searches the folded problem, and adopts its answer for the whole one.

    Args:
        run: searches a problem from the prices of its times, which it changes.
    Returns:
        The prices; None if no choice was found in which equal layers agree.
    """
    search.begin("fold")
    search.log.append(
        f"fold: {search.problem.num_nodes} nodes -> {layers.problem.num_nodes},"
        f" {len(search.problem.edges)} edges -> {len(layers.problem.edges)}"
    )
    share = max(layers.problem.num_nodes / search.problem.num_nodes, LEAST_SHARE)
    inner = Search(
        layers.problem,
        FOR_FOLDED * max(search.deadline_s - search.start_s - search.seconds(), 0.0),
        FOR_FOLDED * share * search.effort_s,
        None,
        search.start_s + search.seconds(),
        FOR_FOLDED * share * search.work_left,
        GAP_OF_FOLDED * search.gap,
    )
    prices = np.zeros(len(inner.live.times))
    work = inner.work_left
    try:
        _search_unlimited(inner, seed)
        if not inner.settled():
            run(inner, seed, prices)
    except OutOfTimeError:
        inner.log.append(f"stopped by the time limit after {inner.seconds():.2f} s")
    except InfeasibleError as error:  # equal layers must differ
        inner.log.append(error.message)
    finally:
        search.work_left -= work - inner.work_left
        search.log += [f"folded: {line}" for line in inner.log]
        if inner.best is not None:
            whole = layers.expand(inner.best)
            search.offer_whole(whole)
            search.num_folded = search.problem.num_nodes - layers.problem.num_nodes
            search.folded_cost = evaluate(search.problem, whole).cost
    if inner.best is None:
        return None
    return prices if inner.proving is None else inner.proving


def _search_unlimited(search: Search, seed: int) -> None:
    """Searches without a memory limit, as long as the choices found fit: that problem is far
    smaller, and enough if memory is not tight."""
    search.begin("messages")
    search.enter(contract(search.problem, search.live.only(set())))
    if search.reduced.costs:
        none = np.zeros(0)
        descent = Descent(Network(search.reduced), search, none, random.Random(seed))
        descent.prove(PASSES_TO_FIT, look=True)
        descent.report()
        if search.best is not None:
            descent.prove(MOST_PASSES, look=True)
            descent.polish(UNLIMITED * search.work_left)
            descent.report()
    else:
        search.offer(np.zeros(0, np.int64))
        search.raise_bound(search.reduced.constant)
    search.note(f"{len(search.reduced.costs)} nodes, as if memory were unlimited")


def prove_unfolded(
    search: Search, layers: Folded, prices: Floats, seed: int, *, relax: bool
) -> None:
    """A bound for the whole problem.

    Args:
        prices: of all times.
        relax: whether to accept a better choice in which equal layers do not agree.
    """
    if search.work_left < LEAST_PASSES * CELLS_PER_NODE * search.problem.num_nodes / 2:
        return
    search.begin("unfold")
    best, cost = search.best, search.best_cost
    times = set(np.flatnonzero(prices).tolist())
    search.enter(contract(search.problem, search.live.only(times)))
    reduced = search.reduced
    if not reduced.costs:
        search.raise_bound(reduced.constant)
    else:
        network = Network(reduced)
        descent = Descent(network, search, prices[reduced.times], random.Random(seed))
        costs = network.priced(descent.prices)
        groups = groups_of(network, layers.leaders)
        descent.messages, work = warm_messages(network, costs, groups)
        search.work_left -= work
        try:
            descent.prove(MOST_PASSES, look=relax)
            if relax and not search.settled():
                descent.polish(search.work_left / 2)
        finally:
            descent.report()
    if not relax:
        search.best, search.best_cost = best, cost
    search.note(f"{len(reduced.costs)} nodes, {len(reduced.times)} times have a price")

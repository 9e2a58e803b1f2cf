"""Memory prices: the Lagrangian bound, and choices that almost fit.

The dual function is concave and piecewise linear in the prices; it is maximised by Kelley's cutting
planes inside a box around the best prices so far (Kelley, J. SIAM 8(4), 1960; box step: Marsten,
Hogan, Blankenship, Operations Research 23(3), 1975).
"""

import math
from dataclasses import dataclass

import numpy as np

from shardc.solver.exact.lagrangian import Oracle
from shardc.solver.exact.running_solve import Search
from shardc.solver.problem.problem import Floats, Ints

HIGHEST = 1e15  # price, relative to the first ones, at which costs vanish in rounding
MOST_STALLED = 6  # consecutive rounds that close less than 1 % of the open gap


@dataclass
class Cut:
    """The oracle's answer for some prices: value(prices) <= cost + prices * over.

    Holds if the oracle is exact; otherwise it is a guess, which at worst costs rounds.
    """

    cost: float
    over: Floats  # bytes above the limit at each kept time


def price_memory(oracle: Oracle, search: Search, start: Floats, most_rounds: int) -> Floats:
    """Raises the bound and offers choices; returns the best prices (per byte and kept time).

    Args:
        start: initial prices; zeros if nothing is known.
    """
    memory = oracle.reduced.memory
    assert memory is not None
    num_times = len(memory.base)
    times: list[int] = np.flatnonzero(start > 0).tolist()
    cuts: list[Cut] = []
    best = prices = start
    best_value, stalled = -math.inf, 0
    radius = float(start.max()) * 0.1 if times else _first_radius(oracle, memory.limit)
    for round_ in range(most_rounds):
        value, choice = oracle.minimise(prices)
        search.work_left -= oracle.order.num_cells
        search.raise_bound(value)
        search.offer(choice)
        profile = memory.profile(choice)
        if not math.isfinite(value):
            break
        over = (profile - memory.limit).astype(np.float64)
        cuts.append(Cut(value - float(prices @ over), over))
        new = [t for t in memory.peaks(profile, 8).tolist() if t not in times]
        times += new
        if not times or search.closed():
            break
        open_gap = min(search.best_cost - max(best_value, value), abs(value))
        stalled = 0 if new or value > best_value + 0.01 * open_gap else stalled + 1
        if value > best_value:
            if best_value > -math.inf and np.abs(prices - best).max() > 0.9 * radius:
                radius *= 2.0
            best, best_value = prices, value
        elif not new:
            radius *= 0.5
        if stalled == MOST_STALLED:
            break
        prices, promised = _next_prices(cuts, times, best, radius, num_times)
        if promised - best_value <= max(0.02 * open_gap, 1e-9 * abs(best_value)) and not new:
            if np.abs(prices - best).max() < 0.9 * radius or round_ > most_rounds // 2:
                break
            radius *= 4.0
    return best


def _first_radius(oracle: Oracle, limit: int) -> float:
    """A price at which the limit weighs about as much as the spread of all node costs."""
    spread = sum(float(cost.max() - cost.min()) for cost in oracle.reduced.costs)
    spread += sum(float(t[np.isfinite(t)].max()) for t in oracle.reduced.tables)
    return max(spread, 1e-30) / max(limit, 1) * 0.1


def _next_prices(
    cuts: list[Cut], times: list[int], best: Floats, radius: float, num_times: int
) -> tuple[Floats, float]:
    """Prices that maximise the lower envelope of all cuts inside the box, and that value."""
    from ortools.linear_solver import pywraplp  # type: ignore[import-untyped]  # has no stubs

    solver = pywraplp.Solver.CreateSolver("GLOP")
    unit_over = max(max(float(np.abs(cut.over[times]).max()) for cut in cuts), 1.0)
    unit_cost = max(max(abs(cut.cost) for cut in cuts), radius * unit_over, 1e-300)
    unit_price = unit_cost / unit_over
    value = solver.NumVar(-solver.infinity(), solver.infinity(), "value")
    price = [
        solver.NumVar(
            max(best[t] - radius, 0.0) / unit_price, (best[t] + radius) / unit_price, f"price_{t}"
        )
        for t in times
    ]
    # The value is at most the cost of each choice so far at these prices.
    for cut in cuts:
        row = solver.Constraint(-solver.infinity(), cut.cost / unit_cost)
        row.SetCoefficient(value, 1.0)
        for t, variable in zip(times, price, strict=True):
            row.SetCoefficient(variable, -cut.over[t] / unit_over)
    solver.Maximize(value)
    status = solver.Solve()
    assert status == pywraplp.Solver.OPTIMAL, "a bounded linear program with a feasible point"
    found = np.zeros(num_times)
    found[times] = [max(variable.solution_value(), 0.0) * unit_price for variable in price]
    return found, value.solution_value() * unit_cost


def raise_until_it_fits(oracle: Oracle, search: Search, prices: Floats, most_rounds: int) -> bool:
    """Raises prices at violated peaks, ever faster, until a choice fits."""
    memory = oracle.reduced.memory
    assert memory is not None
    start = max(float(prices.max()), _first_radius(oracle, memory.limit) * 1e-3)
    factor = 1.05
    prices = prices.copy()
    for _ in range(most_rounds):
        _, choice = oracle.minimise(prices)
        if search.offer(choice) or int(memory.profile(choice).max()) <= memory.limit:
            return True
        profile = memory.profile(choice)
        for t in memory.peaks(profile, len(profile)).tolist():
            prices[t] = max(prices[t] * factor, start * (factor - 1.0))
        factor = min(factor * 1.1, 4.0)
        if prices.max() > HIGHEST * start:
            break
    return False


def least_memory(oracle: Oracle, search: Search, most_rounds: int) -> tuple[int, Ints]:
    """Searches for the choice with the smallest peak, ignoring costs.

    Returns:
        A lower bound (bytes) on the peak of every allowed choice, and the choice found.
    """
    memory = oracle.reduced.memory
    assert memory is not None
    weights = np.zeros(len(memory.base))
    weights[int(memory.profile(np.zeros(len(oracle.sizes), np.int64)).argmax())] = 1.0
    total = np.zeros(len(weights))
    bound = -math.inf
    best: Ints | None = None
    best_peak = 0
    for round_ in range(most_rounds):
        value, choice = oracle.least_usage(weights)
        bound = max(bound, value)
        profile = memory.profile(choice)
        peak = int(profile.max())
        search.offer(choice)
        if best is None or peak < best_peak:
            best, best_peak = choice, peak
        if best_peak <= max(memory.limit, bound + 0.5) or bound > memory.limit:
            break
        # Multiplicative weights on the violated times.
        total += (profile - memory.limit) / max(peak - memory.limit, 1)
        logits = 4.0 * total / math.sqrt(round_ + 1.0)
        weights = np.exp(logits - logits.max())
        weights /= weights.sum()
    assert best is not None
    return math.ceil(bound - 1e-6 * abs(bound)), best

"""Large neighbourhoods: re-choose a ball of nodes exactly, memory priced, everything else held."""

import random

import numpy as np

from shardc.solver.oracle import Oracle
from shardc.solver.problem import Floats
from shardc.solver.search import Search

BALL_SIZES = (20, 60, 150, 400, 1200)
MOST_CELLS_OF_A_BALL = 20_000


def polish(
    oracle: Oracle, search: Search, prices: Floats | None, rng: random.Random, most_steps: int
) -> int:
    """Improves the best choice here; returns the number of steps.

    Ends when the budget of work is spent, or after `most_steps` steps in a row without a gain.
    """
    memory = oracle.reduced.memory
    steps = idle = 0
    gains = [1.0] * len(BALL_SIZES)
    while search.here is not None and search.work_left > 0 and idle < most_steps:
        if search.closed():
            break
        search.check_time()
        steps += 1
        idle += 1
        pick = rng.choices(range(len(BALL_SIZES)), gains)[0]
        ball = _ball(oracle, BALL_SIZES[pick], rng)
        here = prices
        if prices is not None:
            here = prices * (rng.lognormvariate(0.0, 0.7) if rng.random() > 0.2 else 0.0)
        before = search.here_cost
        for _ in range(4):
            choice, work = oracle.improve(
                oracle.costs(here), search.here, ball, MOST_CELLS_OF_A_BALL, rng
            )
            search.work_left -= work + len(oracle.flat)
            if search.offer(choice) or memory is None or here is None:
                break
            over = memory.peaks(memory.profile(choice), len(memory.base))
            if len(over) == 0:
                break
            start = max(float(here.max()), 1e-3 * abs(before) / memory.limit)
            here = here.copy()
            here[over] = np.maximum(here[over] * 1.5, start * 0.5)
        gain = (before - search.here_cost) / max(abs(before), 1e-300)
        gains[pick] = max(0.9 * gains[pick], 0.05, min(gain * 1e5, 3.0))
        if gain > 1e-7:
            idle = 0
    return steps


def _ball(oracle: Oracle, size: int, rng: random.Random) -> list[int]:
    """About `size` nodes around a random one, breadth first."""
    start = rng.randrange(len(oracle.sizes))
    seen = {start}
    order = [start]
    for v in order:
        if len(order) >= size:
            break
        near: list[int] = [u for u, _ in oracle.near(v) if u not in seen]
        rng.shuffle(near)
        for u in near[:16]:
            seen.add(u)
            order.append(u)
    return sorted(order[:size])

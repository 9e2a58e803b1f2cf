"""Remembered answers: equal problems with equal requests have equal answers."""

import hashlib
from collections import OrderedDict
from dataclasses import replace
from typing import Any

from shardc.solver.problem.problem import Problem, Solution, most_peak
from shardc.solver.solve import solve

MOST_KNOWN = 256

_known: OrderedDict[bytes, Solution] = OrderedDict()


def solve_once(problem: Problem, *, time_limit_s: float, **asked: Any) -> Solution:
    """Like `solve`, but returns a remembered answer if there is one, unless the clock or Ctrl-C cut
    its search short. Shapes of a pipeline share stages,
    and kinds of layers may have equal costs.

    Args:
        asked: arguments of `solve`; everything else the answer depends on.
    """
    problem = _without_idle_limit(problem)
    key = _digest(problem, asked)
    found = _known.get(key)
    if found is None:
        found = solve(problem, time_limit_s=time_limit_s, **asked)
        if found.cut_short:
            return found
    _known.pop(key, None)  # the last of the order, whatever other threads plan meanwhile
    _known[key] = found
    if len(_known) > MOST_KNOWN:
        _known.popitem(last=False)
    return found


def _without_idle_limit(problem: Problem) -> Problem:
    """The problem without its limit of memory and what is held, if no choice exceeds the limit or
    there is none: schedules that hold more or fewer microbatches then share an answer."""
    if problem.usage_limit is not None and most_peak(problem) > problem.usage_limit:
        return problem
    return replace(problem, usages=(), intervals=(), usage_limit=None, more_intervals={})


def _digest(problem: Problem, asked: dict[str, Any]) -> bytes:
    digest = hashlib.blake2b(repr(sorted(asked.items())).encode(), digest_size=20)
    shape = [list(map(len, problem.costs)), list(map(tuple, problem.edges))]
    live = [list(map(tuple, problem.intervals)), sorted(problem.more_intervals.items())]
    digest.update(repr((shape, live, problem.usage_limit)).encode())
    for array in (*problem.costs, *problem.usages):
        digest.update(array.tobytes())
    tables = {id(table): table for table in problem.edge_costs}  # many edges share a table
    names = {key: hashlib.blake2b(t.tobytes(), digest_size=20) for key, t in tables.items()}
    for table in problem.edge_costs:
        digest.update(names[id(table)].digest())
    return digest.digest()

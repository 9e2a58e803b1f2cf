"""The best of what several choices of a problem have to offer."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shardc.solver.problem.problem import Floats, Problem, Solution
from shardc.solver.solve import solve


def combine(problem: Problem, found: Sequence[Solution], **asked: Any) -> Solution:
    """The cheapest choice that takes the strategy of each node from one of several answers: never
    worse than the best of them, and often better, because two searches rarely fail at the same
    nodes. (Fusion moves: Lempitsky, Rother, Roth, Blake, IEEE PAMI 32(8), 2010.)

    Nodes on which all answers agree have one strategy left, so contraction leaves little to solve.
    Its bound is the highest of the answers': what is proven about the mixtures says nothing about
    other choices.

    Args:
        asked: arguments of `solve`, except the hint.
    """
    best = min(found, key=lambda each: each.objective)
    bound = max(each.lower_bound for each in found)
    mixed = solve(_only(problem, found), hint=best.choice, **asked)
    optimal = any(each.optimal for each in found)
    return replace(mixed, lower_bound=min(bound, mixed.objective), optimal=optimal)


def _only(problem: Problem, found: Sequence[Solution]) -> Problem:
    """The problem in which no node has another strategy than in one of the answers."""
    costs: list[Floats] = []
    for node, own in enumerate(problem.costs):
        known = sorted({each.choice[node] for each in found})
        left = np.full_like(own, math.inf)
        left[known] = own[known]
        costs.append(left)
    return replace(problem, costs=costs)

"""Stands in for the solver: any choice that is allowed, whatever it costs."""

from typing import Any

import numpy as np

from shardc.solver.problem.problem import Problem, Solution, evaluate

RESTARTS = 20


def random_solver(seed: int) -> Any:
    """A function with the arguments of `shardc.solver.solve`."""
    random = np.random.default_rng(seed)

    def solve(problem: Problem, *, hint: Any, **_: Any) -> Solution:
        for _ in range(RESTARTS):
            choice = _constructed(problem, random)
            if choice is not None:
                break
        else:
            choice = list(hint)
        found = evaluate(problem, choice)
        assert found.feasible
        return Solution(tuple(choice), found.cost, 0.0, feasible=True, optimal=False)

    return solve


def _constructed(problem: Problem, random: np.random.Generator) -> list[int] | None:
    """One strategy per node in order, each allowed by those before; None at a dead end."""
    before: list[list[tuple[int, Any]]] = [[] for _ in problem.costs]
    for (u, v), table in zip(problem.edges, problem.edge_costs, strict=True):
        if u < v:
            before[v].append((u, table))
        elif v < u:
            before[u].append((v, table.T))
        else:
            before[u].append((-1, np.diagonal(table)[None]))
    choice: list[int] = []
    for node, costs in enumerate(problem.costs):
        allowed = np.isfinite(costs)
        for other, table in before[node]:
            allowed = allowed & np.isfinite(table[choice[other] if other >= 0 else 0])
        options = np.flatnonzero(allowed)
        if len(options) == 0:
            return None
        choice.append(int(options[random.integers(len(options))]))
    return choice

"""CP-SAT on the contracted problem: proves optimality, or closes the last per mille."""

import math

import numpy as np

from shardc.solver.exact.running_solve import Search
from shardc.solver.interrupt import solve_interruptibly
from shardc.solver.problem.problem import Floats
from shardc.solver.problem.reduced import Reduced


def certify(
    reduced: Reduced, search: Search, *, deterministic_s: float, seed: int, most_rounds: int = 20
) -> None:
    """Solves `reduced` with CP-SAT, offers the choices it finds, and raises the bound.

    Edges use the marginal encoding (the choices of a pair add up to the choice of each node), which
    is far stronger than implications. Memory rows are added when a choice violates them.
    """
    from ortools.sat.python import cp_model

    memory = reduced.memory
    model = cp_model.CpModel()
    unit = _unit(reduced, search)
    choose: list[list[cp_model.IntVar]] = []
    objective: list[tuple[cp_model.IntVar, int]] = []
    offset = reduced.constant

    def add_costs(variables: list[cp_model.IntVar], costs: Floats) -> None:
        nonlocal offset
        least = float(costs.min())
        offset += least
        for variable, cost in zip(variables, costs.tolist(), strict=True):
            steps = math.floor((cost - least) / unit)
            if steps:
                objective.append((variable, steps))

    # Each node takes exactly one of its strategies.
    for v, cost in enumerate(reduced.costs):
        choose.append([model.new_bool_var(f"choose_{v}_{s}") for s in range(len(cost))])
        model.add_exactly_one(choose[v])
        add_costs(choose[v], cost)
    # Each edge takes exactly one pair, and its marginals are the choices of its two nodes.
    for (u, v), table in zip(reduced.edges, reduced.tables, strict=True):
        allowed = np.isfinite(table)
        pair = {
            (p, q): model.new_bool_var(f"pair_{u}_{p}_{v}_{q}")
            for p, q in np.argwhere(allowed).tolist()
        }
        for p in range(table.shape[0]):
            model.add(
                sum(pair[p, q] for q in range(table.shape[1]) if allowed[p, q]) == choose[u][p]
            )
        for q in range(table.shape[1]):
            model.add(
                sum(pair[p, q] for p in range(table.shape[0]) if allowed[p, q]) == choose[v][q]
            )
        add_costs(list(pair.values()), table[allowed])
    model.minimize(sum(steps * variable for variable, steps in objective))
    rows: set[int] = set()

    def add_row(t: int) -> None:
        """The live nodes at time t stay within the limit."""
        assert memory is not None
        rows.add(t)
        lengths = np.diff(np.append(memory.term_cell, len(memory.bytes)))
        terms = []
        for i in np.flatnonzero((memory.lo <= t) & (t < memory.hi)).tolist():
            a = int(memory.term_cell[i])
            use = memory.bytes[a : a + int(lengths[i])].tolist()
            terms += [b * x for b, x in zip(use, choose[memory.term_node[i]], strict=True) if b]
        model.add(sum(terms) <= memory.limit - int(memory.base[t]))

    left = deterministic_s
    for _ in range(most_rounds):
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = seed
        solver.parameters.linearization_level = 2
        solver.parameters.max_deterministic_time = left
        solver.parameters.relative_gap_limit = search.open_gap()
        solver.parameters.max_time_in_seconds = max(
            search.deadline_s - search.start_s - search.seconds(), 0.01
        )
        if search.here is not None:
            model.clear_hints()  # type: ignore[no-untyped-call]  # no annotations in ortools
            for v, s in enumerate(search.here.tolist()):
                for p, variable in enumerate(choose[v]):
                    model.add_hint(variable, p == s)
        status = solve_interruptibly(solver, model)
        if status == cp_model.INFEASIBLE:
            search.raise_bound(math.inf)
            return
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return
        search.raise_bound(offset + solver.best_objective_bound * unit)
        choice = np.array(
            [next(s for s, x in enumerate(xs) if solver.boolean_value(x)) for xs in choose],
            np.int64,
        )
        search.offer(choice)
        left -= solver.response_proto.deterministic_time
        broken: list[int] = []
        if memory is not None:
            broken = [t for t in memory.peaks(memory.profile(choice), 16).tolist() if t not in rows]
        if not broken or left <= 0:
            return
        for t in broken:
            add_row(t)


def _unit(reduced: Reduced, search: Search) -> float:
    """Cost of one integer step: 1e-10 of the cost, spread over all terms, if integers suffice."""
    spreads = [float(c.max() - c.min()) for c in reduced.costs]
    spreads += [float(np.ptp(t[np.isfinite(t)])) for t in reduced.tables]
    scale = abs(search.best_cost) if math.isfinite(search.best_cost) else sum(spreads)
    wanted = max(scale, 1e-300) * 1e-10 / (len(spreads) + 1)
    return max(wanted, sum(spreads) / 2.0**55, 1e-300)

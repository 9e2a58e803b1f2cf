"""The task order of a pipeline with the shortest span, by CP-SAT.

Pure numbers: tasks have a lane and a duration, needs have a delay, and buffers take room in a lane
from one task's start to another's end. The search starts from the best known order and never
returns a worse one.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from shardc.solver.interrupt import solve_interruptibly
from shardc.solver.pipeline.order_bounds import Dependences, OrderProblem, span_of

COUNTED_PER_S = 0.5  # CP-SAT's deterministic time in a second of two free cores


@dataclass(frozen=True)
class OrderSolution:
    """Start of every task, the span, and a proven lower bound on the span."""

    starts: tuple[int, ...]
    span: int
    lower_bound: int


def shortest_order(
    problem: OrderProblem,
    known: Sequence[int],
    *,
    effort_s: float,
    time_limit_s: float,
    seed: int = 0,
) -> OrderSolution:
    """The order with the shortest span found, and a lower bound.

    Args:
        known: starts of a valid order.
        effort_s: the work of the search, counted: about its seconds on two free cores. The same
            effort gives the same order on any machine that has the time.
        time_limit_s: by the clock.
    """
    dependences = Dependences(problem)
    bound, best = dependences.least_span(), span_of(problem, known)
    if best <= bound or min(effort_s, time_limit_s) <= 0:
        return OrderSolution(tuple(known), best, min(bound, best))
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    # No task has to start later than in the known order.
    horizon = max(s + d for s, d in zip(known, problem.duration, strict=True))
    starts = [
        model.new_int_var(0, horizon - d, f"start{i}") for i, d in enumerate(problem.duration)
    ]
    tasks = [
        model.new_fixed_size_interval_var(start, d, f"task{i}")
        for i, (start, d) in enumerate(zip(starts, problem.duration, strict=True))
    ]
    # A task starts after its needs have ended and arrived.
    for before, after, delay in problem.needs:
        model.add(starts[after] >= starts[before] + problem.duration[before] + delay)
    # Equal tasks run in the order of their microbatches, without loss of generality.
    for chain in problem.alike:
        for before, after in itertools.pairwise(chain):
            model.add(starts[after] >= starts[before] + problem.duration[before])
    # A buffer is made only after what surely takes its room has been freed.
    for user, maker in dependences.for_room:
        model.add(starts[maker] >= starts[user] + problem.duration[user])
    span = model.new_int_var(bound, best, "span")
    for lane in sorted(set(problem.lane_of)):
        own = [i for i, each in enumerate(problem.lane_of) if each == lane]
        # A lane runs one task at a time.
        model.add_no_overlap([tasks[i] for i in own])
        # The span is that of the longest lane.
        first = model.new_int_var(0, 0 if problem.from_zero else horizon, f"first{lane}")
        last = model.new_int_var(0, horizon, f"last{lane}")
        heads = [chain[0] for chain in problem.alike if problem.lane_of[chain[0]] == lane] or own
        tails = [chain[-1] for chain in problem.alike if problem.lane_of[chain[0]] == lane] or own
        if not problem.from_zero:
            model.add_min_equality(first, [starts[i] for i in heads])
        model.add_max_equality(last, [starts[i] + problem.duration[i] for i in tails])
        model.add(last - first <= span)
        _keep_room(model, problem, lane, starts, horizon)
    model.minimize(span)
    for variable, value in zip(starts, known, strict=True):
        model.add_hint(variable, value)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.max_deterministic_time = effort_s * COUNTED_PER_S
    solver.parameters.num_workers = 2
    solver.parameters.interleave_search = True  # workers in turns: the same on a busy machine
    solver.parameters.random_seed = seed
    status = solve_interruptibly(solver, model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return OrderSolution(tuple(known), best, bound)
    found = tuple(solver.value(start) for start in starts)
    bound = max(bound, round(solver.best_objective_bound))
    if span_of(problem, found) >= best:
        found = tuple(known)
    return OrderSolution(found, span_of(problem, found), min(bound, span_of(problem, found)))


def _keep_room(model, problem, lane, starts, horizon) -> None:  # type: ignore[no-untyped-def]  # types that load ortools
    """The buffers of a lane fit into its capacity at any time."""
    if problem.capacity is None:
        return
    intervals, sizes = [], []
    for n, (own, size, maker, user) in enumerate(problem.buffers):
        if own == lane:
            end = starts[user] + problem.duration[user]
            length = model.new_int_var(0, horizon, f"held{lane}_{n}")
            intervals.append(
                model.new_interval_var(starts[maker], length, end, f"buffer{lane}_{n}")
            )
            sizes.append(size)
    model.add_cumulative(intervals, sizes, problem.capacity)

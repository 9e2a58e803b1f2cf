"""Searches for a shorter order of the tasks of a schedule, by CP-SAT."""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from shardc.schedule.family import Costs, Planned
from shardc.schedule.simulate import lengths, simulate
from shardc.schedule.tasks import ONCE_PER_STEP, Amount, Schedule, Task, common_scale, scaled
from shardc.solver.pipeline.order_bounds import OrderProblem
from shardc.solver.pipeline.orders import shortest_order

RESOLUTION = 1 << 18  # units of time in a known order, if times are not exact

Length = tuple[Amount, Amount]
"""Span and makespan; with a barrier, makespan and span."""


def length_of(planned: Planned, costs: Costs) -> Length:
    of = costs.durations(planned.work, planned.slice_shares)
    span, makespan = lengths(planned.schedule, planned.graph, of, costs.send_s)
    return (makespan, span) if costs.barrier else (span, makespan)


def improved_order(planned: Planned, costs: Costs, left_s: float, shared_by: int = 1) -> Planned:
    """`planned` or a shorter order, with a lower bound.

    Args:
        left_s: of the time limit, by the clock.
        shared_by: the searches that share effort and time.
    """
    graph = planned.graph
    tasks = list(graph.tasks)
    problem, scale = _problem(planned, tasks, costs)
    whole = dict(zip(tasks, problem.duration, strict=True))
    result = simulate(
        planned.schedule, graph, whole.__getitem__, lambda need: _units(costs.send_s(need), scale)
    )
    known = {timed.action: int(timed.start_s) for timed in result.timeline}
    solution = shortest_order(
        problem,
        [known[task] for task in tasks],
        effort_s=costs.effort_s / shared_by,
        time_limit_s=left_s / shared_by,
    )
    lanes: list[list[tuple[int, int, Task]]] = [[] for _ in range(graph.num_groups)]
    for i, task in enumerate(tasks):
        lanes[graph.group(task)].append((solution.starts[i], i, task))
    schedule = Schedule(tuple(tuple(task for *_, task in sorted(lane)) for lane in lanes))
    better = replace(planned, schedule=schedule)
    best = min(planned, better, key=lambda each: length_of(each, costs))
    bound = Fraction(solution.lower_bound) / Fraction(scale)
    return replace(best, lower_bound=bound if isinstance(scale, int) else float(bound))


def _problem(
    planned: Planned, tasks: Sequence[Task], costs: Costs
) -> tuple[OrderProblem, int | float]:
    """The search in whole units of time, and the units of one second.

    Exact if all times are; otherwise times are rounded down, so that bounds still hold.
    """
    graph = planned.graph
    index = {task: i for i, task in enumerate(tasks)}
    duration = costs.durations(planned.work, planned.slice_shares)
    takes = [duration(task) for task in tasks]
    sends = [costs.send_s(need) for task in tasks for need in graph.needs[task]]
    scale: int | float = common_scale([*takes, *sends])
    if any(isinstance(time, float) for time in (*takes, *sends)):
        scale = RESOLUTION / (float(max(length_of(planned, costs))) or 1.0)
    room = common_scale([*(b.num_bytes for b in graph.buffers), costs.max_activations or 0])
    chains: dict[tuple[int, str, int, int], list[int]] = {}
    for task in tasks:
        if task.kind not in ONCE_PER_STEP:
            key = task.stage, task.kind, task.replica, task.slice
            chains.setdefault(key, []).append(index[task])
    problem = OrderProblem(
        lane_of=tuple(graph.group(task) for task in tasks),
        duration=tuple(_units(time, scale) for time in takes),
        needs=tuple(
            (index[need.task], index[task], _units(costs.send_s(need), scale))
            for task in tasks
            for need in graph.needs[task]
        ),
        buffers=tuple(
            (b.group, int(scaled(b.num_bytes, room)), index[b.maker], index[b.users[-1]])
            for b in graph.buffers
        ),
        capacity=None
        if costs.max_activations is None
        else int(scaled(costs.max_activations, room)),
        alike=tuple(map(tuple, chains.values())),
        from_zero=costs.barrier,
    )
    return problem, scale


def _units(seconds: Amount, scale: float) -> int:
    return math.floor(seconds * scale)

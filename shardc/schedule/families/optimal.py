"""The optimal order: the best known one, improved by CP-SAT, with a proven lower bound.

It minimises the span: the longest time from a group's first start to its last end, which is the
step time if the next step starts without a barrier. There is one stage per group, or two as a V.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from shardc.errors import InfeasibleError
from shardc.schedule.check import peaks
from shardc.schedule.families import one_f_one_b, two_bp, v_shaped, zero_bubble
from shardc.schedule.family import Costs, Lanes, Planned, ScheduleFamily, framed
from shardc.schedule.orders.fill import Filling, fill_weights
from shardc.schedule.placement import looped, zigzag
from shardc.schedule.simulate import Simulation, simulate
from shardc.schedule.tasks import BACKWARD, FORWARD, Amount, Schedule, Task, common_scale, scaled
from shardc.schedule.times import durations
from shardc.schedule.work import Placement, Work
from shardc.solver.pipeline.orders import OrderProblem, shortest_order

SLOPES = (1, Fraction(5, 4), Fraction(3, 2), Fraction(7, 4), 2, Fraction(9, 4), Fraction(5, 2), 3)
"""Warm-up lengths tried first: forwards before the first backward, per later stage."""
FILLINGS = (
    Filling(),
    Filling(level=True),
    Filling(patience=1),
    Filling(patience=1, level=True),
    Filling(by_kind=True),
)
"""Ways tried first to put weight gradients into gaps."""


def place(work: Work) -> Placement:
    return zigzag(work) if work.chunks == 2 else looped(work)


@dataclass(frozen=True)
class Optimal(ScheduleFamily):
    """A family that searches for its order."""

    def plan(
        self, base: Work, costs: Costs, chunks: int | None = None, slices: int | None = None
    ) -> Planned:
        """The best order found; without `chunks`, among one stage per group and two.

        Raises:
            ScheduleError: SHARDC-242, the family does not support the counts.
            InfeasibleError: SHARDC-220, no order fits into the allowed activations.
        """
        found: list[tuple[Amount, Amount, int, Planned]] = []
        for count in (1, 2) if chunks is None else (chunks,):
            work = self.work(base, count, slices)
            known = _best_known(work, costs)
            if known is not None:
                found.append((known[1].span_s, known[1].makespan_s, count, known[0]))
        if not found:
            raise InfeasibleError(
                f"no order holds at most {float(costs.max_activations or 0):g} microbatches'"
                " activations on every device",
                help="allow at least 1, or use more stages",
                code="SHARDC-220",
            )
        if not base.backward:
            return min(found)[3]
        planned = [_improved(each[3], costs, costs.time_limit_s / len(found)) for each in found]
        return min(planned, key=lambda each: _simulated(each, costs).span_s)


def order(work: Work, costs: Costs) -> Lanes:
    """The lanes of the best order, without P and U."""
    planned = FAMILIES[0].plan(work, costs, work.chunks)
    once = ("P", "U")
    return [[t for t in lane if t.kind not in once] for lane in planned.schedule.lanes]


def _best_known(work: Work, costs: Costs) -> tuple[Planned, Simulation] | None:
    """The shortest order that fits, among the families and some greedy orders."""
    best = None
    for lanes in _known(work, costs):
        schedule = Schedule(framed(lanes, work, place(work)))
        planned = Planned(work, schedule, work.graph(place(work)))
        most = costs.max_activations
        if most is not None and max(peaks(schedule, planned.graph)) > most:
            continue
        result = _simulated(planned, costs)
        key = (result.span_s, result.makespan_s)
        if best is None or key < (best[1].span_s, best[1].makespan_s):
            best = planned, result
    return best


def _known(work: Work, costs: Costs) -> Iterator[Lanes]:
    """Lanes of F, B and W for the placement of `work`."""
    full = replace(work, backward=True, split_backward=True, prologue=False, update_rounds=0)
    if not work.backward:
        for family in v_shaped.FAMILIES if work.chunks == 2 else one_f_one_b.FAMILIES:
            if not family.slices:
                yield [[t for t in lane if t.kind == FORWARD] for lane in family.order(full, costs)]
        return
    if work.chunks == 2:
        for family in v_shaped.FAMILIES:
            if family.split_backward:
                yield family.order(full, costs)
            else:  # with a split backward, W follows B at once, or fills gaps
                yield _with_weights(family.order(replace(full, split_backward=False), costs))
        return
    for family in (*zero_bubble.FAMILIES, *two_bp.FAMILIES[:1]):
        yield family.order(full, costs)
    for family in one_f_one_b.FAMILIES:
        if not family.slices:
            yield _with_weights(family.order(replace(full, split_backward=False), costs))
    for ahead in _warm_ups(full, costs):
        for filling in FILLINGS:
            lanes = fill_weights(full, place(full), ahead, costs, costs.max_activations, filling)
            if lanes is not None:
                yield lanes


def _warm_ups(work: Work, costs: Costs) -> Iterator[Lanes]:
    """Orders of F and B with longer and longer warm-ups."""
    times = costs.times
    # Per later stage, the forwards that fit until the first backward comes back from it.
    filled = (times.forward_s + times.backward_s + 2 * costs.transfer_s) / (times.forward_s or 1)
    for slope in (*SLOPES, filled):
        for more in (0, 1):

            def warm_up(stage: int, work: Work, slope: Amount = slope, more: int = more) -> int:
                behind = work.num_stages - 1 - stage
                return math.ceil(slope * behind) + more if behind else more

            yield one_f_one_b.alternating(warm_up)(work, costs)
    # Backwards first; forwards whenever there is room.
    yield [
        [Task(stage, kind, k) for kind in (BACKWARD, FORWARD) for k in work.microbatches()]
        for stage in range(work.num_stages)
    ]


def _with_weights(lanes: Lanes) -> Lanes:
    return [[each for task in lane for each in _split(task)] for lane in lanes]


def _split(task: Task) -> tuple[Task, ...]:
    return (task, task._replace(kind="W")) if task.kind == BACKWARD else (task,)


def _simulated(planned: Planned, costs: Costs) -> Simulation:
    of = durations(planned.work, costs.times)
    return simulate(planned.schedule, planned.graph, of, costs.transfer_s)


def _improved(planned: Planned, costs: Costs, time_limit_s: float) -> Planned:
    """`planned` or a shorter order, with a lower bound."""
    graph, work = planned.graph, planned.work
    tasks = list(graph.tasks)
    index = {task: i for i, task in enumerate(tasks)}
    duration = durations(work, costs.times)
    takes = [duration(task) for task in tasks]
    scale = common_scale([*takes, costs.transfer_s])
    room = common_scale([*(b.num_bytes for b in graph.buffers), costs.max_activations or 0])
    chains: dict[tuple[int, str], list[int]] = {}
    for task in tasks:
        if task.kind not in ("P", "U"):
            chains.setdefault((task.stage, task.kind), []).append(index[task])
    problem = OrderProblem(
        lane_of=tuple(graph.group(task) for task in tasks),
        duration=tuple(int(scaled(time, scale)) for time in takes),
        needs=tuple(
            (
                index[need.task],
                index[task],
                int(scaled(costs.transfer_s, scale))
                if need.source != need.target and need.num_bytes
                else 0,
            )
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
    )
    known = {t.action: t.start_s for t in _simulated(planned, costs).timeline}
    starts = [int(scaled(known[task], scale)) for task in tasks]
    solution = shortest_order(problem, starts, time_limit_s=time_limit_s)
    lanes: list[list[tuple[int, int, Task]]] = [[] for _ in range(graph.num_groups)]
    for i, task in enumerate(tasks):
        lanes[graph.group(task)].append((solution.starts[i], i, task))
    schedule = Schedule(tuple(tuple(task for *_, task in sorted(lane)) for lane in lanes))
    return Planned(work, schedule, graph, Fraction(solution.lower_bound, scale))


FAMILIES = (
    Optimal(
        "optimal",
        order,
        split_backward=True,
        chunks=(1, 2),
        place=place,
        searches=lambda work: True,
        about="the shortest span that is found in time, with a bound",
    ),
)

"""Good orders of a placement of stages, from which `optimal` starts."""

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from shardc.schedule.families import one_f_one_b
from shardc.schedule.family import Costs, Lanes, ScheduleFamily
from shardc.schedule.orders.fill import Filling, fill_weights
from shardc.schedule.placement import looped
from shardc.schedule.tasks import BACKWARD, FORWARD, WEIGHT, WHOLE_BACKWARD, Amount, Task
from shardc.schedule.work import Placement, Work

SLOPES = (1, Fraction(5, 4), Fraction(3, 2), Fraction(7, 4), 2, Fraction(9, 4), Fraction(5, 2), 3)
"""Warm-up lengths tried: forwards before the first backward, per later stage."""
FILLINGS = (
    Filling(),
    Filling(level=True),
    Filling(patience=1),
    Filling(patience=1, level=True),
    Filling(by_kind=True),
)
"""Ways tried to put weight gradients into gaps."""


def known_orders(
    work: Work, placement: Placement, families: list[ScheduleFamily], costs: Costs
) -> Iterator[Lanes]:
    """Lanes of F, B and W, or of F without a backward: the orders of `families`, which have this
    placement, with W where the family puts it and in gaps.

    Splitting the backward can only let what waits for it start sooner, so the first of them takes
    no longer and holds no more than the family.
    """
    full = replace(work, backward=True, split_backward=True, prologue=False, update_rounds=0)
    for family in families:
        own = replace(full, split_backward=family.split_backward)
        lanes = family.order(own, costs)
        if not work.backward:
            yield [[task for task in lane if task.kind == FORWARD] for lane in lanes]
            continue
        yield [[part for task in lane for part in _parts(task, own)] for lane in lanes]
        yield from _filled(full, placement, lanes, costs)
    plain = work.chunks * work.replicas * work.slices == 1
    if work.backward and plain and placement == looped(work):
        for lanes in _warm_ups(full, costs):
            yield from _filled(full, placement, lanes, costs)


def _parts(task: Task, work: Work) -> tuple[Task, ...]:
    if task.kind == WHOLE_BACKWARD or (task.kind == BACKWARD and not work.split_backward):
        return task._replace(kind=BACKWARD), task._replace(kind=WEIGHT)
    return (task,)


def _filled(work: Work, placement: Placement, lanes: Lanes, costs: Costs) -> Iterator[Lanes]:
    """The order of F and B, with W in gaps."""
    kinds = {WHOLE_BACKWARD: BACKWARD}
    ahead = [
        [t._replace(kind=kinds.get(t.kind, t.kind)) for t in lane if t.kind != WEIGHT]
        for lane in lanes
    ]
    for filling in FILLINGS:
        filled = fill_weights(work, placement, ahead, costs, costs.max_activations, filling)
        if filled is not None:
            yield filled


def _warm_ups(work: Work, costs: Costs) -> Iterator[Lanes]:
    """Orders of F and B with longer and longer warm-ups."""
    duration, graph = costs.durations(work), work.graph(looped(work))
    of_first = [task for task in graph.tasks if not task.microbatch and task.kind != WEIGHT]
    forward_s = sum(duration(task) for task in of_first if task.kind == FORWARD)
    away_s = sum(costs.send_s(need) for task in of_first for need in graph.needs[task])
    away_s = away_s * work.num_stages / max(work.num_stages - 1, 1)  # from each to the next
    # Per later stage, the forwards that fit until the first backward comes back from it.
    filled = (sum(map(duration, of_first)) + away_s) / (forward_s or 1)
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

"""A long pipeline, simulated in some of its rounds: a microbatch for each device group."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from shardc.planner.budget import BUDGET
from shardc.schedule.family import ScheduleFamily
from shardc.schedule.tasks import TaskGraph
from shardc.schedule.work import Work


class Simulated(NamedTuple):
    """A simulated schedule.

    Attributes:
        makespan_s: from its first task to its last.
        held: bytes that each device group holds at most.
        graph: of the microbatches that were simulated.
        busiest_s: for which the busiest group computes on each microbatch.
    """

    makespan_s: float
    held: list[float]
    graph: TaskGraph
    busiest_s: float


class Rounds:
    """One schedule, in fewer rounds or in all.

    Args:
        work: in all rounds.
        simulate: the schedule of some work.
    """

    def __init__(
        self, family: ScheduleFamily, work: Work, simulate: Callable[[Work], Simulated]
    ) -> None:
        self._family, self._work = family, work
        self._simulate = functools.cache(simulate)

    def glance(self) -> Simulated | None:
        """The first rounds; the busiest group never waits in the others. More microbatches hold no
        less and rarely take less time. None if there are hardly more rounds, or the family does not
        support so few."""
        work, few = self._work, self._of(BUDGET.glance)
        if work.num_microbatches < 2 * few.num_microbatches or self._family.refuses(few):
            return None
        found = self._simulate(few)
        more = work.num_microbatches - few.num_microbatches
        return found._replace(makespan_s=found.makespan_s + more * found.busiest_s)

    def all(self) -> Simulated:
        """All rounds; many are extrapolated from fewer, because in a full pipeline all rounds are
        equal, or almost."""
        rounds, least = BUDGET.rounds, BUDGET.many_rounds
        if self._family.searches(self._work):
            rounds, least = BUDGET.rounds_of_searched, BUDGET.rounds_of_searched[-1] + 1
        fewer = [self._of(number) for number in rounds]
        many = self._work.num_microbatches >= least * self._work.num_groups
        if not many or any(map(self._family.refuses, fewer)):
            return self._simulate(self._work)
        first, second = map(self._simulate, fewer)
        few, more = (each.num_microbatches for each in fewer)
        share = (self._work.num_microbatches - few) / (more - few)
        held = [a + share * (b - a) for a, b in zip(first.held, second.held, strict=True)]
        makespan_s = first.makespan_s + share * (second.makespan_s - first.makespan_s)
        return first._replace(makespan_s=makespan_s, held=held)

    def _of(self, rounds: int) -> Work:
        return replace(self._work, num_microbatches=rounds * self._work.num_groups)

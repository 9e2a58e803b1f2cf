"""The state of a running solve: the best choice, the proven bound, the time, the log."""

import math
import time
from collections.abc import Callable

import numpy as np

from shardc.solver.interrupt import poll
from shardc.solver.problem.memory_times import Live, Memory
from shardc.solver.problem.problem import Floats, Ints, Problem, Progress, evaluate
from shardc.solver.problem.reduced import Reduced

EXACT = 1e-9  # relative error up to which sums of costs count as equal
# Until the share EASY of the work, or MOST_EASY cells, is spent, the search aims at the share AIM
# of the requested gap, so that easy problems are solved almost exactly.
EASY, MOST_EASY, AIM = 0.1, 40_000_000, 0.01
FIRST_CHOICE_S = 30.0  # past the deadline, to find a first choice


class OutOfTimeError(Exception):
    """The wall-clock limit is reached; the search ends with its current result."""


class Search:
    """Keeps the score for all phases.

    Attributes:
        live, whole: memory of the original problem at all times that matter.
        missed: times, unknown to `reduced`, at which a choice exceeded the limit.
        reduced: the contracted problem that the phases currently work on.
        best: cheapest feasible choice so far, of the original nodes; None before the first.
        best_cost: its cost, inf before the first.
        here, here_cost: cheapest feasible choice so far of the nodes of `reduced`; may cost more
            than `best`, whose strategies `reduced` may have removed.
        ceiling: bounds above this cost are not proven, because choices that cost more were removed.
        lower_bound: proven so far, -inf before the first.
        least_peak: smallest peak of any choice so far (bytes), None before the first.
        least_bytes: proven: no choice has a smaller peak.
        gap: allowed relative distance of the best cost from the optimum, see `open_gap`.
        cutoff: choices above this cost are useless: a bound above it ends the search.
        num_folded, folded_cost: as `num_folded` and `folded_objective` of a `Solution`.
        proving: prices of all times at which messages proved their best bound, None before.
        work, work_left: budget in table cells, and the rest of it; open-ended phases stop at 0.
            Counting work instead of seconds makes the result a function of problem
            and seed.
    """

    def __init__(
        self,
        problem: Problem,
        time_limit_s: float,
        effort_s: float,
        progress: Callable[[Progress], None] | None,
        start_s: float,
        work: float,
        gap: float,
        cutoff: float = math.inf,
    ) -> None:
        self.problem = problem
        self.live = Live.of(problem)
        self.whole: Memory | None = None
        if len(self.live.times) and problem.usage_limit is not None:
            sizes = [len(cost) for cost in problem.costs]
            base = np.zeros(len(self.live.times), np.int64)
            self.whole = Memory.build(self.live.terms, sizes, base, problem.usage_limit)
        self.missed: set[int] = set()
        self.reduced: Reduced
        self.progress = progress
        self.start_s = start_s
        self.effort_s = effort_s
        self.deadline_s = start_s + time_limit_s
        self.work = self.work_left = work
        self.gap = max(gap, EXACT)
        self.cutoff = cutoff
        self.num_folded = 0
        self.folded_cost: float | None = None
        self.proving: Floats | None = None
        self.best: Ints | None = None
        self.best_cost = math.inf
        self.lower_bound = -math.inf
        self.ceiling = math.inf
        self.here: Ints | None = None
        self.here_cost = math.inf
        self.least_peak: int | None = None
        self.least_bytes = 0
        self.log: list[str] = []
        self.phase = "contract"

    def seconds(self) -> float:
        return time.monotonic() - self.start_s

    def check_time(self) -> None:
        """Raises OutOfTimeError past the deadline, which is extended while there is no choice."""
        poll()
        late_s = time.monotonic() - self.deadline_s
        if late_s > (0.0 if self.best is not None else FIRST_CHOICE_S):
            raise OutOfTimeError

    def begin(self, phase: str) -> None:
        """Names the phase that begins."""
        poll()
        self.phase = phase
        self.report()

    def note(self, text: str) -> None:
        """Ends a phase with one line in the log."""
        self.log.append(
            f"{self.phase}: {text}; objective {self.best_cost:.6g},"
            f" bound {self.lower_bound:.6g}, {self.seconds():.2f} s"
        )
        self.report()

    def report(self) -> None:
        if self.progress is not None:
            found = None if self.best is None else self.best_cost
            self.progress(Progress(self.phase, self.seconds(), found, self.lower_bound))

    def enter(self, reduced: Reduced) -> None:
        """Continues with another contraction, a relaxation that keeps all choices better than the
        best by more than half the tolerance."""
        self.reduced = reduced
        self.ceiling = self.best_cost - self.tolerance() / 2
        self.here, self.here_cost = None, math.inf
        if self.best is not None:
            self.offer(reduced.restrict(self.best))

    def offer(self, choice: Ints) -> bool:
        """Takes a choice of the nodes of `reduced` into account; returns whether it is the best
        feasible one for them so far. Choices that exceed the limit only at times unknown to
        `reduced` add these to `missed`."""
        memory = self.reduced.memory
        cost = self.reduced.cost(choice)
        fits_here = memory is None or int(memory.profile(choice).max()) <= memory.limit
        if self.best is not None and (not fits_here or cost >= self.here_cost):
            return False
        full = self.reduced.expand(choice)
        if not self._fits(full, cost, learn=fits_here) or cost >= self.here_cost:
            return False
        self.here, self.here_cost = np.array(choice, np.int64), cost
        self._take(full, cost)
        return True

    def offer_whole(self, full: Ints) -> None:
        """Takes a choice of the original nodes into account."""
        cost = evaluate(self.problem, full).cost
        if math.isfinite(cost) and self._fits(full, cost, learn=False):
            self._take(full, cost)

    def _fits(self, full: Ints, cost: float, *, learn: bool) -> bool:
        if self.whole is None or not math.isfinite(cost):
            return math.isfinite(cost)
        profile = self.whole.profile(full)
        peak = int(profile.max())
        self.least_peak = peak if self.least_peak is None else min(peak, self.least_peak)
        if learn:
            self.missed.update(self.whole.peaks(profile, 16).tolist())
        return peak <= self.whole.limit

    def _take(self, full: Ints, cost: float) -> None:
        if cost < self.best_cost:
            self.best, self.best_cost = full, cost
            self.report()

    def raise_bound(self, bound: float) -> None:
        """Takes into account a lower bound proven for `reduced`."""
        bound = min(bound, self.best_cost, self.ceiling)
        if bound > self.lower_bound:
            self.lower_bound = bound
            self.report()

    def closed(self) -> bool:
        """Whether the best choice is proven to meet the gap, or the cutoff is proven."""
        if self.best is None:
            return False
        if self.lower_bound > self.cutoff:
            return True
        return self.best_cost - self.lower_bound <= self.tolerance()

    def settled(self) -> bool:
        """Whether there is nothing left to do: closed, or proven infeasible."""
        return self.closed() or self.lower_bound == math.inf

    def tolerance(self) -> float:
        """Cost differences that are currently irrelevant."""
        return self.open_gap() * abs(self.best_cost) if self.best is not None else 0.0

    def open_gap(self) -> float:
        """The current allowed gap, relative to the best cost: the requested one, or
        a small part of it until a small part of the work is spent."""
        easy = self.work - self.work_left < min(EASY * self.work, MOST_EASY)
        return max(AIM * self.gap, EXACT) if easy else self.gap

    def optimal(self) -> bool:
        """Whether the best choice is proven optimal, up to rounding."""
        if self.best is None:
            return False
        return self.best_cost - self.lower_bound <= EXACT * abs(self.best_cost)

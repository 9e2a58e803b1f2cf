"""What a running solve knows: the best choice, the proven bound, the time, the log."""

import math
import time
from collections.abc import Callable

import numpy as np

from shardc.solver.contraction import Reduced
from shardc.solver.problem import Ints, Progress


class OutOfTimeError(Exception):
    """The wall-clock limit is reached; the search ends with what it has."""


class Search:
    """Keeps score for all phases.

    Attributes:
        reduced: the contracted problem that the phases work on.
        best: cheapest feasible choice so far (of the contracted nodes), None before the first.
        best_cost: its cost, inf before the first.
        lower_bound: proven so far, -inf before the first.
        least_peak: choice with the smallest peak so far, and that peak in bytes.
        least_bytes: proven: no choice has a smaller peak.
        work_left: budget in table cells; phases that could go on for ever stop at 0. Budgets in
            work, not in seconds, make the result a function of problem and seed.
    """

    def __init__(
        self,
        reduced: Reduced,
        time_limit_s: float,
        progress: Callable[[Progress], None] | None,
        start_s: float,
        work: float,
    ) -> None:
        self.reduced = reduced
        self.progress = progress
        self.start_s = start_s
        self.limit_s = time_limit_s
        self.deadline_s = start_s + time_limit_s
        self.work_left = work
        self.best: Ints | None = None
        self.best_cost = math.inf
        self.lower_bound = -math.inf
        self.least_peak: tuple[Ints, int] | None = None
        self.least_bytes = 0
        self.log: list[str] = []
        self.phase = "contract"

    def seconds(self) -> float:
        return time.monotonic() - self.start_s

    def check_time(self) -> None:
        """Raises OutOfTimeError past the deadline."""
        if time.monotonic() > self.deadline_s:
            raise OutOfTimeError

    def begin(self, phase: str) -> None:
        """Names the phase that runs from here on."""
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

    def offer(self, choice: Ints) -> bool:
        """Takes a choice into account; returns whether it is the best feasible one so far."""
        memory = self.reduced.memory
        if memory is not None:
            peak = int(memory.profile(choice).max())
            if self.least_peak is None or peak < self.least_peak[1]:
                if math.isfinite(self.reduced.cost(choice)):
                    self.least_peak = (choice.copy(), peak)
            if peak > memory.limit:
                return False
        cost = self.reduced.cost(choice)
        if not cost < self.best_cost:
            return False
        self.best, self.best_cost = np.array(choice, np.int64), cost
        self.report()
        return True

    def raise_bound(self, bound: float) -> None:
        """Takes a proven lower bound into account."""
        if bound > self.lower_bound:
            self.lower_bound = bound
            self.report()

    def closed(self) -> bool:
        """Whether the best choice is proven optimal, up to 1e-9 of its cost."""
        if self.best is None:
            return False
        return self.best_cost - self.lower_bound <= 1e-9 * abs(self.best_cost)

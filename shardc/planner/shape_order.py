"""In which order the shapes of a pipeline are planned exactly, and which are not worth it.

What a shape takes is estimated from layers whose time is taken to shrink with the microbatch. It
does not: every microbatch pays latencies of its own. A shape that was planned tells how much that
is, and the estimates of all other shapes are mended by it.
"""

from collections.abc import Sequence

from shardc.compiler import Shape
from shardc.planner.layer_costs import Proposal

PROMISING = 1.1  # a pipeline may be estimated so much slower than the best plan so far


class ShapeOrder:
    """Proposals, the most promising first.

    Attributes:
        num_planned: of them.
    """

    def __init__(self, proposals: Sequence[Proposal]) -> None:
        self.num_planned = 0
        self._left = list(proposals)
        self._misfits: list[Shape] = []
        self._extra_s: dict[int, float] = {}  # number of stages -> seconds per microbatch

    def next(self, best_s: float | None) -> Proposal | None:
        """Takes the proposal to plan next; None if none may be faster than `best_s` (None: whatever
        fits is wanted). Those that nothing is estimated of come in their order."""
        self._left = [p for p in self._left if not self._cannot_fit(p.shape)]
        if not self._left:
            return None
        chosen = min(self._left, key=self.estimate_s)
        if best_s is not None:
            known = len(chosen.shape.meshes) in self._extra_s
            if self.estimate_s(chosen) > (1.0 if known else PROMISING) * best_s:
                return None
        self._left.remove(chosen)
        return chosen

    def planned(self, proposal: Proposal, seconds: float | None) -> None:
        """Learns what a proposal really takes; None: it does not fit."""
        self.num_planned += 1
        if seconds is None:
            self._misfits.append(proposal.shape)
        elif proposal.step_time_s > 0.0:
            extra_s = (seconds - proposal.step_time_s) / _turns(proposal.shape)
            self._extra_s[len(proposal.shape.meshes)] = extra_s

    def estimate_s(self, proposal: Proposal) -> float:
        """The mended estimate. What a microbatch costs on top is shared among the stages, so other
        numbers of stages say something, too: the nearest one planned, twice as many half of it."""
        if not self._extra_s or proposal.step_time_s == 0.0:
            return proposal.step_time_s
        count = len(proposal.shape.meshes)
        near = min(self._extra_s, key=lambda known: max(known / count, count / known))
        extra_s = self._extra_s[near] * near / count
        return max(proposal.step_time_s + extra_s * _turns(proposal.shape), 0.0)

    def _cannot_fit(self, shape: Shape) -> bool:
        return any(_needs_no_less(shape, other) for other in self._misfits)


def _turns(shape: Shape) -> int:
    """How many microbatches pass the slowest stage, and the time in which the pipeline fills."""
    return shape.num_microbatches + len(shape.meshes) - 1


def _needs_no_less(shape: Shape, other: Shape) -> bool:
    """Whether `shape` is `other` with as large or larger microbatches."""
    return (len(shape.cuts), shape.meshes, shape.schedule) == (
        len(other.cuts),
        other.meshes,
        other.schedule,
    ) and shape.num_microbatches <= other.num_microbatches

"""DualPipe and DualPipeV: forwards of one direction paired with backwards of the other.

Source: DeepSeek-AI, "DualPipe" (MIT licence, 2025) and Sea AI Lab's "cut in half" note for the V
form. DualPipe runs two pipelines, one from each end; DualPipeV folds one pipeline of half as many
stages, so that its two chunks take the roles of the two directions with one copy of the weights.
"""

from collections import deque
from collections.abc import Callable

from shardc.schedule.family import Costs, Lanes, ScheduleFamily
from shardc.schedule.placement import both_ways, zigzag
from shardc.schedule.tasks import BACKWARD, FORWARD, WEIGHT, WHOLE_BACKWARD, Task
from shardc.schedule.work import Work


class _Lane:
    """Writes the tasks of one group; direction 0 is the one whose forwards come first here."""

    def __init__(self, make: Callable[[int, str, int], Task]) -> None:
        self.make = make
        self.tasks: list[Task] = []
        self.weights: deque[Task] = deque()
        self.count = {(direction, kind): 0 for direction in (0, 1) for kind in "FB"}

    def forward(self, direction: int) -> None:
        self.tasks.append(self.make(direction, FORWARD, self._next(direction, "F")))

    def backward(self, direction: int, *, split: bool = False) -> None:
        k = self._next(direction, "B")
        self.tasks.append(self.make(direction, BACKWARD if split else WHOLE_BACKWARD, k))
        if split:
            self.weights.append(self.make(direction, WEIGHT, k))

    def weight(self) -> None:
        self.tasks.append(self.weights.popleft())

    def _next(self, direction: int, kind: str) -> int:
        self.count[direction, kind] += 1
        return self.count[direction, kind] - 1


def _steps(lane: _Lane, before: int, behind: int, num_pairs: int) -> list[Task]:
    """The eight steps of one group.

    Args:
        before: groups between this one and the middle (or the fold).
        behind: groups from the end where its direction 0 enters, this one included.
        num_pairs: in the main part, pairs of F of one direction and B of the other, each way.
    """
    for _ in range(2 * before):
        lane.forward(0)
    for _ in range(behind):
        lane.forward(0)
        lane.forward(1)
    for _ in range(before):
        lane.backward(1, split=True)
        lane.weight()
        lane.forward(1)
    for _ in range(num_pairs):
        lane.forward(0)
        lane.backward(1)
        lane.forward(1)
        lane.backward(0)
    for _ in range(before):
        lane.backward(1)
        lane.forward(1)
        lane.backward(0)
    # From half of these pairs on, weight gradients move to the end, where groups would idle.
    for i in range(2 * behind):
        split = i >= behind
        lane.backward(1 - i % 2, split=split)
    for _ in range(before):
        lane.weight()
        lane.backward(0, split=True)
    while lane.weights:
        lane.weight()
    return lane.tasks


def two_ways(work: Work, costs: Costs) -> Lanes:
    """DualPipe: direction 0 of a group is the pipeline that enters at the nearer end."""
    p, half = work.num_groups, work.num_groups // 2
    placement = both_ways(work)
    lanes = []
    for group in range(p):
        near = min(group, p - 1 - group)
        flipped = group >= half

        def make(
            direction: int, kind: str, k: int, group: int = group, flipped: bool = flipped
        ) -> Task:
            replica = direction ^ flipped
            stage = placement[replica].index(group)
            return Task(stage, kind, work.microbatches(replica)[k], 0, replica)

        num_pairs = work.num_microbatches // 2 - p + near + 1
        lanes.append(_steps(_Lane(make), half - 1 - near, near + 1, num_pairs))
    return lanes


def folded(work: Work, costs: Costs) -> Lanes:
    """DualPipeV: direction 0 is the chunk on the way down the V, direction 1 that on the way up."""
    p, m = work.num_groups, work.num_microbatches

    def lane(group: int) -> list[Task]:
        def make(direction: int, kind: str, k: int) -> Task:
            return Task(2 * p - 1 - group if direction else group, kind, k)

        return _steps(_Lane(make), p - 1 - group, group + 1, m - 2 * p + group + 1)

    return [lane(group) for group in range(p)]


def _refuses_two_ways(work: Work) -> tuple[str, str] | None:
    p, m = work.num_groups, work.num_microbatches
    if p % 2:
        return f"takes an even number of devices, not {p}", f"use {p + 1} stages, or dualpipe-v"
    if m % 2 or m < 2 * p:
        even = max(2 * p, m + m % 2)
        return (
            f"takes an even number of at least {2 * p} microbatches on {p} devices, not {m}",
            f"use {even} microbatches",
        )
    return None


def _refuses_folded(work: Work) -> tuple[str, str] | None:
    p, m = work.num_groups, work.num_microbatches
    if m < 2 * p:
        return f"takes at least {2 * p} microbatches on {p} devices, not {m}", f"use {2 * p}"
    return None


FAMILIES = (
    ScheduleFamily(
        "dualpipe",
        two_ways,
        split_backward=True,
        replicas=2,
        place=both_ways,
        refuses=_refuses_two_ways,
        about="two directions, forward and backward in pairs, two copies of the weights",
    ),
    ScheduleFamily(
        "dualpipe-v",
        folded,
        split_backward=True,
        chunks=(2,),
        place=zigzag,
        refuses=_refuses_folded,
        about="DualPipe cut in half: a V of two chunks, one copy of the weights",
    ),
)

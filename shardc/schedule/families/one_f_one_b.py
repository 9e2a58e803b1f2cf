"""1F1B and its relatives: a warm-up of forwards, then forwards and backwards alternate.

The bubble equals GPipe's; a stage holds at most as many microbatches as there are stages.
Sources: Narayanan et al., SC 2021 (arXiv 2104.04473), section 2.2 (PipeDream-Flush, DAPPLE);
Zhuang et al., "On Optimizing the Communication of Model Parallelism" (arXiv 2211.05322) for the
eager warm-up that hides transfers; Sun et al., "Seq1F1B" (arXiv 2406.03488) for token slices.
"""

from collections.abc import Callable

from shardc.schedule.family import Costs, Lanes, Order, ScheduleFamily
from shardc.schedule.tasks import BACKWARD, FORWARD, Task
from shardc.schedule.work import Work


def alternating(warm_up: Callable[[int, Work], int]) -> Order:
    """The order with `warm_up(stage, work)` forwards before the first pair of F and B.

    Units are slices: a microbatch's F slices run in order, its B slices in reverse.
    """

    def order(work: Work, costs: Costs) -> Lanes:
        ks, js = work.microbatches(), range(work.slices)
        lanes = []
        for stage in range(work.num_stages):
            there = [Task(stage, FORWARD, k, j) for k in ks for j in js]
            back = [Task(stage, BACKWARD, k, j) for k in ks for j in reversed(js)]
            ahead = min(warm_up(stage, work), len(there))
            lane = there[:ahead]
            for i in range(ahead, len(there)):
                lane += [there[i], back[i - ahead]]
            lanes.append(lane + back[len(there) - ahead :])
        return lanes

    return order


def holding(warm_up: Callable[[int, Work], int]) -> Callable[[Work], tuple[int, ...]]:
    """What the stages hold: the warm-up, and one more from then on."""

    def held(work: Work) -> tuple[int, ...]:
        most = work.num_microbatches
        return tuple(min(warm_up(stage, work) + 1, most) for stage in range(work.num_stages))

    return held


def _short(stage: int, work: Work) -> int:
    return work.num_stages - 1 - stage


def _eager(stage: int, work: Work) -> int:
    return 2 * (work.num_stages - 1 - stage)


def _all_slices(stage: int, work: Work) -> int:
    """No B can start before the last slice of its microbatch has gone forward."""
    return work.num_stages - 1 - stage + work.slices - 1


FAMILIES = (
    ScheduleFamily(
        "1f1b",
        alternating(_short),
        held=holding(_short),
        about="GPipe's bubble with at most one microbatch in flight per stage behind",
    ),
    ScheduleFamily(
        "eager-1f1b",
        alternating(_eager),
        held=holding(_eager),
        about="twice the warm-up, so that transfers hide behind compute",
    ),
    ScheduleFamily(
        "seq1f1b", alternating(_all_slices), slices=True, about="1F1B over token slices"
    ),
)

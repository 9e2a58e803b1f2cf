"""GPipe and TeraPipe: all forwards, then all backwards.

Sources: Huang et al., NeurIPS 2019 (arXiv 1811.06965), section 2.3; Li et al., "TeraPipe", ICML
2021 (arXiv 2102.07988), which cuts each sequence into slices.
"""

from shardc.schedule.family import Costs, Lanes, ScheduleFamily
from shardc.schedule.tasks import BACKWARD, FORWARD, Task
from shardc.schedule.work import Work


def order(work: Work, costs: Costs) -> Lanes:
    """Per group every F, then every B; the slices of a microbatch run backwards in reverse."""
    there = [(k, j) for k in work.microbatches() for j in range(work.slices)]
    back = [(k, j) for k in work.microbatches() for j in reversed(range(work.slices))]
    return [
        [
            *(Task(stage, FORWARD, k, j) for k, j in there),
            *(Task(stage, BACKWARD, k, j) for k, j in back),
        ]
        for stage in range(work.num_stages)
    ]


def held(work: Work) -> tuple[int, ...]:
    """Every stage holds all microbatches before its first backward."""
    return (work.num_microbatches,) * work.num_stages


FAMILIES = (
    ScheduleFamily("gpipe", order, held=held, about="all forwards, then all backwards"),
    ScheduleFamily("terapipe", order, slices=True, about="GPipe over token slices"),
)

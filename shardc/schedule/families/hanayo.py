"""Hanayo: one pipeline that runs through the groups in waves, forth and back.

Source: Liu et al., "Hanayo", SC 2023 (arXiv 2308.15762). W waves are 2W chunks in a zigzag. The
order is greedy: backwards first, then the forward of the latest stage.
"""

from shardc.schedule.family import Costs, Lanes, ScheduleFamily
from shardc.schedule.orders.greedy import greedy
from shardc.schedule.placement import zigzag
from shardc.schedule.tasks import FORWARD, Task
from shardc.schedule.work import Work


def order(work: Work, costs: Costs) -> Lanes:
    def urgency(task: Task) -> tuple[int, ...]:
        if task.kind == FORWARD:
            return 1, task.microbatch // work.num_groups, -task.stage, task.microbatch
        return 0, task.microbatch, task.stage

    return greedy(work, zigzag(work), costs, urgency)


def refuses(work: Work) -> tuple[str, str] | None:
    if work.chunks % 2:
        return f"runs two chunks per wave, so not {work.chunks}", "give an even --chunks"
    return None


FAMILIES = (
    ScheduleFamily(
        "hanayo",
        order,
        chunks=(),
        place=zigzag,
        refuses=refuses,
        about="waves of two chunks each, one copy of the weights",
    ),
)

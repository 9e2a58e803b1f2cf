"""Breadth-first: all microbatches through one chunk before the next chunk; ZeroPP by blocks.

With parameters sharded over data-parallel ranks (`Work.gathers`), each chunk is gathered once per
pass.
Sources: Lamy-Poirier, MLSys 2023 (arXiv 2211.05953); Tang et al., "ZeroPP" (arXiv 2402.03791).
"""

from collections.abc import Iterable

from shardc.schedule.family import Costs, Lanes, ScheduleFamily
from shardc.schedule.tasks import BACKWARD, FORWARD, WEIGHT, Task
from shardc.schedule.work import Work


def order(work: Work, costs: Costs) -> Lanes:
    """Per group: its chunks one after the other forward, then in reverse backward."""
    return [_pass(work, group, work.microbatches()) for group in range(work.num_groups)]


def blockwise(work: Work, costs: Costs) -> Lanes:
    """Breadth-first over blocks of microbatches; each block ends with its weight gradients."""
    m = work.num_microbatches
    size = m if costs.max_activations is None else max(1, min(m, int(costs.max_activations)))
    lanes: list[list[Task]] = []
    for group in range(work.num_groups):
        lane: list[Task] = []
        for first in range(0, m, size):
            block = _pass(work, group, range(first, min(first + size, m)))
            backwards = [task for task in block if task.kind == BACKWARD]
            lane += [*block, *(task._replace(kind=WEIGHT) for task in backwards)]
        lanes.append(lane)
    return lanes


def _pass(work: Work, group: int, microbatches: Iterable[int]) -> list[Task]:
    ks = list(microbatches)
    own = range(group, work.num_stages, work.num_groups)
    return [
        *(Task(stage, FORWARD, k) for stage in own for k in ks),
        *(Task(stage, BACKWARD, k) for stage in reversed(own) for k in ks),
    ]


FAMILIES = (
    ScheduleFamily(
        "breadth-first",
        order,
        chunks=(),
        about="all microbatches through one chunk before the next",
    ),
    ScheduleFamily(
        "zeropp",
        blockwise,
        split_backward=True,
        chunks=(),
        about="breadth-first over blocks, weight gradients at the end of each block",
    ),
)

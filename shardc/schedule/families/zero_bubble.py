"""Zero bubble: weight gradients fill the bubble of 1F1B.

Source: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024 (arXiv 2401.10241), section 2: H1
keeps the memory of 1F1B's first stage on every stage, H2 about twice that.
"""

from shardc.schedule.family import Costs, Lanes, Order, ScheduleFamily
from shardc.schedule.tasks import BACKWARD, FORWARD, WEIGHT, Task
from shardc.schedule.work import Work


def handcrafted(depth: int) -> Order:
    """1F1B with `depth` times the warm-up; W of a stage trails B by `depth` per earlier stage.

    The lag offsets the shorter warm-up of later stages, so all stages hold as much as the first.
    """

    def order(work: Work, costs: Costs) -> Lanes:
        p, m = work.num_stages, work.num_microbatches
        lanes = []
        for stage in range(p):
            ahead, lag = min(depth * (p - 1 - stage), m), depth * stage
            lane = [Task(stage, FORWARD, k) for k in range(ahead)]
            for k in range(m):
                if ahead + k < m:
                    lane.append(Task(stage, FORWARD, ahead + k))
                lane.append(Task(stage, BACKWARD, k))
                if k >= lag:
                    lane.append(Task(stage, WEIGHT, k - lag))
            lane += [Task(stage, WEIGHT, k) for k in range(max(0, m - lag), m)]
            lanes.append(lane)
        return lanes

    return order


FAMILIES = (
    ScheduleFamily(
        "zb-h1", handcrafted(1), split_backward=True, about="1F1B's memory, a third of its bubble"
    ),
    ScheduleFamily(
        "zb-h2", handcrafted(2), split_backward=True, about="no bubble, twice 1F1B's memory"
    ),
)

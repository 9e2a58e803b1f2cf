"""Interleaved 1F1B: several chunks per group, so that the pipeline fills in smaller steps.

Source: Narayanan et al., SC 2021 (arXiv 2104.04473), section 2.2.
"""

from shardc.schedule.family import Costs, Lanes, ScheduleFamily
from shardc.schedule.tasks import BACKWARD, FORWARD, Task
from shardc.schedule.work import Work


def order(work: Work, costs: Costs) -> Lanes:
    """Rounds of p microbatches go through all chunks; 1F1B over those units."""
    p, v = work.num_groups, work.chunks
    units = [
        (chunk, k)
        for first in range(0, work.num_microbatches, p)
        for chunk in range(v)
        for k in range(first, first + p)
    ]
    lanes = []
    for group in range(p):
        there = [Task(chunk * p + group, FORWARD, k) for chunk, k in units]
        back = [Task((v - 1 - chunk) * p + group, BACKWARD, k) for chunk, k in units]
        ahead = min(2 * (p - 1 - group) + (v - 1) * p, len(units))
        lane = there[:ahead]
        for i in range(ahead, len(units)):
            lane += [there[i], back[i - ahead]]
        lanes.append(lane + back[len(units) - ahead :])
    return lanes


def refuses(work: Work) -> tuple[str, str] | None:
    p, m = work.num_groups, work.num_microbatches
    if m % p == 0:
        return None
    below, above = m // p * p, (m // p + 1) * p
    return (
        f"takes a multiple of {p} microbatches on {p} devices, not {m}",
        f"use {f'{below} or {above}' if below else above} microbatches, or breadth-first",
    )


FAMILIES = (
    ScheduleFamily(
        "interleaved-1f1b",
        order,
        chunks=(),
        refuses=refuses,
        about="1F1B over chunks: a v-th of the bubble",
    ),
)

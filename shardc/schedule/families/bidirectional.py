"""Chimera and BitPipe: two pipelines over the same groups, one from each end.

Sources: Li, Hoefler, "Chimera", SC 2021 (arXiv 2107.06925); Wu et al., "BitPipe" (arXiv
2410.19367), whose two pipelines are V-shaped. Each stage is on two groups, which add their
gradients once per step.
"""

from shardc.schedule.family import Costs, Lanes, ScheduleFamily
from shardc.schedule.placement import both_ways
from shardc.schedule.tasks import BACKWARD, FORWARD, Task
from shardc.schedule.work import Work


def order(work: Work, costs: Costs) -> Lanes:
    """By slots: with S stages, F(s,k) at 2k + s and B(s,k) at 2k + 2S - 1 - s.

    Each pipeline takes p / 2 microbatches per unit, and a unit starts 2S slots after the previous
    one. For even p the slots of the two pipelines never collide, with one chunk or with a V.
    """
    p, stages = work.num_groups, work.num_stages
    slots: list[list[tuple[int, Task]]] = [[] for _ in range(p)]
    for replica, of_stage in enumerate(both_ways(work)):
        for number, k in enumerate(work.microbatches(replica)):
            unit, place = divmod(number, p // 2)
            first = 2 * stages * unit + 2 * place
            for stage, group in enumerate(of_stage):
                forward, backward = first + stage, first + 2 * stages - 1 - stage
                slots[group].append((forward, Task(stage, FORWARD, k, 0, replica)))
                slots[group].append((backward, Task(stage, BACKWARD, k, 0, replica)))
    return [[task for _, task in sorted(lane)] for lane in slots]


def refuses(work: Work) -> tuple[str, str] | None:
    p, m = work.num_groups, work.num_microbatches
    if p % 2:
        return f"takes an even number of devices, not {p}", f"use {p + 1} or {max(p - 1, 2)} stages"
    if m % p:
        below, above = m // p * p, (m // p + 1) * p
        return (
            f"takes a multiple of {p} microbatches on {p} devices, not {m}",
            f"use {f'{below} or {above}' if below else above} microbatches",
        )
    return None


FAMILIES = (
    ScheduleFamily(
        "chimera",
        order,
        replicas=2,
        place=both_ways,
        refuses=refuses,
        about="two pipelines in opposite directions, two copies of the weights",
    ),
    ScheduleFamily(
        "bitpipe",
        order,
        chunks=(2,),
        replicas=2,
        place=both_ways,
        refuses=refuses,
        about="Chimera with V-shaped pipelines of two chunks",
    ),
)

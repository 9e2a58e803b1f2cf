"""Interleaved 1F1B: several chunks per group, so that the pipeline fills in smaller steps.

Sources: Narayanan et al., SC 2021 (arXiv 2104.04473), section 2.2; Wan et al., "PipeOffload" (arXiv
2503.01328) for smaller rounds, which hold less (GIS), and for moving the first chunk's activations,
which live the longest, to the host.
"""

from collections.abc import Sequence

from shardc.schedule.family import Costs, Lanes, ScheduleFamily
from shardc.schedule.tasks import BACKWARD, FORWARD, LOAD, OFFLOAD, Task
from shardc.schedule.work import Work


def order(work: Work, costs: Costs) -> Lanes:
    """Rounds of p microbatches go through all chunks; 1F1B over those units."""
    p, v = work.num_groups, work.chunks
    return _rounds(work, p, [2 * (p - 1 - group) + (v - 1) * p for group in range(p)])


def grouped(work: Work, costs: Costs) -> Lanes:
    """Rounds of p / 2 microbatches, or of more if a limit on memory allows it, with the shortest
    warm-up."""
    p, v = work.num_groups, work.chunks
    size = -(-p // 2)
    if costs.max_activations is not None and v > 1:
        fits = min(p, int((costs.max_activations * v - p) / (v - 1)))
        size = next((n for n in range(fits, size, -1) if work.num_microbatches % n == 0), size)
    return _rounds(work, size, [p - 1 - group + (v - 1) * size for group in range(p)])


def _rounds(work: Work, size: int, warm_up: Sequence[int]) -> Lanes:
    """1F1B over units: rounds of `size` microbatches go through all chunks.

    Args:
        warm_up: per group, the forwards before its first backward.
    """
    p, v, m = work.num_groups, work.chunks, work.num_microbatches
    units = [
        (chunk, k)
        for first in range(0, m, size)
        for chunk in range(v)
        for k in range(first, min(first + size, m))
    ]
    lanes = []
    for group in range(p):
        there = [Task(chunk * p + group, FORWARD, k) for chunk, k in units]
        back = [Task((v - 1 - chunk) * p + group, BACKWARD, k) for chunk, k in units]
        ahead = min(warm_up[group], len(units))
        lane = there[:ahead]
        for i in range(ahead, len(units)):
            lane += [there[i], back[i - ahead]]
        lanes.append(lane + back[len(units) - ahead :])
    return lanes


def _refuses(work: Work, size: int, other: str) -> tuple[str, str] | None:
    m = work.num_microbatches
    if m % size == 0:
        return None
    below, above = m // size * size, (m // size + 1) * size
    return (
        f"takes a multiple of {size} microbatches on {work.num_groups} devices, not {m}",
        f"use {f'{below} or {above}' if below else above} microbatches, or {other}",
    )


def refuses(work: Work) -> tuple[str, str] | None:
    return _refuses(work, work.num_groups, "breadth-first")


def refuses_grouped(work: Work) -> tuple[str, str] | None:
    return _refuses(work, -(-work.num_groups // 2), "breadth-first")


FAMILIES = (
    ScheduleFamily(
        "interleaved-1f1b",
        order,
        chunks=(),
        refuses=refuses,
        about="1F1B over chunks: a v-th of the bubble",
    ),
    ScheduleFamily(
        "grouped-1f1b",
        grouped,
        chunks=(),
        refuses=refuses_grouped,
        about="1F1B over chunks in smaller rounds (PipeOffload's GIS): less memory than 1F1B",
    ),
    ScheduleFamily(
        "pipeoffload",
        grouped,
        chunks=(2,),
        refuses=refuses_grouped,
        offloads=(0,),
        moves=frozenset({OFFLOAD, LOAD}),
        about="grouped 1F1B that moves the first chunk's activations to the host and back",
    ),
)

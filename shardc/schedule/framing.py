"""Puts the once-per-step actions around what a schedule orders: P before, U after."""

from collections.abc import Callable

from shardc.schedule.action import PROLOGUE, UPDATE, Action, Schedule
from shardc.schedule.work import Work

Order = Callable[[int, Work], tuple[Action, ...]]
"""(stage, work) -> the per-microbatch actions of that stage, in order."""


def framed(order: Order, work: Work) -> Schedule:
    """One stage per device: P, the stage's per-microbatch actions, U."""
    return tuple(
        (
            *([Action(stage, PROLOGUE)] if work.prologue else []),
            *order(stage, work),
            *(Action(stage, UPDATE, number) for number in range(work.update_rounds)),
        )
        for stage in range(work.num_stages)
    )

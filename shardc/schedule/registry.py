"""The schedules by name."""

from collections.abc import Callable
from dataclasses import dataclass

from shardc.errors import ScheduleError
from shardc.schedule import gpipe, one_f_one_b
from shardc.schedule.action import Schedule
from shardc.schedule.framing import Order, framed
from shardc.schedule.work import Work


@dataclass(frozen=True)
class ScheduleKind:
    """How one family of schedules is made and what it costs in memory.

    Attributes:
        order: the per-microbatch actions of one stage.
        peak_activations: (stage, work) -> microbatches whose activations the stage holds at once.
    """

    order: Order
    peak_activations: Callable[[int, Work], int]

    def generate(self, work: Work) -> Schedule:
        """The schedule of `work`, one stage per device."""
        return framed(self.order, work)


SCHEDULES = {
    "gpipe": ScheduleKind(gpipe.order, gpipe.peak_activations),
    "1f1b": ScheduleKind(one_f_one_b.order, one_f_one_b.peak_activations),
}


def schedule_named(name: str) -> ScheduleKind:
    """The schedule called `name`; ScheduleError (SHARDC-240) if there is none."""
    if name not in SCHEDULES:
        raise ScheduleError(
            f"there is no schedule '{name}'",
            help="the schedules are " + ", ".join(SCHEDULES),
            code="SHARDC-240",
        )
    return SCHEDULES[name]


def generate(name: str, work: Work) -> Schedule:
    """The schedule called `name` of `work`; ScheduleError (SHARDC-240)."""
    return schedule_named(name).generate(work)

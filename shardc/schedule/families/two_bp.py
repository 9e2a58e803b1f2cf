"""2BP: any schedule with its backward split, and weight gradients where it would idle.

Source: Rae, Lee, Bruhwiler, "2BP: 2-Stage Backpropagation" (arXiv 2405.18047). Forwards and input
gradients keep the base's order; memory grows, because activations live until their W.
"""

from collections.abc import Iterator
from dataclasses import replace

from shardc.schedule.families import families_of_files
from shardc.schedule.family import Costs, Lanes, ScheduleFamily, ordered
from shardc.schedule.orders.fill import fill_weights
from shardc.schedule.tasks import BACKWARD, FORWARD, Task
from shardc.schedule.work import Work


def naive(work: Work, costs: Costs) -> Lanes:
    """One microbatch at a time, forward then backward."""
    return [
        [Task(stage, kind, k) for k in work.microbatches() for kind in (FORWARD, BACKWARD)]
        for stage in range(work.num_stages)
    ]


def two_stage(base: ScheduleFamily) -> ScheduleFamily:
    """The 2BP form of a family that does not split the backward."""

    def order(work: Work, costs: Costs) -> Lanes:
        whole = ordered(base, replace(work, split_backward=False), costs)
        lanes = fill_weights(work, base.place(work), whole, costs)
        assert lanes is not None, "nothing limits memory here"
        return lanes

    return ScheduleFamily(
        f"2bp-{base.name}",
        order,
        split_backward=True,
        chunks=base.chunks,
        replicas=base.replicas,
        slices=base.slices,
        place=base.place,
        refuses=base.refuses,
        searches=base.searches,
        about=f"{base.name} with W apart, in its gaps",
    )


def bases() -> Iterator[ScheduleFamily]:
    """Every family that is executed and does not split the backward."""
    yield ScheduleFamily("naive", naive)
    for family in families_of_files(but=__name__):
        if not (family.split_backward or family.moves):
            yield family


FAMILIES = tuple(map(two_stage, bases()))

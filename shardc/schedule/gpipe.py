"""GPipe: all forwards, then all backwards.

Source: Huang et al., NeurIPS 2019 (arXiv 1811.06965), section 2.3.
"""

from shardc.schedule.action import BACKWARD, FORWARD, Action, Schedule
from shardc.schedule.framing import framed
from shardc.schedule.work import Work


def order(stage: int, work: Work) -> tuple[Action, ...]:
    """F and B of one stage: the backwards run in the order of the forwards."""
    kinds = (FORWARD, BACKWARD) if work.backward else (FORWARD,)
    return tuple(
        Action(stage, kind, microbatch)
        for kind in kinds
        for microbatch in range(work.num_microbatches)
    )


def peak_activations(stage: int, work: Work) -> int:
    """Microbatches whose activations `stage` holds at once: all of them."""
    return work.num_microbatches if work.backward else 1


def generate(num_stages: int, num_microbatches: int) -> Schedule:
    """The schedule of a training step, P and U included."""
    return framed(order, Work(num_stages, num_microbatches))

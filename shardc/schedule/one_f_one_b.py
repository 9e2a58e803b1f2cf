"""1F1B: after a short warm-up each stage alternates one forward with one backward.

The bubble is GPipe's, the activations held are at most the number of stages.
Source: Narayanan et al., SC 2021 (arXiv 2104.04473), section 2.2 (PipeDream-Flush, DAPPLE).
"""

from shardc.schedule.action import BACKWARD, FORWARD, Action, Schedule
from shardc.schedule.framing import framed
from shardc.schedule.work import Work


def order(stage: int, work: Work) -> tuple[Action, ...]:
    """F and B of one stage: warm-up forwards, pairs of F and B, the backwards that are left."""
    if not work.backward:
        return tuple(Action(stage, FORWARD, k) for k in range(work.num_microbatches))
    warm_up = min(work.num_stages - 1 - stage, work.num_microbatches)
    actions = [Action(stage, FORWARD, k) for k in range(warm_up)]
    for k in range(warm_up, work.num_microbatches):
        actions += [Action(stage, FORWARD, k), Action(stage, BACKWARD, k - warm_up)]
    left = range(work.num_microbatches - warm_up, work.num_microbatches)
    return (*actions, *(Action(stage, BACKWARD, k) for k in left))


def peak_activations(stage: int, work: Work) -> int:
    """Microbatches whose activations `stage` holds at once: the stages from here to the end."""
    return min(work.num_microbatches, work.num_stages - stage) if work.backward else 1


def generate(num_stages: int, num_microbatches: int) -> Schedule:
    """The schedule of a training step, P and U included."""
    return framed(order, Work(num_stages, num_microbatches))

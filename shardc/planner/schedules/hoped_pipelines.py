"""Pipelines that another schedule may make the fastest, by the estimates for 1f1b."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from shardc.planner.pipelines.plain_shapes import evened
from shardc.planner.proposal import Found, Key, Proposal
from shardc.planner.schedules.cuts import Cut
from shardc.planner.shapes import ShapeSearch
from shardc.schedule.tasks import BACKWARD, FORWARD, WEIGHT, WHOLE_BACKWARD
from shardc.solver.pipeline.stages import Pipeline

CHUNKS = 2  # of a group
UNEVEN = 1.2  # a slowest stage by this factor over the mean is cut again


class Passes(NamedTuple):
    """What the passes of a microbatch take of a stage's time for it with a whole backward: F, B and
    W of a split one."""

    forward: float = 1 / 3
    backward: float = 1 / 3
    weight: float = 1 / 3

    def least_s(self, pipeline: Pipeline, num_microbatches: int) -> float:
        """Seconds of a step in which devices hardly wait.

        Stages that are much slower than others are assumed to be cut inside their layers. The last
        group works on all microbatches from when the first one reaches its first chunk. When that
        one is back, the first stage, which sends nothing further back, has the B of all others and
        one W to do.
        """
        others = num_microbatches - 1
        trip_s = _trip_s(pipeline, num_microbatches)
        busy_s = min(pipeline.period_s, UNEVEN * trip_s / len(pipeline.stages))
        before_s = trip_s - busy_s
        in_last_s = self.forward * before_s / CHUNKS + sum(self) * num_microbatches * busy_s
        there_and_back_s = self.forward * trip_s + self.backward * before_s
        in_first_s = there_and_back_s + (others * self.backward + self.weight) * busy_s
        return max(in_last_s, in_first_s)


def passes_of(cut: Cut) -> Passes:
    """Those of a planned pipeline, summed over its stages."""
    forward_s, whole_s, backward_s, weight_s = (
        sum(s for (_, of), s in cut.seconds.items() if of == kind)
        for kind in (FORWARD, WHOLE_BACKWARD, BACKWARD, WEIGHT)
    )
    total_s = forward_s + whole_s
    if not total_s or not cut.splits:
        return Passes()
    return Passes(forward_s / total_s, backward_s / total_s, weight_s / total_s)


def hoped_pipeline(
    search: ShapeSearch,
    below_s: float,
    known: Collection[tuple[int, int]],
    passes: Passes,
    scales: Mapping[int, float],
) -> Proposal | None:
    """The pipeline that would be the fastest if its devices waited half as long as under 1f1b, its
    stages of equal work if those of whole layers are not; of those that would take less than
    `below_s` if they hardly waited. None: there is none.

    Args:
        known: device groups and microbatches of pipelines that do not count.
        passes: of a pipeline of the program.
        scales: by the device groups of planned pipelines, what the last one takes of its estimate.
    """
    if not search.prices.backward:
        return None

    def scale(stages: int) -> float:
        return scales.get(stages, min([1.0, *scales.values()]))

    def may_win(key: Key) -> bool:
        stages, count = key.num_stages, key.num_microbatches
        if stages == 1 or (stages, count) in known:
            return False
        busy_s = count * search.prices.least_s(key.size, count) / stages
        return scale(stages) * sum(passes) * busy_s < below_s

    def least_s(each: Found) -> float:
        hoped_s = passes.least_s(each.pipeline, each.key.num_microbatches)
        return scale(each.key.num_stages) * hoped_s

    def likely_s(each: Found) -> float:
        return (least_s(each) + scale(each.key.num_stages) * each.pipeline.step_time_s) / 2

    hoped = [each for each in search.estimated(may_win) if least_s(each) < below_s]
    first = min(hoped, key=likely_s, default=None)
    best = None if first is None else search.settled(first)
    if best is None or least_s(best) >= below_s:
        return None
    proposal = search.proposal(best)
    if proposal is None or not _is_uneven(best):
        return proposal
    return evened(search.splits, proposal) or proposal


def _is_uneven(found: Found) -> bool:
    pipeline, count = found.pipeline, found.key.num_microbatches
    even_s = _trip_s(pipeline, count) / found.key.num_stages
    return pipeline.period_s > UNEVEN * even_s


def _trip_s(pipeline: Pipeline, num_microbatches: int) -> float:
    """Seconds of the first microbatch."""
    return pipeline.step_time_s - (num_microbatches - 1) * pipeline.period_s

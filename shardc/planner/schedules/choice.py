"""Chooses the schedule of a pipeline: the shortest simulated step among those that fit.

The search over shapes uses 1f1b and eager-1f1b (`shardc.planner.shapes`). This module estimates
every other family that runs on the winning shape, plans the best ones as they will run, and keeps
the shortest step. It does the same for the pipeline that would be clearly faster with almost no
bubble, if there is one. For `optimal` it then searches for a better order on the placement of the
best.
"""

import functools
import math
from collections.abc import Iterator, Sequence

import msgspec

from shardc.options import Auto
from shardc.plan.notes import Data, Note, NoteCode
from shardc.plan.predicted import JudgedSchedule
from shardc.plan.shape import PipelineShape
from shardc.planner.attempts import Attempts
from shardc.planner.budget import BUDGET
from shardc.planner.candidate import Candidate
from shardc.planner.pipelines.plain_shapes import evened
from shardc.planner.promising import Promising
from shardc.planner.proposal import Proposal
from shardc.planner.schedules.estimates import Estimates
from shardc.planner.schedules.hoped_pipelines import Passes, hoped_pipeline
from shardc.planner.split_cache import Splits
from shardc.schedule.families import built_in
from shardc.schedule.family import ScheduleFamily
from shardc.schedule.registry import best_orders

NEAR = 1.1  # for `optimal`: all estimated to take at most so much longer are planned
# A schedule must be estimated faster by this factor, because estimates are not closer: on the same
# stages; and with stages that are cut in another way, which also take longer to plan.
SAME, WORTH = 0.998, 0.98
MANY = 4  # layers per stage that allow about equal stages
UNEVEN = 1.05  # the slowest stage by this factor over the mean
CHUNKS = 2  # the least of a family that supports any number


def choose_schedule(
    tried: Attempts,
    splits: Splits,
    chunks: int | Auto,
    slices: int | Auto,
    limit_bytes: int,
    unmet: list[Note],
    reorder: bool = False,
    promising: Promising | None = None,
) -> tuple[JudgedSchedule, ...]:
    """Plans the best pipeline so far with the schedules that are best for it; `tried` keeps the
    best plan. If `chunks` is a number, only schedules with that many stages per group count; if
    `slices` is one, only those that cut sequences into as many slices, or, for 1, into none.
    `unmet` gets a note if no schedule can. With `reorder`, all schedules that may be the best are
    planned, and then the best order on the placement of the best.

    Args:
        promising: the search that found it; None: none did.
    Returns:
        Every schedule considered, shortest step first: all that run. () without a pipeline that
        trains.
    """
    if tried.best is None:
        return ()
    if promising is not None and tried.may_plan_another(BUDGET.ranked_ops):
        _try_evened(tried, splits)

    weigh = functools.partial(
        _weigh, tried, splits, chunks, slices, limit_bytes, unmet, reorder, promising
    )
    known = {_size(tried.best.shape)}
    scales = {tried.best.shape.num_stages: _scale(tried.best)}
    weighed, passes = weigh(tried.best)
    if promising is None or reorder or chunks != "auto" or slices != "auto":
        return weighed
    for _ in range(BUDGET.most_pipelines):
        # Schedules with chunks need equal groups: one pipeline of these is tried in any case.
        unequal = len(known) == 1 and _is_unequal(tried.best.shape)
        if not (unequal or tried.may_plan_another(BUDGET.ranked_ops)) or not tried.has_time():
            break
        below_s = tried.best_s if unequal else WORTH * tried.best_s
        other = hoped_pipeline(promising.search, below_s, known, passes or Passes(), scales)
        if other is None:
            break
        known.add(_size(other.shape))
        base = tried.plan(other, BUDGET.final)
        if isinstance(base, Candidate):
            again, more = weigh(base)
            passes, scales[base.shape.num_stages] = more or passes, _scale(base)
            weighed = again if _size(tried.best.shape) == _size(base.shape) else weighed
    return weighed


def _try_evened(tried: Attempts, splits: Splits) -> None:
    """Plans the best pipeline with stages of equal work, cut inside layers, too, if stages of a few
    whole layers each are not about equal."""
    best = tried.best
    assert best is not None
    shape, layers = best.shape, best.proposal.layers
    many = sum(map(len, layers)) >= MANY * len(layers)
    if shape.num_stages == 1 or many or _is_unequal(shape):
        return
    times_s = [report.microbatch_s for report in best.reports]
    if max(times_s) * len(times_s) > UNEVEN * sum(times_s):
        other = evened(splits, best.proposal)
        if other is not None:
            tried.plan(other, BUDGET.final)


def _scale(base: Candidate) -> float:
    """What a planned pipeline takes of its estimate; 1.0 if it has none."""
    estimate_s = base.proposal.step_time_s
    return base.seconds / estimate_s if estimate_s else 1.0


def _is_unequal(shape: PipelineShape) -> bool:
    """Whether the device groups differ in size."""
    return len({len(mesh.device_ids) for mesh in shape.meshes}) > 1


def _size(shape: PipelineShape) -> tuple[int, int]:
    """Device groups and microbatches."""
    return shape.num_stages // shape.num_chunks, shape.num_microbatches


def _weigh(
    tried: Attempts,
    splits: Splits,
    chunks: int | Auto,
    slices: int | Auto,
    limit_bytes: int,
    unmet: list[Note],
    reorder: bool,
    promising: Promising | None,
    base: Candidate,
) -> tuple[tuple[JudgedSchedule, ...], Passes | None]:
    """Plans the pipeline of `base` with the schedules that are best for it; these, and the passes
    of its stages."""
    assert tried.best is not None
    if len(base.shape.meshes) == 1:
        return (), None
    estimates = Estimates(base, tried.cluster, splits, promising, proved=slices == "auto")
    if not estimates.work.backward:
        return (), None
    first = base.shape.schedule, 1
    estimate_s = estimates.of(built_in()[first[0]], 1).step_time_s
    judged: dict[tuple[str, int], JudgedSchedule] = {}
    # First those with whole stages, then with chunks, then with slices: to cut the program again is
    # worth its time only if the schedule wins.
    counts = _counts(base) if chunks == "auto" else (chunks,)
    ways = sorted(_ways(counts, chunks, slices), key=lambda way: (way[2], way[1]))
    must = first not in [(family.name, count) for family, count, _ in ways]
    for family, count, parts in ways:
        if (family.name, count) == first:
            continue
        fewer = [judged[family.name, n] for n in counts if (family.name, n) in judged and n < count]
        below_s = WORTH * estimate_s
        others = [each for each in judged.values() if not each.refusal]
        if parts > 1:
            below_s = math.inf if must else min([below_s, *(WORTH * e.step_time_s for e in others)])
        elif not reorder:
            below_s = min([below_s, *(e.step_time_s for e in others if e.chunks < count)])
        if _is_enough(fewer, estimate_s, below_s):
            continue
        found = estimates.of(family, count, below_s, limit_bytes, parts)
        if not found.step_time_s and any(each.refusal == found.refusal for each in fewer):
            continue
        if found.peak_bytes > limit_bytes:
            found = msgspec.structs.replace(found, refusal="does not fit into memory")
        judged[family.name, count] = found
    if not must:
        judged[first] = _planned(base)
    ranked = sorted(judged.values(), key=_rank)
    scale = base.seconds / estimate_s
    done: list[JudgedSchedule] = []  # estimates of what was planned
    for each in _near(ranked) if reorder else [each for each in ranked if not each.refusal]:
        if done and (not tried.has_time() or (len(done) == BUDGET.most_schedules and not reorder)):
            break
        twin = next((other for other in done if estimates.are_alike(each, other)), None)
        if twin is not None:
            found = judged[twin.name, twin.chunks]
            judged[each.name, each.chunks] = msgspec.structs.replace(found, name=each.name)
            continue
        if each.is_planned or (not (must or reorder) and _is_beaten(each, scale, tried.best)):
            continue
        proposal = estimates.proposal(each)
        if isinstance(proposal, str):
            judged[each.name, each.chunks] = JudgedSchedule(
                each.name, each.chunks, refusal=proposal
            )
            continue
        planned = tried.plan(proposal, BUDGET.final)
        done.append(each)
        if isinstance(planned, Candidate):
            found = msgspec.structs.replace(_planned(planned), recompute=each.recompute)
            judged[each.name, each.chunks] = found
            if must:
                tried.best, must = planned, False
    if reorder and not must:
        better = _reordered(tried, estimates)
        judged[better.name, better.chunks] = better
    if must and slices not in ("auto", 1):
        why = "no schedule has as many slices, the chunks asked for, and fits into memory"
        why = next((each.refusal for each in ranked if each.refusal), why)
        data: Data = {"what": "slices", "count": 1, "asked": slices, "reason": why}
        unmet.append(Note(NoteCode.FEWER, data))
    return tuple(sorted(judged.values(), key=_rank)), estimates.passes


def _counts(base: Candidate) -> tuple[int, ...]:
    """Chunks per device group to try: two, and more where groups get equal numbers of layers, or
    powers of two where layers are not known."""
    groups, layers = len(base.shape.meshes), sum(map(len, base.proposal.layers))
    if layers <= groups:
        return tuple(n for n in range(CHUNKS, BUDGET.most_chunks + 1) if n.bit_count() == 1)
    more = (n for n in range(CHUNKS + 1, BUDGET.most_chunks + 1) if layers % (groups * n) == 0)
    return (CHUNKS, *more)


def _is_enough(fewer: Sequence[JudgedSchedule], first_s: float, below_s: float) -> bool:
    """Whether more chunks cannot bring a family below a step time: they gain no more than the last
    increase did. Numbers that the family does not support say nothing.

    Args:
        first_s: the step without chunks.
    """
    steps = [first_s, *(each.step_time_s for each in fewer if each.step_time_s)]
    return len(steps) > 1 and steps[-1] - max(steps[-2] - steps[-1], 0.0) >= below_s


def _ways(
    counts: Sequence[int], chunks: int | Auto, slices: int | Auto
) -> Iterator[tuple[ScheduleFamily, int, int]]:
    """Every family that runs, with its numbers of chunks (`counts`, where it supports any) and of
    slices."""
    for family in built_in().values():
        if family.any_placement or family.moves:
            continue
        parts = family.num_slices(None if slices == "auto" or not family.slices else slices)
        if slices not in ("auto", parts) or (parts > 1) is not family.slices:
            continue
        for own in family.chunks[:1] or counts:
            if chunks in ("auto", own):
                yield family, own, parts


def _is_beaten(each: JudgedSchedule, scale: float, best: Candidate) -> bool:
    """Whether the best plan so far is faster than the estimate of a schedule, times `scale`, or
    hardly slower. A schedule with a shorter estimate may have turned out slower than this one."""
    same = (each.chunks, each.slices) == (best.shape.num_chunks, best.shape.num_slices)
    return scale * each.step_time_s >= (SAME if same else WORTH) * best.seconds


def _near(ranked: list[JudgedSchedule]) -> list[JudgedSchedule]:
    able = [each for each in ranked if not each.refusal]
    near = [each for each in able if each.step_time_s <= NEAR * able[0].step_time_s]
    return near[: BUDGET.most_near]


def _reordered(tried: Attempts, estimates: Estimates) -> JudgedSchedule:
    """The best order on the placement of the best plan; `tried` keeps it if it is faster."""
    assert tried.best is not None
    shape = tried.best.shape
    family = best_orders()[shape.schedule]
    found = estimates.of(family, shape.num_chunks, slices=shape.num_slices)
    if found.refusal:
        return found
    proposal = estimates.proposal(found)
    assert isinstance(proposal, Proposal), "the best plan has as many chunks"
    planned = tried.plan(proposal, BUDGET.final)
    if isinstance(planned, Candidate):
        return _planned(planned)
    return msgspec.structs.replace(found, refusal="does not fit into memory")


def _rank(each: JudgedSchedule) -> tuple[bool, float, int, int, str]:
    seconds = float(f"{each.step_time_s:.9g}")
    return bool(each.refusal), seconds, each.chunks, each.peak_bytes, each.name


def _planned(found: Candidate) -> JudgedSchedule:
    shape, peak = found.shape, found.peak_bytes
    return JudgedSchedule(
        shape.schedule,
        shape.num_chunks,
        found.seconds,
        peak,
        is_planned=True,
        slices=shape.num_slices,
        lower_bound_s=found.least_seconds,
    )

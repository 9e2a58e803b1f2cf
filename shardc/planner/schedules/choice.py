"""Chooses the schedule of a pipeline: the shortest simulated step among those that fit.

The search over shapes uses 1f1b and eager-1f1b (`shardc.planner.shapes`). This module estimates
every other family that runs on the winning shape, plans the best ones as they will run, and keeps
the shortest step. It does the same for the pipeline that would be clearly faster with almost no
bubble, if there is one. For `optimal` it then searches for a better order on the placement of the
best.
"""

import functools
import math
from collections.abc import Collection, Iterator, Sequence

import msgspec

from shardc.options import Auto
from shardc.plan.notes import Data, Note, NoteCode
from shardc.plan.predicted import JudgedSchedule
from shardc.plan.shape import PipelineShape
from shardc.planner.attempts import Attempts
from shardc.planner.budget import BUDGET
from shardc.planner.candidate import Candidate
from shardc.planner.promising import Promising
from shardc.planner.proposal import Found, Key, Proposal
from shardc.planner.schedules.estimates import Estimates
from shardc.planner.shapes import ShapeSearch
from shardc.planner.split_cache import Splits
from shardc.schedule.families import built_in
from shardc.schedule.family import ScheduleFamily
from shardc.schedule.registry import best_orders

NEAR = 1.1  # for `optimal`: all estimated to take at most so much longer are planned
# A schedule must be estimated faster by this factor, because estimates are not closer: on the same
# stages; and with stages that are cut in another way, which also take longer to plan.
SAME, WORTH = 0.998, 0.98
CHUNKS = 2  # the least of a family that supports any number
FORWARD_SHARE = 1 / 3  # of a stage's time for a microbatch


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

    weigh = functools.partial(
        _weigh, tried, splits, chunks, slices, limit_bytes, unmet, reorder, promising
    )
    weighed = weigh(tried.best)
    if promising is None or reorder or chunks != "auto" or slices != "auto":
        return weighed
    known = {_size(tried.best.shape)}
    for _ in range(BUDGET.most_pipelines):
        if not tried.may_plan_another(BUDGET.ranked_ops):
            break
        other = _without_bubble(promising.search, WORTH * tried.best_s, known)
        if other is None:
            break
        known.add(_size(other.shape))
        base = tried.plan(other, BUDGET.final)
        if isinstance(base, Candidate):
            again = weigh(base)
            weighed = again if _size(tried.best.shape) == _size(base.shape) else weighed
    return weighed


def _size(shape: PipelineShape) -> tuple[int, int]:
    """Device groups and microbatches."""
    return shape.num_stages // shape.num_chunks, shape.num_microbatches


def _without_bubble(
    search: ShapeSearch, below_s: float, known: Collection[tuple[int, int]]
) -> Proposal | None:
    """The pipeline that would be the fastest if its devices waited only until the first microbatch
    reaches them; None if none would take less than `below_s`.

    Args:
        known: device groups and microbatches of pipelines that do not count.
    """
    if not search.prices.backward:
        return None

    def filled(key: Key) -> float:
        """The share of a step that is left when almost all of its bubble is filled."""
        behind = key.num_stages - 1
        return (key.num_microbatches + FORWARD_SHARE * behind) / (key.num_microbatches + behind)

    def may_win(key: Key) -> bool:
        if key.num_stages == 1 or (key.num_stages, key.num_microbatches) in known:
            return False
        return search.least_s(key) * filled(key) < below_s

    found: tuple[float, Found] | None = None
    for each in search.estimated(may_win):
        least_s = each.pipeline.step_time_s * filled(each.key)
        if least_s < (below_s if found is None else found[0]):
            found = least_s, each
    return None if found is None else search.proposal(found[1])


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
) -> tuple[JudgedSchedule, ...]:
    """Plans the pipeline of `base` with the schedules that are best for it."""
    assert tried.best is not None
    if len(base.shape.meshes) == 1:
        return ()
    estimates = Estimates(base, tried.cluster, splits, promising, proved=slices == "auto")
    if not estimates.work.backward:
        return ()
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
    return tuple(sorted(judged.values(), key=_rank))


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

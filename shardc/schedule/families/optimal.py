"""The optimal order: the best known one, improved by CP-SAT, with a proven lower bound.

It minimises the span: the longest time from a group's first start to its last end, which is the
step time if the next step starts without a barrier. With a barrier it minimises the makespan.
Stages may take unlike times, and transfers depend on the value that is sent.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from shardc.errors import InfeasibleError
from shardc.schedule.check import peaks
from shardc.schedule.families import built_in
from shardc.schedule.family import Costs, Lanes, Planned, ScheduleFamily, framed, most_held, sliced
from shardc.schedule.orders.improve import Length, improved_order, length_of
from shardc.schedule.orders.known_orders import known_orders
from shardc.schedule.placement import looped, zigzag
from shardc.schedule.tasks import ONCE_PER_STEP, Amount, Schedule
from shardc.schedule.work import Placement, Work

MOST_IMPROVED = 2  # placements on which the search improves the best known order


def place(work: Work) -> Placement:
    return zigzag(work) if work.chunks == 2 else looped(work)


@dataclass(frozen=True)
class Optimal(ScheduleFamily):
    """A family that searches for its order, and for the placement of its stages."""

    def plan(
        self, base: Work, costs: Costs, chunks: int | None = None, slices: int | None = None
    ) -> Planned:
        """The best order found, on the placement of any family.

        Args:
            chunks: only placements with so many stages per group, and one copy of each.
            slices: only placements with so many token slices; None: those that families
                have by default, or with `chunks` whole sequences.
        Raises:
            ScheduleError: SHARDC-242, there is no such placement.
            InfeasibleError: SHARDC-220, no order fits into the allowed activations.
        """
        self.num_chunks(chunks)
        start_s = time.monotonic()
        found: list[tuple[Length, int, Planned]] = []
        for number, (work, families) in enumerate(self.placements(base, chunks, slices)):
            known = _best_known(work, families[0].place(work), families, costs)
            if known is not None:
                found.append((length_of(known, costs), number, known))
        if not found:
            raise _too_little(costs)
        found.sort(key=lambda each: each[:2])
        best = found[0][2]
        if not base.backward:
            return best
        left_s = costs.time_limit_s - (time.monotonic() - start_s)
        tried = found[:MOST_IMPROVED]
        for number, (_, _, known) in enumerate(tried):
            if number and length_of(best, costs)[0] == best.lower_bound:
                break
            improved = improved_order(known, costs, left_s, len(tried))
            if not number or length_of(improved, costs) < length_of(best, costs):
                best = improved
        return best

    def num_slices(self, asked: int | None = None) -> int:
        """Token slices of each microbatch; whole sequences if nothing is asked."""
        return asked or 1

    def placements(
        self, base: Work, chunks: int | None, slices: int | None
    ) -> list[tuple[Work, list[ScheduleFamily]]]:
        """The work of each placement and the families that have it; simple ones first."""
        if slices is None and chunks is not None:
            slices = 1
        found: dict[tuple[Work, Placement], list[ScheduleFamily]] = {}
        for family in built_in().values():
            if family.any_placement or family.moves:
                continue
            if chunks is not None and family.replicas > 1:
                continue
            if (slices is not None and family.slices != (slices > 1)) or (
                chunks is not None and family.chunks and chunks not in family.chunks
            ):
                continue
            work = replace(
                base,
                chunks=family.num_chunks(chunks),
                slices=family.num_slices(slices),
                replicas=family.replicas,
                split_backward=base.backward,
            )
            if not family.refuses(work):
                found.setdefault((work, family.place(work)), []).append(family)
        ways = [(work, families) for (work, _), families in found.items()]
        return sorted(ways, key=lambda way: (way[0].replicas, way[0].slices, way[0].chunks))


def order(work: Work, costs: Costs) -> Lanes:
    """The lanes of the best order on `place(work)`, without P and U."""
    placement = place(work)
    families = [
        family
        for own, each in FAMILIES[0].placements(work, work.chunks, work.slices)
        for family in each
        if family.place(own) == placement
    ]
    known = _best_known(work, placement, families, costs)
    if known is None:
        raise _too_little(costs)
    return _lanes(improved_order(known, costs, costs.time_limit_s))


@dataclass(frozen=True)
class BestOrder(ScheduleFamily):
    """The family that searches for the best order on the placement of another, within its memory.

    Attributes:
        of: the other family.
    """

    of: ScheduleFamily = field(kw_only=True)

    def bound(self, work: Work, costs: Costs) -> Amount | None:
        """No order of F, B and W on this placement, within the memory of the family, is shorter."""
        return _found(self.of, self.whole(work), costs).lower_bound


def best_order_on(family: ScheduleFamily) -> ScheduleFamily:
    """The search for the best order on the placement of `family`."""
    return BestOrder(
        f"optimal:{family.name}",
        lambda work, costs: _lanes(_found(family, work, costs)),
        split_backward=True,
        chunks=family.chunks,
        replicas=family.replicas,
        slices=family.slices,
        place=family.place,
        refuses=family.refuses,
        searches=lambda work: True,
        about=f"the best order found on the placement of {family.name}",
        of=family,
    )


@lru_cache(maxsize=16)
def _found(family: ScheduleFamily, work: Work, costs: Costs) -> Planned:
    """The best order found on the placement of a family, within its memory, with a bound."""
    own = replace(work, split_backward=family.split_backward)
    schedule = family.generate(own)
    within = replace(costs, max_activations=max(peaks(schedule, family.graph(own, schedule))))
    placement = family.place(work)
    known = _best_known(work, placement, [family], within)
    if known is None:  # none holds as little on each stage
        return _found(family, work, Costs(time_limit_s=0))
    improved = improved_order(known, within, costs.time_limit_s)
    if _fits(improved, within):
        return improved
    return replace(known, lower_bound=improved.lower_bound)


def _too_little(costs: Costs) -> InfeasibleError:
    return InfeasibleError(
        f"no order holds at most {float(costs.max_activations or 0):g} microbatches'"
        " activations on every device",
        help="allow at least 1, or use more stages",
        code="SHARDC-220",
    )


def _lanes(planned: Planned) -> Lanes:
    return [[t for t in lane if t.kind not in ONCE_PER_STEP] for lane in planned.schedule.lanes]


def _best_known(
    work: Work, placement: Placement, families: list[ScheduleFamily], costs: Costs
) -> Planned | None:
    """The shortest order that fits, among those of families and some greedy ones."""
    shares: tuple[Amount, ...] = ()
    if work.slices > 1 and costs.attention_share:
        tokens, shares = sliced(work, costs.attention_share)
        work = replace(work, slice_tokens=tokens)
    graph = work.graph(placement)
    best: tuple[Length, Planned] | None = None
    for schedule in _schedules(work, placement, families, costs):
        planned = Planned(work, schedule, graph, slice_shares=shares)
        length = length_of(planned, costs)
        if (best is None or length < best[0]) and _fits(planned, costs):
            best = length, planned
    return None if best is None else best[1]


def _schedules(
    work: Work, placement: Placement, families: list[ScheduleFamily], costs: Costs
) -> Iterator[Schedule]:
    seen = set()
    for lanes in known_orders(work, placement, families, costs):
        whole = framed(lanes, work, placement)
        if whole not in seen:
            seen.add(whole)
            yield Schedule(whole)


def _fits(planned: Planned, costs: Costs) -> bool:
    if costs.most_held:
        held = zip(most_held(planned.schedule, planned.work), costs.most_held, strict=True)
        if any(own > most for own, most in held):
            return False
    most = costs.max_activations
    return most is None or max(peaks(planned.schedule, planned.graph)) <= most


FAMILIES = (
    Optimal(
        "optimal",
        order,
        split_backward=True,
        chunks=(1, 2),
        place=place,
        searches=lambda work: True,
        any_placement=True,
        about="the shortest span that is found in time, with a bound",
    ),
)

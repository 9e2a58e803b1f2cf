"""Swaps of neighbours make an order shorter, and keep what it computes and holds."""

from collections.abc import Sequence
from fractions import Fraction as Fr

import pytest

from shardc.schedule.check import check, peaks
from shardc.schedule.families import built_in
from shardc.schedule.family import Costs, framed
from shardc.schedule.orders.fill import Filler
from shardc.schedule.orders.neighbour_swaps import shortened
from shardc.schedule.placement import looped, zigzag
from shardc.schedule.simulate import lengths
from shardc.schedule.tasks import BACKWARD, FORWARD, WEIGHT, Amount, Schedule, Task
from shardc.schedule.times import Times
from shardc.schedule.work import Placement, Work

KINDS = (FORWARD, BACKWARD, WEIGHT)


def one_by_one(work: Work) -> list[list[Task]]:
    """The longest order of one chunk per group: each microbatch alone."""
    return [
        [Task(stage, kind, k) for k in work.microbatches() for kind in KINDS]
        for stage in range(work.num_stages)
    ]


def work_of(p: int, m: int, chunks: int = 1, weight_share: Amount = 1) -> Work:
    return Work(
        p,
        m,
        chunks=chunks,
        split_backward=True,
        prologue=False,
        update_rounds=0,
        weight_share=weight_share,
    )


def makespan(work: Work, place: Placement, lanes: Sequence[Sequence[Task]], costs: Costs) -> Amount:
    schedule = Schedule(framed(lanes, work, place))
    return lengths(schedule, work.graph(place), costs.durations(work), costs.send_s)[1]


@pytest.mark.parametrize("weight_share", [1, Fr(1, 2)])
@pytest.mark.parametrize("limit", [2, None])
@pytest.mark.parametrize("times", [Times(), Times(2, 3, 1), Times(3, 1, 0), Times(0.1, 0.7, 0.3)])
def test_an_order_gets_shorter_and_holds_no_more_than_it_may(
    times: Times, limit: int | None, weight_share: Amount
) -> None:
    work, costs = work_of(3, 4, weight_share=weight_share), Costs(times, Fr(1, 4))
    place = looped(work)
    before = one_by_one(work)
    found = shortened(Filler(work, place, costs, limit), before, 200)
    schedule = Schedule(framed(found, work, place))
    check(schedule, work.graph(place), None if limit is None else [limit] * 3)
    assert [sorted(lane) for lane in found] == [sorted(lane) for lane in before]
    assert makespan(work, place, found, costs) < makespan(work, place, before, costs)


@pytest.mark.parametrize("times", [Times(0, 1, 1), Times(0, 0, 0), Times(1, 1, 1)])
def test_neighbours_that_wait_for_each_other_by_others_keep_their_order(times: Times) -> None:
    """The second chunk's forward waits for the first chunk's by way of the other group. If these
    take no time, both may be neighbours on the longest chain, and a swap would be a deadlock."""
    work, costs = work_of(2, 3, chunks=2), Costs(times)
    place = zigzag(work)
    before = [
        [
            Task(stage, kind, k)
            for k in work.microbatches()
            for kind, stages in (
                (FORWARD, (g, 3 - g)),
                (BACKWARD, (3 - g, g)),
                (WEIGHT, (g, 3 - g)),
            )
            for stage in stages
        ]
        for g in range(2)
    ]
    found = shortened(Filler(work, place, costs), before, 200)
    check(Schedule(framed(found, work, place)), work.graph(place))


def test_without_moves_the_order_stays() -> None:
    work = work_of(3, 4)
    before = one_by_one(work)
    assert shortened(Filler(work, looped(work), Costs()), before, 0) == before


def test_room_for_one_microbatch_leaves_the_forwards_apart() -> None:
    """A forward never moves in front of the weight gradient that makes room for it."""
    work = work_of(2, 3)
    place = looped(work)
    found = shortened(Filler(work, place, Costs(), 1), one_by_one(work), 100)
    assert peaks(Schedule(framed(found, work, place)), work.graph(place)) == (1, 1)
    found = shortened(Filler(work, place, Costs()), one_by_one(work), 100)
    assert max(peaks(Schedule(framed(found, work, place)), work.graph(place))) > 1


@pytest.mark.parametrize("p", [2, 3, 4])
def test_the_longest_order_becomes_about_as_short_as_the_handcrafted_one(p: int) -> None:
    """From one microbatch at a time to within a tenth of ZB-H1, in as much memory."""
    work, costs = work_of(p, 2 * p), Costs(Times(5, 4, 3))
    place = looped(work)
    found = shortened(Filler(work, place, costs, p), one_by_one(work), 1000)
    best = built_in()["zb-h1"].order(work, costs)
    assert makespan(work, place, found, costs) <= 1.1 * makespan(work, place, best, costs)


@pytest.mark.parametrize("times", [Times(), Times(3, 2, 1)])
def test_more_moves_are_never_worse(times: Times) -> None:
    work, costs = work_of(4, 8, chunks=2), Costs(times, Fr(1, 2))
    place = zigzag(work)
    filler = Filler(work, place, costs, 3)
    start = built_in()["v-min"].order(work, Costs(is_rough=True))
    found = [
        makespan(work, place, shortened(filler, start, moves), costs) for moves in range(0, 60, 4)
    ]
    assert found == sorted(found, reverse=True)
    assert found[-1] < found[0]

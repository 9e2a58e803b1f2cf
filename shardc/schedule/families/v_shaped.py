"""V-shaped pipelines: two chunks per group, the second on the way back, which balances memory.

A group that holds its first chunk's activations for long holds its second's only briefly. Each
schedule repeats one pattern per microbatch, with a period of six slots; the offsets in the pattern
determine how many microbatches are in flight.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from shardc.schedule.family import Costs, Lanes, Order, ScheduleFamily, framed
from shardc.schedule.orders.fill import Filler, Filling
from shardc.schedule.orders.neighbour_swaps import shortened
from shardc.schedule.orders.squeeze import Lane, squeeze, with_weights
from shardc.schedule.placement import zigzag
from shardc.schedule.simulate import lengths
from shardc.schedule.tasks import BACKWARD, FORWARD, WEIGHT, Amount, Schedule, Task
from shardc.schedule.work import Work

PERIOD = 6  # slots: F of two chunks, B and W of two chunks (or X of two slots each)

FILLINGS = (Filling(), Filling(level=True), Filling(patience=1))
BETWEEN = tuple(Filling(patience=Fraction(n, 10)) for n in (2, 4, 7))
OVERTAKING = (
    Filling(by_kind=True),
    *(Filling(loose=True, reserve=reserve) for reserve in (1, 2, 4)),
)
MOST_TASKS = 1024  # forwards of a step up to which all fillings are tried
MOST_SHORTENED = 8  # orders, the shortest first, whose neighbours are swapped
MOST_MOVES = 200  # of each of them
MOST_TIMED = 2_000_000  # tasks, over all their moves: a second or two
QUICK_TASKS = 256  # forwards of a step up to which the search is fast

Offsets = Sequence[tuple[int, int, int, int]]
"""Per group, the slots of F and F on the way back, B on the way back and B, of microbatch 0."""


def half(p: int) -> Iterator[Offsets]:
    """About p / 2 microbatches in flight: forwards go at half speed."""
    delay = 3 if p % 2 == 0 else 0
    yield [
        (2 * i, 3 * p - i - 2, 3 * p + delay + 2 * i - 1, 6 * p + delay - i - 2) for i in range(p)
    ]


def least(p: int) -> Iterator[Offsets]:
    """About p / 3 microbatches in flight: everything goes at full speed."""
    for delay in (2 if p % 3 == 0 else 0, 3):
        yield [(i, 2 * p - 1 - i, 2 * p + delay + i, 4 * p + delay - 1 - i) for i in range(p)]


def two_thirds(p: int) -> Iterator[Offsets]:
    """Whole backwards of two slots each: forwards at full speed, backwards at a third.

    The free slots between a group's forwards can be paired in one or two ways. The backward on
    the way back takes the first pair that becomes free, the other backward takes the rest.
    """
    for turn in (0, 2, 4):
        for delay in (0, 1):
            yield _paired([(i, 2 * p - 1 - i + turn) for i in range(p)], 2 * p + turn + delay)


def _paired(forwards: Sequence[tuple[int, int]], slot: int) -> Offsets:
    there, left = [], []
    for ahead, back in forwards:
        taken = {ahead % PERIOD, back % PERIOD}
        while True:
            own = {slot % PERIOD, (slot + 1) % PERIOD}
            rest = sorted(set(range(PERIOD)) - taken - own)
            if not taken & own and rest[1] - rest[0] in (1, PERIOD - 1):
                break
            slot += 1
        there.append(slot)
        left.append(rest[0] if rest[1] - rest[0] == 1 else rest[1])
        slot += 2
    back_again = []
    for wanted in reversed(left):
        slot += (wanted - slot) % PERIOD
        back_again.append(slot)
        slot += 2
    return [
        (*pair, x2, x1) for pair, x2, x1 in zip(forwards, there, reversed(back_again), strict=True)
    ]


def repeating(offsets_of: Callable[[int], Iterator[Offsets]], most: Callable[[int], int]) -> Order:
    """The pattern that is fastest once its gaps are squeezed out, among those that fit; then
    neighbours are swapped as long as that makes it shorter.

    Args:
        most: (p) -> microbatches that a group may hold.
    """

    def order(work: Work, costs: Costs) -> Lanes:
        limit = most(work.num_groups)
        patterns = [_slots(work, offsets) for offsets in offsets_of(work.num_groups)]
        tight = [_in_order(each) for own in patterns for each in _squeezed(work, own, limit)]
        loose = [*map(_in_order, patterns)]
        few = costs.is_rough or work.num_stages * work.num_microbatches > MOST_TASKS
        many = work.split_backward and not costs.is_rough
        fillings = (*FILLINGS, *BETWEEN) if many else FILLINGS[:1]
        filler = Filler(work, zigzag(work), costs, limit)
        found = _filled(filler, tight, fillings)
        found += _filled(filler, loose, OVERTAKING[:1] if few else OVERTAKING)
        if not found:  # what ran early took the room of others: keep more free
            found = _filled(filler, loose, OVERTAKING)
        ranked = _ranked(found, work, costs)
        if costs.is_rough:
            return ranked[0]
        moves = min(MOST_MOVES, MOST_TIMED // (MOST_SHORTENED * len(filler.tasks)))
        shorter = [shortened(filler, lanes, moves) for lanes in ranked[:MOST_SHORTENED]]
        return _ranked([ranked[0], *shorter], work, costs)[0]

    return order


def _slots(work: Work, offsets: Offsets) -> list[list[tuple[int, Task]]]:
    """Per group, (slot, task) of F and B of all microbatches."""
    last = work.num_stages - 1
    lanes = []
    for group, (ahead, back, back_again, home) in enumerate(offsets):
        slots: list[tuple[int, Task]] = []
        for k in work.microbatches():
            at = PERIOD * k
            slots += [
                (at + ahead, Task(group, FORWARD, k)),
                (at + back, Task(last - group, FORWARD, k)),
                (at + back_again, Task(last - group, BACKWARD, k)),
                (at + home, Task(group, BACKWARD, k)),
            ]
        lanes.append(slots)
    return lanes


def _squeezed(
    work: Work, pattern: Sequence[Lane], limit: int
) -> Iterator[list[list[tuple[int, Task]]]]:
    """The pattern without the gaps at its start and end, and optionally those in between."""
    graph, room = work.graph(zigzag(work)), limit * work.chunks
    if not work.split_backward:
        slots = {task: slot for lane in pattern for slot, task in lane}
        yield _moved(pattern, squeeze(slots, graph, {FORWARD: 1, BACKWARD: 2}, room=room))
        return
    one = dict.fromkeys((FORWARD, BACKWARD, WEIGHT), 1)
    slots = {task: slot for lane in pattern for slot, task in with_weights(lane)}
    unsplit = replace(work, split_backward=False).graph(zigzag(work))
    last = Task(0, FORWARD, work.num_microbatches - 1)
    for still in (range(0), range(slots[Task(0, BACKWARD)], slots[last] + 1)):
        early = squeeze(slots, graph, one, room=room, still=still)
        # After the last forward only weights delay backwards, and weights can wait.
        early = {task: slot for task, slot in early.items() if task.kind != WEIGHT}
        yield _moved(pattern, squeeze(early, unsplit, one, start=early[last]))


def _moved(pattern: Sequence[Lane], slots: Mapping[Task, int]) -> list[list[tuple[int, Task]]]:
    return [[(slots[task], task) for _, task in lane] for lane in pattern]


def _in_order(lanes: Sequence[Lane]) -> Lanes:
    """In one slot, forwards come first, and the first chunk's."""
    return [
        [task for _, task in sorted(lane, key=lambda e: (e[0], e[1].kind != FORWARD, e[1].stage))]
        for lane in lanes
    ]


def _filled(filler: Filler, orders: Iterable[Lanes], fillings: Sequence[Filling]) -> list[Lanes]:
    """Orders of F and B, each filled with weights in several ways; only those that fit."""
    filled = (filler.fill(order, filling) for order in orders for filling in fillings)
    return [lanes for lanes in filled if lanes is not None]


def _ranked(orders: Sequence[Lanes], work: Work, costs: Costs) -> list[Lanes]:
    """Distinct ones by span; ties are broken by the length of the step, then by position."""
    assert orders, f"no order of {work.num_groups} groups fits"
    graph, of = work.graph(zigzag(work)), costs.durations(work)

    def takes(lanes: Lanes) -> tuple[Amount, Amount]:
        schedule = Schedule(framed(lanes, work, zigzag(work)))
        return lengths(schedule, graph, of, costs.send_s)

    distinct = dict.fromkeys(tuple(map(tuple, lanes)) for lanes in orders)
    return sorted(distinct, key=takes)


def zero_bubble(work: Work, costs: Costs) -> Lanes:
    """ZB-V: memory of 1F1B's first stage, no bubble if F, B and W take the same time."""
    filler = Filler(work, zigzag(work), costs, work.num_groups)
    return _ranked(_filled(filler, [_zero_bubble(work)], FILLINGS), work, costs)[0]


def _zero_bubble(work: Work) -> Lanes:
    """F and B of ZB-V: the first chunk runs ahead until the second chunk's first backward."""
    p, m, last = work.num_groups, work.num_microbatches, work.num_stages - 1
    lanes = []
    for group in range(p):
        ahead = min(m, 2 * (p - group) - 1)
        kinds = ["f"] * ahead + ["g", "f"] * group + ["g", "c"] * (p - group)
        while kinds.count("f") < m or kinds.count("g") < m:
            kinds += ["f", "b", "g", "c"]
        kinds += ["b", "c"] * m + ["b"] * m
        count = dict.fromkeys("fgbc", 0)
        lane = []
        for kind in kinds:
            if count[kind] < m:
                stage = last - group if kind in "gc" else group
                lane.append(Task(stage, FORWARD if kind in "fg" else BACKWARD, count[kind]))
                count[kind] += 1
        lanes.append(lane)
    return lanes


def _tries_many(work: Work) -> bool:
    return work.num_stages * work.num_microbatches > QUICK_TASKS


def _family(
    name: str,
    order: Order,
    about: str,
    *,
    split: bool = True,
    searches: Callable[[Work], bool] = _tries_many,
) -> ScheduleFamily:
    return ScheduleFamily(
        name,
        order,
        split_backward=split,
        chunks=(2,),
        place=zigzag,
        searches=searches,
        about=about,
    )


FAMILIES = (
    _family(
        "zb-v",
        zero_bubble,
        "no bubble with 1F1B's memory, on every group the same",
        searches=lambda work: False,
    ),
    _family(
        "v-half",
        repeating(half, lambda p: (p + 2) // 2),
        "half of 1F1B's memory, half of its bubble",
    ),
    _family(
        "v-min",
        repeating(least, lambda p: (p + 4) // 3),
        "a third of 1F1B's memory, two thirds of its bubble",
    ),
    _family(
        "1f1b-v",
        repeating(two_thirds, lambda p: -(-2 * p // 3)),
        "two thirds of 1F1B's memory without splitting the backward",
        split=False,
    ),
)

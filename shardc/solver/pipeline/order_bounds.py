"""What no order of a pipeline's tasks can beat, known without a search.

Each lane is a machine whose tasks become ready after the longest chain of tasks in front of them,
and are followed by the longest chain behind. With interruptions allowed, the shortest such schedule
is found exactly, by always running the task with the longest chain behind it (Jackson; Carlier,
EJOR 11, 1982).
"""

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush

UNREACHED = -1
ROUNDS = 4  # of finding what waits for room: what waits is itself in front of more


@dataclass(frozen=True)
class OrderProblem:
    """Tasks by number, all times in one whole unit.

    Attributes:
        lane_of, duration: of each task; a lane runs one task at a time.
        needs: (before, after, delay): `after` starts at least `delay` after the end of `before`.
        buffers: (lane, size, maker, user): room taken from the start of maker to the end of user.
        capacity: room of each lane; None: no limit.
        alike: interchangeable tasks of one lane, which may as well run in this order (the same
            work on consecutive microbatches).
        from_zero: a lane's span begins at time 0, not with its first task.
    """

    lane_of: tuple[int, ...]
    duration: tuple[int, ...]
    needs: tuple[tuple[int, int, int], ...]
    buffers: tuple[tuple[int, int, int, int], ...]
    capacity: int | None
    alike: tuple[tuple[int, ...], ...]
    from_zero: bool = False


def span_of(problem: OrderProblem, starts: Sequence[int]) -> int:
    """The longest time from a lane's first start, or from 0, to its last end."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for lane, start, duration in zip(problem.lane_of, starts, problem.duration, strict=True):
        begin = 0 if problem.from_zero else start
        first[lane] = min(first.get(lane, begin), begin)
        last[lane] = max(last.get(lane, 0), start + duration)
    return max((last[lane] - first[lane] for lane in first), default=0)


class Dependences:
    """What each task waits for in any order, in an order that agrees with it.

    Attributes:
        for_room: (user, maker): the maker's buffer fits only when this user has ended. Until then
            too much is held: what tasks in front of the maker make and tasks behind the user free.
    """

    def __init__(self, problem: OrderProblem) -> None:
        self.problem = problem
        self.takes = problem.duration
        self.behind: list[list[tuple[int, int]]] = [[] for _ in self.takes]
        for before, after, delay in problem.needs:
            self.behind[before].append((after, delay))
        for chain in problem.alike:
            for before, after in itertools.pairwise(chain):
                self.behind[before].append((after, 0))
        self.order = self._sorted()
        self.for_room: list[tuple[int, int]] = []
        for _ in range(ROUNDS):
            found = self._waits_for_room()
            self.for_room += found
            for user, maker in found:
                self.behind[user].append((maker, 0))
            if not found:
                break
            self.order = self._sorted()

    def _sorted(self) -> list[int]:
        pending = [0] * len(self.takes)
        for each in self.behind:
            for after, _ in each:
                pending[after] += 1
        order = [task for task, count in enumerate(pending) if not count]
        for task in order:
            for after, _ in self.behind[task]:
                pending[after] -= 1
                if not pending[after]:
                    order.append(after)
        assert len(order) == len(self.takes), "a known order has no cycle"
        return order

    def _waits_for_room(self) -> list[tuple[int, int]]:
        problem, room = self.problem, self.problem.capacity
        if room is None:
            return []
        # Bit n of a number stands for buffer n, or for task n.
        made, freed, later = ([0] * len(self.takes) for _ in range(3))
        of_lane: dict[int, dict[int, int]] = {}  # size -> buffers
        for number, (lane, size, maker, user) in enumerate(problem.buffers):
            made[maker] |= 1 << number
            freed[user] |= 1 << number
            sizes = of_lane.setdefault(lane, {})
            sizes[size] = sizes.get(size, 0) | 1 << number
        for task in self.order:
            for after, _ in self.behind[task]:
                made[after] |= made[task]
        for task in reversed(self.order):
            later[task] |= 1 << task
            for after, _ in self.behind[task]:
                freed[task] |= freed[after]
                later[task] |= later[after]

        def held(maker: int, user: int) -> int:
            both, sizes = made[maker] & freed[user], of_lane[problem.lane_of[maker]]
            return sum(size * (both & own).bit_count() for size, own in sizes.items())

        makers = {maker for _, _, maker, _ in problem.buffers}
        found = []
        for chain in problem.alike:
            if not makers.issuperset(chain):
                continue
            lane = problem.lane_of[chain[0]]
            for user in (i for i, each in enumerate(problem.lane_of) if each == lane):
                at = bisect_right(chain, room, key=partial(held, user=user))
                if at < len(chain) and not later[user] >> chain[at] & 1:
                    found.append((user, chain[at]))
        return found

    def least_span(self) -> int:
        """A lower bound on `span_of` over all orders."""
        return max(map(self.least_of, set(self.problem.lane_of)), default=0)

    def least_of(self, lane: int) -> int:
        """A lower bound on the span of one lane."""
        own = [i for i, each in enumerate(self.problem.lane_of) if each == lane and self.takes[i]]
        if not own:
            return 0
        if self.problem.from_zero:
            return _preemptive(own, self.takes, self.heads(self.order), self.tails(self.order))
        # Some task runs first: one that waits for none of the lane; and some task last. Bounds hold
        # in relation to these.
        heads = [self.heads([first]) for first in self.ends(own, forward=True)]
        tails = [self.tails([last]) for last in self.ends(own, forward=False)]
        return min(
            _preemptive(own, self.takes, head, tail)
            for head, tail in itertools.product(heads, tails)
        )

    def ends(self, own: Sequence[int], *, forward: bool) -> list[int]:
        """The tasks of a lane that can run first; or, not `forward`, last."""
        inside = set(own)
        near = [False] * len(self.takes)  # whether one of the lane is in front, or behind
        for task in self.order if forward else reversed(self.order):
            for other, _ in self.behind[task]:
                one, two = (task, other) if forward else (other, task)
                near[two] = near[two] or near[one] or one in inside
        return [task for task in own if not near[task]]

    def heads(self, sources: Sequence[int]) -> list[int]:
        """The least time from the earliest start of one of `sources` to the start of each task."""
        found = [UNREACHED] * len(self.takes)
        for task in sources:
            found[task] = 0
        for task in self.order:
            if found[task] == UNREACHED:
                continue
            end = found[task] + self.takes[task]
            for after, delay in self.behind[task]:
                found[after] = max(found[after], end + delay)
        return found

    def tails(self, sinks: Sequence[int]) -> list[int]:
        """The least time from the end of each task to the end of the last of `sinks`."""
        found = [UNREACHED] * len(self.takes)
        for task in sinks:
            found[task] = 0
        for task in reversed(self.order):
            for after, delay in self.behind[task]:
                if found[after] != UNREACHED:
                    found[task] = max(found[task], delay + self.takes[after] + found[after])
        return found


def _preemptive(
    own: Sequence[int], takes: Sequence[int], heads: Sequence[int], tails: Sequence[int]
) -> int:
    """The least time until all tasks of a machine and what follows them have ended, if tasks can be
    interrupted."""
    coming = sorted((max(heads[task], 0), task) for task in own)
    waiting: list[tuple[int, int]] = []  # (-tail, time left)
    now = at = longest = 0
    while at < len(coming) or waiting:
        if not waiting:
            now = max(now, coming[at][0])
        while at < len(coming) and coming[at][0] <= now:
            task = coming[at][1]
            heappush(waiting, (-max(tails[task], 0), takes[task]))
            at += 1
        tail, left = heappop(waiting)
        until = min(now + left, coming[at][0]) if at < len(coming) else now + left
        if until < now + left:
            heappush(waiting, (tail, left - (until - now)))
        else:
            longest = max(longest, until - tail)
        now = until
    return longest

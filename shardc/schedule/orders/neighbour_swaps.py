"""Shortens an order by swapping neighbours on its longest chain: tabu search.

A step lasts as long as its longest chain of tasks, each of which waits for the result of the one in
front or for its turn. While all neighbours of a lane on that chain keep their order, the step gets
no shorter. So each move swaps two of them: those whose own chains are then shortest, even if the
step gets longer, which leads out of local optima. A schedule repeats a pattern per microbatch, so a
move makes the same swap in every microbatch of the chain. For some moves the two may not be swapped
back, unless the order promises to be the shortest so far.

Source: Nowicki, Smutnicki, "A fast taboo search algorithm for the job shop problem", Management
Science 42(6), 1996; the estimate of a swap: Taillard, ORSA Journal on Computing 6(2), 1994.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from shardc.schedule.orders.fill import Filler
from shardc.schedule.tasks import Amount, Task

KEPT, VARIES = 12, 9  # moves for which two tasks keep their new order: at least, and how many more
PATIENCE = 50  # moves without a shorter order after which the search ends


def shortened(of: Filler, lanes: Sequence[Sequence[Task]], moves: int) -> list[list[Task]]:
    """`lanes`, or an order of the same tasks that ends sooner and holds no more than `of.room`.

    Args:
        lanes: every F, B and W of the work of `of`, in an order that ends and fits.
        moves: at most; the time of a move grows with the number of tasks.
    """
    search = _Search(of, [[of.number[task] for task in lane] for lane in lanes])
    best, since = search.length(), 0
    found = [list(lane) for lane in search.lanes]
    for move in range(moves):
        if since == PATIENCE or not search.swap(move, best):
            break
        since += 1
        if search.length() < best:
            best, since = search.length(), 0
            found = [list(lane) for lane in search.lanes]
    return [[of.tasks[number] for number in lane] for lane in found]


class _Search:
    """An order whose times are kept up to date.

    Attributes:
        order: all tasks, each behind those that it waits for.
        place: of each task in `order`.
        end: when each task ends if all start as soon as they can.
        rest: the length of the longest chain that begins with each task.
        held: what the group of each task holds behind it.
        pattern: the stage and kind of each task, and the part of the microbatch.
        kept_until: the move up to which two tasks keep their order.
    """

    def __init__(self, of: Filler, lanes: list[list[int]]) -> None:
        self.of, self.lanes = of, lanes
        count = len(of.tasks)
        self.row, self.position, self.held = [0] * count, [0] * count, [0] * count
        self.before, self.behind = [-1] * count, [-1] * count
        for row, lane in enumerate(lanes):
            held = 0
            for position, number in enumerate(lane):
                held += of.holds[number]
                self.row[number], self.position[number] = row, position
                self.held[number] = held
            for number, after in pairwise(lane):
                self.behind[number], self.before[after] = after, number
        ordered = {number for lane in lanes for number in lane}
        self.readers = [[each for each in own if each[0] in ordered] for own in of.readers]
        self.needed: list[list[tuple[int, Amount]]] = [[] for _ in range(count)]
        for number, readers in enumerate(self.readers):
            for reader, send_s in readers:
                self.needed[reader].append((number, send_s))
        self.pattern = [task._replace(microbatch=0) for task in of.tasks]
        self.end: list[Amount] = [0] * count
        self.rest: list[Amount] = [0] * count
        self.order = self._sorted()
        self.place = [0] * count
        for place, number in enumerate(self.order):
            self.place[number] = place
        self.kept_until: dict[tuple[int, int], int] = {}
        self._time(0, len(self.order))

    def length(self) -> Amount:
        """When the last task ends."""
        return max((self.end[lane[-1]] for lane in self.lanes if lane), default=0)

    def swap(self, move: int, best: Amount) -> bool:
        """Makes one move; False if there is none."""
        pairs = []
        for first, second in self._pairs():
            chain = self._chain_through(second, first)
            if chain < best or self.kept_until.get((second, first), -1) < move:
                pairs.append((chain, first, second))
        pairs.sort()
        low, high = len(self.order), 0
        chosen = None
        for _, first, second in pairs:
            if chosen is not None and not self._is_alike((first, second), chosen):
                continue
            places = self.place[first], self.place[second]
            if self._swapped(first, second):
                chosen = chosen or (first, second)
                self.kept_until[first, second] = move + KEPT + move % VARIES
                low, high = min(low, places[0]), max(high, places[1])
        self._time(low, high + 1)
        return chosen is not None

    def _is_alike(self, pair: tuple[int, int], other: tuple[int, int]) -> bool:
        """Whether `pair` is `other` in another microbatch."""
        tasks, pattern = self.of.tasks, self.pattern
        ahead, ahead_of_other = (
            tasks[second].microbatch - tasks[first].microbatch for first, second in (pair, other)
        )
        same = all(pattern[i] == pattern[j] for i, j in zip(pair, other, strict=True))
        return same and ahead == ahead_of_other

    def _sorted(self) -> list[int]:
        missing = [
            len(needed) + (front >= 0)
            for needed, front in zip(self.needed, self.before, strict=True)
        ]
        found = [lane[0] for lane in self.lanes if lane and not missing[lane[0]]]
        for number in found:
            for reader in (*(reader for reader, _ in self.readers[number]), self.behind[number]):
                if reader >= 0:
                    missing[reader] -= 1
                    if not missing[reader]:
                        found.append(reader)
        assert len(found) == sum(map(len, self.lanes)), "the order ends"
        return found

    def _time(self, first: int, end: int) -> None:
        """Times anew: ends from a place in `order` on, and the chains in front of another place."""
        takes, ends, rest = self.of.takes, self.end, self.rest
        before, behind, needed, readers = self.before, self.behind, self.needed, self.readers
        for number in self.order[first:]:
            front = before[number]
            start: Amount = ends[front] if front >= 0 else 0
            for each, send_s in needed[number]:
                arrival = ends[each] + send_s
                if arrival > start:
                    start = arrival
            ends[number] = start + takes[number]
        for number in reversed(self.order[:end]):
            after = behind[number]
            longest: Amount = rest[after] if after >= 0 else 0
            for each, send_s in readers[number]:
                chain = rest[each] + send_s
                if chain > longest:
                    longest = chain
            rest[number] = longest + takes[number]

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """The neighbours on a longest chain that may be swapped."""
        rest = self.rest
        number = max((lane[0] for lane in self.lanes if lane), key=rest.__getitem__, default=-1)
        while number >= 0:
            after = follows = self.behind[number]
            longest: Amount = rest[after] if after >= 0 else 0
            for each, send_s in self.readers[number]:
                if rest[each] + send_s > longest:
                    longest, follows = rest[each] + send_s, each
            if after >= 0 and follows == after and self._may_swap(number, after):
                yield number, after
            number = follows

    def _may_swap(self, first: int, second: int) -> bool:
        """Whether two neighbours do not read each other and leave room for each other.

        Microbatches are alike, so it gains nothing to swap the same task of two of them.
        """
        of = self.of
        if self.pattern[first] == self.pattern[second]:
            return False
        if any(number == first for number, _ in self.needed[second]):
            return False
        held = self.held[first] - of.holds[first] + of.holds[second]
        return of.room is None or of.holds[second] <= 0 or held <= of.room

    def _chain_through(self, first: int, second: int) -> Amount:
        """The longest chain through two neighbours once `first` is in front of `second`, as far as
        the times of other tasks stay as they are."""
        takes, ends, rest = self.of.takes, self.end, self.rest
        front, after = self.before[second], self.behind[first]
        start: Amount = ends[front] if front >= 0 else 0
        left: Amount = rest[after] if after >= 0 else 0
        start = max([start, *(ends[each] + send_s for each, send_s in self.needed[first])])
        left = max([left, *(rest[each] + send_s for each, send_s in self.readers[second])])
        start += takes[first]
        left += takes[second]
        starts = max([start, *(ends[each] + send_s for each, send_s in self.needed[second])])
        chain = max([left, *(rest[each] + send_s for each, send_s in self.readers[first])])
        return max(start + chain, starts + left)

    def _swapped(self, first: int, second: int) -> bool:
        """Swaps two neighbours, unless `second` also waits for what reads `first`.

        `second` moves in front of `first` in `order`, with all between them that it waits for.
        """
        if self.behind[first] != second or not self._may_swap(first, second):
            return False  # a swap of the same move came first
        low, high = self.place[first], self.place[second]
        waits = {second}
        early, late = [second], []
        for number in reversed(self.order[low + 1 : high]):
            if self.behind[number] in waits or any(r in waits for r, _ in self.readers[number]):
                waits.add(number)
                early.append(number)
            else:
                late.append(number)
        if any(reader in waits for reader, _ in self.readers[first]):
            return False
        self.order[low : high + 1] = [*reversed(early), first, *reversed(late)]
        for place in range(low, high + 1):
            self.place[self.order[place]] = place
        self._exchange(first, second)
        return True

    def _exchange(self, first: int, second: int) -> None:
        lane, at = self.lanes[self.row[first]], self.position[first]
        lane[at : at + 2] = second, first
        self.position[second], self.position[first] = at, at + 1
        front, after = self.before[first], self.behind[second]
        self.before[second], self.behind[second] = front, first
        self.before[first], self.behind[first] = second, after
        if front >= 0:
            self.behind[front] = second
        if after >= 0:
            self.before[after] = first
        self.held[second] = self.held[first] - self.of.holds[first] + self.of.holds[second]
        self.held[first] = self.held[second] + self.of.holds[first]

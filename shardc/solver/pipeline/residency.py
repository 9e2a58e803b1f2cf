"""Which values of a chain of ops are kept for the way back, and which are made again."""

import bisect
import itertools
import math
from collections.abc import Sequence

MOST_CAPS = 64  # bounds of the largest segment that are tried, if there are more segments


def kept_cuts(crossing: Sequence[int], left: Sequence[int], in_flight: int) -> tuple[int, ...]:
    """The cuts of a chain at which values are kept so that the least is held.

    Each microbatch in flight keeps what crosses the cuts. One at a time is on its way back, segment
    by segment from the last: what a segment leaves for that is made again, and held with it.

    Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016, for chains of unlike ops: for
    each bound of the largest segment the cheapest cuts, by a shortest path. Exact where there are
    at most `MOST_CAPS` sizes of segments, else the best for that many bounds.

    Args:
        crossing: bytes that cross behind each op but the last.
        left: bytes that each op leaves for the way back.
        in_flight: microbatches that are held at once.
    Returns:
        Rising positions; cut c is behind op c. () where one segment is best, or there are no ops.
    """
    ends = list(itertools.accumulate(left, initial=0))
    best: tuple[int, ...] = ()
    best_bytes = math.inf
    for cap in _caps(ends):
        cuts = _cheapest(crossing, ends, cap)
        if cuts is None:
            continue
        bounds = [0, *(cut + 1 for cut in cuts), len(left)]
        largest = max((ends[b] - ends[a] for a, b in itertools.pairwise(bounds)), default=0)
        held = in_flight * sum(crossing[cut] for cut in cuts) + largest
        if held < best_bytes:
            best_bytes, best = held, cuts
    return best


def _caps(ends: Sequence[int]) -> list[int]:
    """Bounds of the largest segment, falling."""
    if len(ends) ** 2 <= 2 * MOST_CAPS:
        return sorted({b - a for a, b in itertools.combinations(ends, 2)}, reverse=True)
    least = max(b - a for a, b in itertools.pairwise(ends))
    ratio = (max(least, 1) / max(ends[-1], 1)) ** (1 / (MOST_CAPS - 1))
    return sorted({least, *(int(ends[-1] * ratio**n) for n in range(MOST_CAPS))}, reverse=True)


def _cheapest(crossing: Sequence[int], ends: Sequence[int], cap: int) -> tuple[int, ...] | None:
    """The cuts that keep least, no segment leaving more than `cap`; None if there are none."""
    count = len(ends) - 1
    cost = [0.0] + [math.inf] * count  # of the first ops as whole segments, what is behind kept
    before = [0] * (count + 1)
    window: list[int] = []  # beginnings of segments by rising cost; the cheapest one first
    for end in range(1, count + 1):
        while window and cost[window[-1]] >= cost[end - 1]:
            window.pop()
        window.append(end - 1)
        first = bisect.bisect_left(window, ends[end] - cap, key=lambda begin: ends[begin])
        if first == len(window):
            continue
        begin = window[first]
        cost[end] = cost[begin] + (crossing[end - 1] if end < count else 0)
        before[end] = begin
    if math.isinf(cost[count]):
        return None
    cuts = []
    end = count
    while end > 0:
        end = before[end]
        if end > 0:
            cuts.append(end - 1)
    return tuple(reversed(cuts))

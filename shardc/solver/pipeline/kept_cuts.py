"""Which values of a chain of ops are kept for the backward pass, and which are recomputed."""

import bisect
import itertools
import math
from collections.abc import Sequence

MOST_CAPS = 64  # bounds on the largest segment to try, if there are more segment sizes


def kept_cuts(crossing: Sequence[int], left: Sequence[int], in_flight: int) -> tuple[int, ...]:
    """The cuts of a chain that minimise the bytes held, if only values at the cuts are kept.

    Each microbatch in flight keeps the values that cross the cuts. One microbatch at a time runs
    backward, segment by segment from the last: its segment is recomputed and held in addition.

    Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016, for chains of unlike ops: for
    each bound on the largest segment the cheapest cuts, by a shortest path. Exact if there are
    at most `MOST_CAPS` segment sizes, else the best for that many bounds.

    Args:
        crossing: bytes that cross after each op but the last.
        left: bytes that each op leaves for its backward.
        in_flight: microbatches held at once.
    Returns:
        Rising positions; cut c is after op c. () if one segment is best, or there are no ops.
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
    """Bounds on the largest segment, descending."""
    if len(ends) ** 2 <= 2 * MOST_CAPS:
        return sorted({b - a for a, b in itertools.combinations(ends, 2)}, reverse=True)
    least = max(b - a for a, b in itertools.pairwise(ends))
    ratio = (max(least, 1) / max(ends[-1], 1)) ** (1 / (MOST_CAPS - 1))
    return sorted({least, *(int(ends[-1] * ratio**n) for n in range(MOST_CAPS))}, reverse=True)


def _cheapest(crossing: Sequence[int], ends: Sequence[int], cap: int) -> tuple[int, ...] | None:
    """The cuts that keep least, with no segment above `cap`; None if there are none."""
    count = len(ends) - 1
    cost = [0.0] + [math.inf] * count  # of the first ops as whole segments, with their cut kept
    before = [0] * (count + 1)
    window: list[int] = []  # starts of segments by rising cost; the cheapest comes first
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

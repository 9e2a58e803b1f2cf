"""The lengths of a pipeline's token slices.

Attention makes later tokens more expensive, so equal slices take unequal times, and a pipeline runs
at the pace of its slowest slice.
Source: Li et al., "TeraPipe", ICML 2021 (arXiv 2102.07988), section 3.3.
"""

import bisect
import math
from collections.abc import Callable
from typing import Any

SliceTime = Callable[[int, int], Any]
"""(first block, last block + 1) -> time of a slice of these blocks, which attends to all before."""


def slice_lengths(
    num_blocks: int, num_groups: int, time: SliceTime, num_slices: int | None = None
) -> tuple[tuple[int, ...], float]:
    """The lengths, in blocks, that minimise sum(t) + (num_groups - 1) * max(t), and that time.

    For each candidate of the slowest slice, a dynamic program over the blocks finds the least sum;
    candidates that allow no slices, or cannot win even with the least sum of all, are skipped.

    Args:
        num_blocks: at least 1; a slice is one block or more.
        num_slices: exact number of slices; None: any.
    """
    assert num_blocks >= 1
    assert num_slices is None or 1 <= num_slices <= num_blocks
    spans = [(i, j) for i in range(num_blocks) for j in range(i + 1, num_blocks + 1)]
    times = {span: time(*span) for span in spans}
    slowest_of = sorted(set(times.values()))
    possible = bisect.bisect_left(
        slowest_of,
        True,
        key=lambda slowest: _least_sum(num_blocks, times, slowest, num_slices) is not None,
    )
    any_sum = _least_sum(num_blocks, times, slowest_of[-1], num_slices)
    assert any_sum is not None, "there are as many slices as blocks at most"
    best: tuple[float, tuple[int, ...]] = (math.inf, ())
    for slowest in slowest_of[possible:]:
        if any_sum[0] + (num_groups - 1) * slowest > best[0]:
            break
        found = _least_sum(num_blocks, times, slowest, num_slices)
        assert found is not None, "more time is no hindrance"
        total, lengths = found
        best = min(best, (total + (num_groups - 1) * slowest, lengths))
    return best[1], best[0]


def _least_sum(
    num_blocks: int, times: dict[tuple[int, int], float], slowest: float, num_slices: int | None
) -> tuple[float, tuple[int, ...]] | None:
    """The least sum of slices that each take at most `slowest`."""
    # Of the blocks done: slices used, or 0 if their number is free -> the sum, the lengths.
    known: list[dict[int, tuple[float, tuple[int, ...]]]] = [{} for _ in range(num_blocks + 1)]
    known[0][0] = 0.0, ()
    for end in range(1, num_blocks + 1):
        for start in range(end):
            if times[start, end] > slowest:
                continue
            for used, (total, lengths) in known[start].items():
                count = 0 if num_slices is None else used + 1
                new = total + times[start, end], (*lengths, end - start)
                if count not in known[end] or new < known[end][count]:
                    known[end][count] = new
    return known[num_blocks].get(num_slices or 0)

"""The lengths of a pipeline's token slices.

Attention makes later tokens more expensive, so equal slices take unequal times, and a pipeline runs
at the pace of its slowest slice.
Source: Li et al., "TeraPipe", ICML 2021 (arXiv 2102.07988), section 3.3.
"""

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
    candidates that cannot win are skipped.

    Args:
        num_blocks: at least 1; a slice is one block or more.
        num_slices: exact number of slices; None: any.
    """
    assert num_blocks >= 1
    assert num_slices is None or 1 <= num_slices <= num_blocks
    spans = [(i, j) for i in range(num_blocks) for j in range(i + 1, num_blocks + 1)]
    times = {span: time(*span) for span in spans}
    best: tuple[float, tuple[int, ...]] = (math.inf, ())
    for slowest in sorted(set(times.values())):
        if (num_groups - 1) * slowest >= best[0]:
            break
        found = _least_sum(num_blocks, times, slowest, num_slices)
        if found is not None:
            total, lengths = found
            best = min(best, (total + (num_groups - 1) * slowest, lengths))
    return best[1], best[0]


def _least_sum(
    num_blocks: int, times: dict[tuple[int, int], float], slowest: float, num_slices: int | None
) -> tuple[float, tuple[int, ...]] | None:
    """The least sum of slices that each take at most `slowest`."""
    # state: (blocks done, slices used, or 0 if their number is free)
    known: dict[tuple[int, int], tuple[float, tuple[int, ...]]] = {(0, 0): (0.0, ())}
    for end in range(1, num_blocks + 1):
        for start in range(end):
            if times[start, end] > slowest:
                continue
            for (done, used), (total, lengths) in list(known.items()):
                if done != start:
                    continue
                key = end, 0 if num_slices is None else used + 1
                new = total + times[start, end], (*lengths, end - start)
                if key not in known or new < known[key]:
                    known[key] = new
    return known.get((num_blocks, num_slices or 0))

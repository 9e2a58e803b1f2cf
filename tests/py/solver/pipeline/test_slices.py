"""Slice lengths against every way to cut a short sequence."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.solver.pipeline.slices import slice_lengths


def all_cuts(num_blocks: int) -> list[tuple[int, ...]]:
    found = []
    for cuts in itertools.product((False, True), repeat=num_blocks - 1):
        ends = [i + 1 for i, cut in enumerate(cuts) if cut] + [num_blocks]
        found.append(tuple(b - a for a, b in itertools.pairwise([0, *ends])))
    return found


@given(
    st.integers(1, 7), st.integers(1, 6), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)
)
@settings(max_examples=80, deadline=None)
def test_lengths_equal_brute_force(
    num_blocks: int, p: int, launch: int, linear: int, square: int
) -> None:
    def time(i: int, j: int) -> int:
        return launch + linear * (j - i) + square * (j * j - i * i)

    def total(lengths: tuple[int, ...]) -> int:
        ends = list(itertools.accumulate(lengths))
        times = [time(end - length, end) for end, length in zip(ends, lengths, strict=True)]
        return sum(times) + (p - 1) * max(times)

    cuts = all_cuts(num_blocks)
    lengths, found = slice_lengths(num_blocks, p, time)
    assert sum(lengths) == num_blocks
    assert found == total(lengths) == min(map(total, cuts))
    for k in range(1, num_blocks + 1):
        lengths, found = slice_lengths(num_blocks, p, time, k)
        assert len(lengths) == k
        assert found == total(lengths) == min(total(cut) for cut in cuts if len(cut) == k)


@pytest.mark.parametrize("k", [2, 4])
def test_dearer_tokens_make_shorter_slices(k: int) -> None:
    lengths, _ = slice_lengths(8 * k, 4, lambda i, j: j * j - i * i, k)
    assert list(lengths) == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[-1]

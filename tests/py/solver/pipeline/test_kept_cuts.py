"""Kept cuts of a chain: the least that any cuts hold, on all small chains."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from shardc.solver.pipeline.kept_cuts import kept_cuts

Bytes = st.integers(0, 12)


def held(crossing: list[int], left: list[int], in_flight: int, cuts: tuple[int, ...]) -> int:
    """Bytes that a stage holds: of every microbatch what is kept, of one its largest segment."""
    bounds = [0, *(cut + 1 for cut in cuts), len(left)]
    largest = max(sum(left[a:b]) for a, b in itertools.pairwise(bounds))
    return in_flight * sum(crossing[cut] for cut in cuts) + largest


@given(st.data(), st.integers(1, 8), st.integers(0, 5))
def test_no_other_cuts_hold_less(data: st.DataObject, count: int, in_flight: int) -> None:
    left = data.draw(st.lists(Bytes, min_size=count, max_size=count))
    crossing = data.draw(st.lists(Bytes, min_size=count - 1, max_size=count - 1))
    found = kept_cuts(crossing, left, in_flight)
    assert list(found) == sorted(set(found))
    best = min(
        held(crossing, left, in_flight, cuts)
        for number in range(count)
        for cuts in itertools.combinations(range(count - 1), number)
    )
    assert held(crossing, left, in_flight, found) == best


def test_equal_layers_are_cut_between_them() -> None:
    """Four layers that leave 10 each and hand on 1: kept are the three values between them."""
    crossing = [5, 5, 1, 5, 5, 1, 5, 5, 1, 5, 5]
    left = [4, 4, 2] * 4
    assert kept_cuts(crossing, left, in_flight=1) == (2, 5, 8)
    assert kept_cuts(crossing, left, in_flight=100) == ()


def test_a_long_chain_is_cut_near_the_optimum() -> None:
    """Of n equal ops that leave and hand on as much, sqrt(n) segments are best."""
    count = 400
    found = kept_cuts([1] * (count - 1), [1] * count, in_flight=1)
    assert held([1] * (count - 1), [1] * count, 1, found) <= 1.05 * (2 * 20 - 1)
    assert kept_cuts([], [], 3) == kept_cuts([], [7], 3) == ()

"""Cells bring an array from any even layout to any other, and no byte enters a process twice."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.runtime.messages.cells import rounds_of

SHAPE = (12, 6)
CUTS = [(1, 1), (2, 1), (1, 2), (3, 1), (4, 1), (6, 2), (12, 6), (2, 3)]


def layout(cuts, copies, first):
    """Devices from `first` on, each with a piece of an array cut `cuts` times, `copies` of each."""
    found = {}
    pieces = itertools.product(*map(range, cuts))
    for device, (piece, _) in enumerate(itertools.product(pieces, range(copies)), first):
        found[device] = tuple(
            slice(i * size // cut, (i + 1) * size // cut)
            for i, cut, size in zip(piece, cuts, SHAPE, strict=True)
        )
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(CUTS),
    st.sampled_from(CUTS),
    st.integers(1, 3),
    st.integers(1, 8),
    st.integers(0, 80),
    st.integers(1, 8),
)
def test_every_cell_enters_each_process_that_lacks_it_once(
    one, other, copies, more, offset, per_process
):
    source, target = layout(one, copies, 0), layout(other, more, offset)
    near = {device: device // per_process for device in (*source, *target)}
    found = rounds_of(SHAPE, source, target, near)
    whole = np.arange(np.prod(SHAPE)).reshape(SHAPE)
    got = {device: np.full_like(whole[index], -1) for device, index in target.items()}
    arriving, crossing = 0, 0
    for hops in found.rounds:
        assert len({hop.source for hop in hops}) == len({hop.target for hop in hops}) == len(hops)
        before = {device: piece.copy() for device, piece in got.items()}
        for hop in hops:
            taken = tuple(slice(a, a + c) for a, c in zip(hop.taken, found.cell, strict=True))
            put = tuple(slice(a, a + c) for a, c in zip(hop.put, found.cell, strict=True))
            assert (got[hop.target][put] == -1).all()
            piece = before[hop.source] if hop.passed_on else whole[source[hop.source]]
            got[hop.target][put] = piece[taken]
            size = int(np.prod(found.cell))
            arriving += (hop.source != hop.target) * size
            crossing += (near[hop.source] != near[hop.target]) * size
    for device, index in target.items():
        np.testing.assert_array_equal(got[device], whole[index])
    had = {
        device: set(whole[source[device]].ravel()) if device in source else set()
        for device in target
    }
    assert arriving == sum(len(set(whole[target[d]].ravel()) - had[d]) for d in target)
    assert crossing == sum(
        len(
            set().union(*(whole[target[d]].ravel() for d in target if near[d] == process))
            - set().union(*(whole[source[d]].ravel() for d in source if near[d] == process))
        )
        for process in set(near.values())
    )


def test_copies_spread_in_rounds_that_grow_with_their_logarithm():
    """One holder, 64 processes of 8 devices: 6 rounds between processes, 3 inside."""
    near = {device: max(device - 1, 0) // 8 for device in range(513)}
    near[0] = -1
    found = rounds_of((4,), {0: (slice(0, 4),)}, {d: (slice(0, 4),) for d in range(1, 513)}, near)
    assert len(found.rounds) <= 7 + 3 + 1


def test_a_cell_comes_from_the_own_process_if_it_is_there():
    source = {0: (slice(0, 4),), 1: (slice(0, 4),)}
    found = rounds_of(
        (4,), source, {2: (slice(0, 4),), 3: (slice(0, 4),)}, {0: 0, 1: 1, 2: 1, 3: 0}
    )
    hops = {(hop.source, hop.target) for hops in found.rounds for hop in hops}
    assert hops == {(1, 2), (0, 3)}


def test_numbers_and_empty_arrays_have_one_cell_or_none():
    found = rounds_of((), {0: ()}, {1: ()}, {0: 0, 1: 1})
    assert found.cell == () and len(found.rounds) == 1
    nothing = rounds_of((0, 4), {0: (slice(None),) * 2}, {1: (slice(None),) * 2}, {0: 0, 1: 1})
    assert nothing.rounds == ()

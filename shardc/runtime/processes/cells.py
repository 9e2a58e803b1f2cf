"""Moves an array from one layout to another, cell by cell.

Both layouts split the array into even pieces. Split at all boundaries of both, it consists of cells
of one shape, and every cell of a piece that a device needs is whole on some device that has it.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

Index = tuple[slice, ...]


class Hop(NamedTuple):
    """One cell sent from one device to another, or to itself.

    Attributes:
        source, target: devices.
        taken, put: offset of the cell in the source's piece, and in the target's.
    """

    source: int
    target: int
    taken: tuple[int, ...]
    put: tuple[int, ...]


class Rounds(NamedTuple):
    """Hops in rounds: in each, a device sends at most one cell and receives at most one."""

    cell: tuple[int, ...]
    rounds: tuple[tuple[Hop, ...], ...]


def rounds_of(
    shape: Sequence[int],
    source: Mapping[int, Index],
    target: Mapping[int, Index],
    near: Mapping[int, int],
) -> Rounds:
    """Rounds that turn layout `source` into layout `target` with the fewest bytes.

    A device uses its own copy of a cell if it has one, else that of a device in its process, else
    that of the device that has sent the least so far.

    Args:
        source, target: by device, the part of the array that it has or needs.
        near: by device, its process.
    """
    had = {device: _bounds(index, shape) for device, index in source.items()}
    wanted = {device: _bounds(index, shape) for device, index in target.items()}
    cell = tuple(
        math.gcd(size, *(b for each in (*had.values(), *wanted.values()) for b in each[dim]))
        for dim, size in enumerate(shape)
    )
    holders: dict[tuple[int, ...], list[int]] = {}
    for device, bounds in had.items():
        for start in _starts(bounds, cell):
            holders.setdefault(start, []).append(device)
    sent = dict.fromkeys(had, 0)
    hops = []
    for device, bounds in wanted.items():
        for start in _starts(bounds, cell):

            def badness(holder: int, device: int = device) -> tuple[bool, bool, int, int]:
                return holder != device, near[holder] != near[device], sent[holder], holder

            holder = min(holders[start], key=badness)
            sent[holder] += holder != device
            taken = tuple(s - low for s, (low, _) in zip(start, had[holder], strict=True))
            put = tuple(s - low for s, (low, _) in zip(start, bounds, strict=True))
            hops.append(Hop(holder, device, taken, put))
    return Rounds(cell, _coloured(hops))


def _coloured(hops: Sequence[Hop]) -> tuple[tuple[Hop, ...], ...]:
    rounds: list[list[Hop]] = []
    senders: list[set[int]] = []
    receivers: list[set[int]] = []
    for hop in hops:
        free = (
            i
            for i in range(len(rounds))
            if hop.source not in senders[i] and hop.target not in receivers[i]
        )
        at = next(free, len(rounds))
        if at == len(rounds):
            rounds.append([])
            senders.append(set())
            receivers.append(set())
        rounds[at].append(hop)
        senders[at].add(hop.source)
        receivers[at].add(hop.target)
    return tuple(map(tuple, rounds))


def _bounds(index: Index, shape: Sequence[int]) -> list[tuple[int, int]]:
    return [part.indices(size)[:2] for part, size in zip(index, shape, strict=True)]


def _starts(bounds: Sequence[tuple[int, int]], cell: Sequence[int]) -> list[tuple[int, ...]]:
    steps = [range(low, high, max(c, 1)) for (low, high), c in zip(bounds, cell, strict=True)]
    return list(itertools.product(*steps))

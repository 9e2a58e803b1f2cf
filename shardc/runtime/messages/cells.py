"""Moves an array from one layout to another, cell by cell.

Both layouts split the array into even pieces. Split at all boundaries of both, it consists of cells
of one shape, and every cell of a piece that a device needs is whole on some device that has it.
"""

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

Index = tuple[slice, ...]
Start = tuple[int, ...]


class Hop(NamedTuple):
    """One cell sent from one device to another, or to itself.

    Attributes:
        source, target: devices.
        taken, put: offset of the cell in the source's piece, and in the target's.
        passed_on: the source has the cell from an earlier round: `taken` is an offset in the piece
            that it needs itself.
    """

    source: int
    target: int
    taken: Start
    put: Start
    passed_on: bool = False


class Rounds(NamedTuple):
    """Hops in rounds: in each, a device sends at most one cell and receives at most one."""

    cell: Start
    rounds: tuple[tuple[Hop, ...], ...]


def rounds_of(
    shape: Sequence[int],
    source: Mapping[int, Index],
    target: Mapping[int, Index],
    near: Mapping[int, int],
) -> Rounds:
    """Rounds that turn layout `source` into layout `target` with the fewest bytes.

    A cell enters each process that needs it and lacks it once; there the devices pass it on. Every
    device that has a cell takes part in spreading it, so that n copies need about log2(n) rounds.

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
    holders: dict[Start, list[int]] = {}
    for device, bounds in had.items():
        for start in _starts(bounds, cell):
            holders.setdefault(start, []).append(device)
    lacking: dict[Start, list[int]] = {}
    first: list[Hop] = []  # to the devices that have the cell: it only changes its place
    for device, bounds in wanted.items():
        for start in _starts(bounds, cell):
            if device in holders[start]:
                own = _offset(start, had[device]), _offset(start, bounds)
                first.append(Hop(device, device, *own))
            else:
                lacking.setdefault(start, []).append(device)
    waves = _waves(holders, lacking, near)
    rounds: list[tuple[Hop, ...]] = []
    for i, wave in enumerate(waves or [[]]):
        hops = [] if i else first
        for start, sender, receiver in wave:
            passed_on = sender not in holders[start]
            taken = _offset(start, (wanted if passed_on else had)[sender])
            hops.append(Hop(sender, receiver, taken, _offset(start, wanted[receiver]), passed_on))
        rounds += _coloured(hops)
    return Rounds(cell, tuple(rounds))


def _waves(
    holders: Mapping[Start, Sequence[int]],
    lacking: Mapping[Start, Sequence[int]],
    near: Mapping[int, int],
) -> list[list[tuple[Start, int, int]]]:
    """(cell, sender, receiver) in waves: a device sends a cell in the waves behind the one in which
    it received it, once in each; to another process first."""
    sent: Counter[int] = Counter()
    received: Counter[int] = Counter()
    have = {start: list(holders[start]) for start in lacking}
    needs = {start: list(devices) for start, devices in lacking.items()}
    waves = []
    while needs:
        wave = []
        for start, devices in needs.items():
            reached = {near[device] for device in have[start]}
            arrived = []
            for sender in sorted(have[start], key=lambda each: (sent[each], each)):
                outside = [device for device in devices if near[device] not in reached]
                inside = [device for device in devices if near[device] == near[sender]]
                receivers = outside or inside
                if not receivers:
                    continue
                receiver = min(receivers, key=lambda each: (received[each], each))
                devices.remove(receiver)
                arrived.append(receiver)
                reached.add(near[receiver])
                sent[sender] += 1
                received[receiver] += 1
                wave.append((start, sender, receiver))
            have[start] += arrived
        needs = {start: devices for start, devices in needs.items() if devices}
        waves.append(wave)
    return waves


def _coloured(hops: Sequence[Hop]) -> list[tuple[Hop, ...]]:
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
    return list(map(tuple, rounds))


def _bounds(index: Index, shape: Sequence[int]) -> list[tuple[int, int]]:
    return [part.indices(size)[:2] for part, size in zip(index, shape, strict=True)]


def _offset(start: Start, bounds: Sequence[tuple[int, int]]) -> Start:
    return tuple(s - low for s, (low, _) in zip(start, bounds, strict=True))


def _starts(bounds: Sequence[tuple[int, int]], cell: Sequence[int]) -> list[Start]:
    steps = [range(low, high, max(c, 1)) for (low, high), c in zip(bounds, cell, strict=True)]
    return list(itertools.product(*steps))

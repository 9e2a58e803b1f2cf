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


class Crossing(NamedTuple):
    """One cell that devices of a process need.

    Attributes:
        source: a device that has it: the target itself, else one of the process, else another.
        targets: the devices, all of one process.
        taken: offset of the cell in the source's piece.
        put: its offset in the piece of each target.
    """

    source: int
    targets: tuple[int, ...]
    taken: Start
    put: tuple[Start, ...]


class _Cells:
    """An array cut into cells, and who has and needs each of them, by its start."""

    def __init__(
        self, shape: Sequence[int], source: Mapping[int, Index], target: Mapping[int, Index]
    ) -> None:
        self.had = {device: _bounds(index, shape) for device, index in source.items()}
        self.wanted = {device: _bounds(index, shape) for device, index in target.items()}
        every = [*self.had.values(), *self.wanted.values()]
        self.cell = tuple(
            math.gcd(size, *(bound for each in every for bound in each[dim]))
            for dim, size in enumerate(shape)
        )
        self.holders: dict[Start, list[int]] = {}
        self.lacking: dict[Start, list[int]] = {}
        self.kept: list[Hop] = []  # on devices that have a cell, it only changes its place
        for device, bounds in self.had.items():
            for start in _starts(bounds, self.cell):
                self.holders.setdefault(start, []).append(device)
        for device, bounds in self.wanted.items():
            for start in _starts(bounds, self.cell):
                if device in self.holders[start]:
                    own = _offset(start, self.had[device]), _offset(start, bounds)
                    self.kept.append(Hop(device, device, *own))
                else:
                    self.lacking.setdefault(start, []).append(device)


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
    cells = _Cells(shape, source, target)
    rounds: list[tuple[Hop, ...]] = []
    for i, wave in enumerate(_waves(cells.holders, cells.lacking, near) or [[]]):
        hops = [] if i else cells.kept
        for start, sender, receiver in wave:
            passed_on = sender not in cells.holders[start]
            taken = _offset(start, (cells.wanted if passed_on else cells.had)[sender])
            put = _offset(start, cells.wanted[receiver])
            hops.append(Hop(sender, receiver, taken, put, passed_on))
        rounds += _coloured(hops)
    return Rounds(cells.cell, tuple(rounds))


def crossings_of(
    shape: Sequence[int],
    source: Mapping[int, Index],
    target: Mapping[int, Index],
    near: Mapping[int, int],
) -> tuple[Start, list[Crossing]]:
    """What turns layout `source` into layout `target` where a process can fetch a cell by itself.

    A cell enters each process that needs it and lacks it once. Arguments as in `rounds_of`.

    Returns:
        The shape of a cell, and the crossings, from a device to itself included.
    """
    cells = _Cells(shape, source, target)
    sent: Counter[int] = Counter()
    found = [Crossing(hop.source, (hop.target,), hop.taken, (hop.put,)) for hop in cells.kept]
    for start, devices in cells.lacking.items():
        by_process: dict[int, list[int]] = {}
        for device in devices:
            by_process.setdefault(near[device], []).append(device)
        for process, receivers in by_process.items():
            sender = min(
                cells.holders[start],
                key=lambda each: (near[each] != process, sent[each], each),
            )
            sent[sender] += 1
            put = tuple(_offset(start, cells.wanted[device]) for device in receivers)
            taken = _offset(start, cells.had[sender])
            found.append(Crossing(sender, tuple(receivers), taken, put))
    return cells.cell, found


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

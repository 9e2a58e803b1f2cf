"""The time of a collective under each protocol of the links, as lines over its bytes.

A library that has several algorithms and wire protocols runs each collective in the fastest way
for its size: rings pass a share of the data along in many steps, trees all of it in few; a protocol
that waits less per step fills less of the link. Source: NCCL, src/graph/tuning.cc
(`ncclTopoTuneModel`), whose constants the built-in clusters have.
"""

from collections.abc import Sequence
from typing import NamedTuple

from shardc.cluster import Level, Protocol


class Line(NamedTuple):
    """Seconds of a collective by its bytes: fixed_s + num_bytes * byte_s."""

    fixed_s: float
    byte_s: float


class Crossed(NamedTuple):
    """A level of links that a group crosses.

    Attributes:
        ring_bytes_per_s: that a ring reaches on it.
        hops: of a ring, on this level.
        depth: of a tree, on this level.
    """

    level: Level
    ring_bytes_per_s: float
    hops: int
    depth: int


def gather_lines(size: int, crossed: Sequence[Crossed]) -> tuple[Line, ...]:
    """All-gathers by the bytes of the result, reduce-scatters by those of the operand, on one
    device: start + (n - 1) * latency + (n - 1) / n * num_bytes / bandwidth, in rings.

    (): no protocol can be used on all levels.
    """
    lines = []
    for each in _usable(size, crossed):
        if each[0].algorithm == "ring":
            rate = _bandwidth(crossed, each)
            lines.append(
                Line(_start_s(each) + _ring_s(size, crossed, each), (size - 1) / size / rate)
            )
    return _lowest(lines)


def reduce_lines(size: int, crossed: Sequence[Crossed]) -> tuple[Line, ...]:
    """All-reduces by the bytes of the operand on one device.

    Ring: start + 2 (n - 1) latency + 2 (n - 1) / n * num_bytes / bandwidth. Tree: start + 2 depth
    * latency + 2 * num_bytes / bandwidth. Switch: start + latency + num_bytes / bandwidth.
    """
    lines = []
    for each in _usable(size, crossed):
        rate, start_s = _bandwidth(crossed, each), _start_s(each)
        match each[0].algorithm:
            case "ring":
                steps_s, share = 2 * _ring_s(size, crossed, each), 2 * (size - 1) / size
            case "tree":
                depths = zip(crossed, each, strict=True)
                steps_s = 2 * sum(at.depth * protocol.latency_s for at, protocol in depths)
                share = 2.0
            case "switch":
                steps_s, share = max(protocol.latency_s for protocol in each), 1.0
        lines.append(Line(start_s + steps_s, share / rate))
    return _lowest(lines)


def _usable(size: int, crossed: Sequence[Crossed]) -> list[tuple[Protocol, ...]]:
    """Each protocol that all levels have and a group of this size may use, level by level."""
    tables = [{each.key: each for each in at.level.protocols} for at in crossed]
    return [
        tuple(table[key] for table in tables)
        for key in (tables[0] if tables else {})
        if all(key in table and size >= table[key].least_group for table in tables)
    ]


def _bandwidth(crossed: Sequence[Crossed], protocols: Sequence[Protocol]) -> float:
    rates = []
    for at, each in zip(crossed, protocols, strict=True):
        rates.append(at.ring_bytes_per_s * each.efficiency)
        if each.most_bytes_per_s is not None:
            rates.append(each.most_bytes_per_s)
    return min(rates)


def _start_s(protocols: Sequence[Protocol]) -> float:
    return max(each.start_s for each in protocols)


def _ring_s(size: int, crossed: Sequence[Crossed], protocols: Sequence[Protocol]) -> float:
    """Latency of n - 1 steps, each the mean over the hops of a ring that leaves each unit once."""
    hops = zip(crossed, protocols, strict=True)
    return (size - 1) / size * sum(at.hops * each.latency_s for at, each in hops)


def _lowest(lines: Sequence[Line]) -> tuple[Line, ...]:
    """The lines that are the fastest for some size, the one for the fewest bytes first."""
    found: list[Line] = []
    for line in sorted(set(lines)):
        if found and line.byte_s >= found[-1].byte_s:
            continue
        while len(found) > 1 and _from_bytes(found[-2], line) <= _from_bytes(found[-2], found[-1]):
            found.pop()
        found.append(line)
    return tuple(found)


def _from_bytes(one: Line, other: Line) -> float:
    """The number of bytes from which on `other` is faster."""
    return (other.fixed_s - one.fixed_s) / (one.byte_s - other.byte_s)

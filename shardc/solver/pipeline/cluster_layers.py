"""Clusters forward ops into layers, the units that the stage planner distributes.

Alpa's operator clustering (Zheng et al., OSDI 2022, equation 6), solved exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardc.errors import StageError
from shardc.solver.problem.problem import Floats, Ints

MOST_BLOCKS = 1500  # longer programs may be cut only between blocks of adjacent ops


@dataclass(frozen=True)
class Value:
    """A value that flows between forward ops.

    Attributes:
        producer: position of the op that defines it; -1 for parameters and constants, which do not
            count as cut.
        consumers: positions of the ops that read it.
        num_bytes: its size.
    """

    producer: int
    consumers: tuple[int, ...]
    num_bytes: int


def cluster_layers(
    flops: Sequence[float],
    values: Sequence[Value],
    num_layers: int,
    *,
    heavy: Sequence[bool] = (),
    delta: float = 0.5,
) -> list[tuple[int, int]]:
    """Cuts ops 0..K-1 into `num_layers` contiguous layers.

    Minimises the most bytes that any layer reads from before it, then the total of these bytes
    over all layers, then the sum of squared FLOPs (which evens them out), subject to at most
    (1 + delta) * total / num_layers FLOPs per layer. If single ops are too heavy for that, the
    limit is the least possible FLOPs of the largest layer.

    Args:
        flops: per op.
        values: values between ops; bytes are counted once per layer that reads them.
        num_layers: at least 1.
        heavy: per op, whether it can justify a layer; if there are enough of them,
            every layer gets one. Empty: every op can.
    Returns:
        Per layer its (first op, last op).
    Raises:
        StageError: SHARDC-160, more layers than ops.
    """
    if not 1 <= num_layers <= len(flops):
        raise StageError(
            f"{num_layers} layers are requested, but the forward pass has {len(flops)} ops",
            help=f"request at most {len(flops)} stages",
        )
    starts = _block_starts(values, len(flops), max(MOST_BLOCKS, num_layers))
    block_of = np.searchsorted(starts, np.arange(len(flops)), side="right") - 1
    cut = _cut_bytes(values, block_of, len(starts))
    work = np.bincount(block_of, np.asarray(flops, np.float64), len(starts))
    before = np.concatenate([[0.0], np.cumsum(work)])
    share = before[None, 1:] - before[:-1, None]  # [first block, last block]
    some = np.bincount(block_of, np.asarray(heavy or np.ones(len(flops)), np.float64), len(starts))
    counted = np.concatenate([[0.0], np.cumsum(some)])
    worthwhile = counted[None, 1:] - counted[:-1, None] > 0.0
    if np.count_nonzero(some) < num_layers:
        worthwhile[:] = True
    worthwhile = np.triu(worthwhile)
    least = _least_worst(np.where(worthwhile, share, np.inf), num_layers)[-1]
    most = max((1.0 + delta) * before[-1] / num_layers, least) * (1.0 + 1e-12)
    ends = _best_cuts(np.where(worthwhile & (share <= most), cut, np.inf), share, num_layers)
    firsts = [int(starts[first]) for first, _ in ends]
    return list(zip(firsts, [first - 1 for first in firsts[1:]] + [len(flops) - 1], strict=True))


def _block_starts(values: Sequence[Value], num_ops: int, most_blocks: int) -> Ints:
    """First op of each block; block boundaries are the cheapest nearby cuts."""
    if num_ops <= most_blocks:
        return np.arange(num_ops)
    crossing = np.zeros(num_ops + 1)  # [i]: bytes that cross a cut before op i
    for value in values:
        if value.producer >= 0 and value.consumers and max(value.consumers) > value.producer:
            crossing[value.producer + 1] += value.num_bytes
            crossing[max(value.consumers) + 1] -= value.num_bytes
    crossing = np.cumsum(crossing)
    windows = np.array_split(np.arange(1, num_ops), most_blocks - 1)
    return np.array([0, *(int(w[np.argmin(crossing[w])]) for w in windows)])


def _cut_bytes(values: Sequence[Value], block_of: Ints, num_blocks: int) -> Floats:
    """[i, k]: bytes that blocks i..k read of values made before block i."""
    table = np.zeros((num_blocks + 1, num_blocks))
    for value in values:
        if value.producer < 0:
            continue
        low = int(block_of[value.producer]) + 1
        for reader in sorted({int(block_of[c]) for c in value.consumers}):
            # A layer that starts in low..reader meets this reader of the value first.
            if low <= reader:
                table[low, reader] += value.num_bytes
                table[reader + 1, reader] -= value.num_bytes
                low = reader + 1
    return np.cumsum(np.cumsum(table, axis=0)[:-1], axis=1)


def _least_worst(table: Floats, num_layers: int) -> Floats:
    """[k]: the least maximum over layers that cover blocks 0..k, of the layers' entries."""
    worst: Floats = table[0].copy()
    for _ in range(num_layers - 1):
        through = np.maximum(np.concatenate([[np.inf], worst[:-1]])[:, None], table)
        worst = through.min(axis=0)
    return worst


def _best_cuts(cut: Floats, share: Floats, num_layers: int) -> list[tuple[int, int]]:
    """(first, last) block per layer; inf marks forbidden layers."""
    size = len(cut)
    worst = _least_worst(cut, num_layers)
    cut = np.where(cut <= worst[-1], cut, np.inf)
    # Among those, least total, then least sum of squares; `first[r][k]` starts the last layer.
    total, squares = cut[0].copy(), np.where(np.isfinite(cut[0]), share[0] ** 2, np.inf)
    first: list[Ints] = []
    for _ in range(num_layers - 1):
        through = np.concatenate([[np.inf], total[:-1]])[:, None] + cut
        total = through.min(axis=0)
        ties = np.isfinite(through) & (through <= total * (1.0 + 1e-12))
        even = np.where(ties, np.concatenate([[np.inf], squares[:-1]])[:, None] + share**2, np.inf)
        pick = even.argmin(axis=0)
        squares = even[pick, np.arange(size)]
        first.append(pick)
    layers: list[tuple[int, int]] = []
    last = size - 1
    for starts in reversed(first):
        layers.append((int(starts[last]), last))
        last = int(starts[last]) - 1
    return [(0, last), *reversed(layers)]

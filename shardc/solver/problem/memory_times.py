"""The times at which the memory limit can be exceeded, and the live bytes at each of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardc.solver.problem.problem import Floats, Ints, Problem

Terms = dict[tuple[int, int], Ints]  # (lo, hi) in kept times -> bytes per strategy


@dataclass(frozen=True)
class Live:
    """The usages of a problem at the few times that matter.

    Attributes:
        terms: per node its usages, over indices into `times`.
        times: original numbers of the times; a subset keeps the numbers.
    """

    terms: list[Terms]
    times: Ints

    @staticmethod
    def of(problem: Problem) -> "Live":
        """A time matters if some choice can exceed the limit there and no later time before the
        next end of an interval has more live nodes. Dropping all others is exact."""
        n = problem.num_nodes
        terms: list[Terms] = [{} for _ in range(n)]
        if problem.usage_limit is None:
            return Live(terms, np.zeros(0, np.int64))
        spans = np.array(list(problem.spans()), np.int64).reshape(-1, 3)
        live, lo, hi = spans[:, 0].tolist(), spans[:, 1], spans[:, 2]
        events = np.unique(np.concatenate([lo, hi]))
        most = np.array([int(problem.usages[v].max()) for v in live], np.int64)
        starts, ends = np.searchsorted(events, lo), np.searchsorted(events, hi)
        change = np.zeros(len(events) + 1, np.int64)
        np.add.at(change, starts, most)
        np.add.at(change, ends, -most)
        is_end = np.zeros(len(events) + 1, bool)
        is_end[ends] = True
        keep = (np.cumsum(change)[:-1] > problem.usage_limit) & is_end[1:]
        index = np.concatenate([[0], np.cumsum(keep)])
        for v, start, end in zip(live, index[starts].tolist(), index[ends].tolist(), strict=True):
            if start < end:
                add_term(terms[v], start, end, np.asarray(problem.usages[v], np.int64))
        return Live(terms, np.arange(int(index[-1])))

    def only(self, wanted: set[int]) -> "Live":
        """Restricts to the times `wanted`: a relaxation of the problem."""
        index = np.searchsorted(np.array(sorted(wanted), np.int64), np.arange(len(self.times) + 1))
        place: list[int] = index.tolist()
        fewer: list[Terms] = []
        for of_node in self.terms:
            merged: Terms = {}
            for (lo, hi), usage in of_node.items():
                if place[lo] < place[hi]:
                    add_term(merged, place[lo], place[hi], usage)
            fewer.append(merged)
        return Live(fewer, np.array(sorted(wanted), np.int64))


def drop_safe_times(
    terms: dict[int, Terms], base: Ints, limit: int
) -> tuple[dict[int, Terms], Ints, npt.NDArray[np.bool_]]:
    """Drops the times at which even the largest choice stays within `limit`; merges times that
    become equal. Call again after removing strategies.

    Returns:
        Terms and base profile over the remaining times, and a mask of these.
    """
    change = np.zeros(len(base) + 1, np.int64)
    for of_node in terms.values():
        for (lo, hi), usage in of_node.items():
            change[lo] += usage.max()
            change[hi] -= usage.max()
    keep = base + np.cumsum(change)[:-1] > limit
    index = np.concatenate([[0], np.cumsum(keep)]).tolist()
    fewer: dict[int, Terms] = {}
    for v, of_node in terms.items():
        merged: Terms = {}
        for (lo, hi), usage in of_node.items():
            if index[lo] < index[hi]:
                add_term(merged, index[lo], index[hi], usage)
        fewer[v] = merged
    return fewer, base[keep], keep


def add_term(terms: Terms, lo: int, hi: int, usage: Ints) -> None:
    """Adds `usage` over [lo, hi) to the terms of one node."""
    known = terms.get((lo, hi))
    terms[lo, hi] = usage if known is None else known + usage


@dataclass(frozen=True)
class Memory:
    """All terms of a contracted problem in flat arrays.

    Attributes:
        limit: bytes.
        base: bytes per time that every choice holds.
        num_strategies: of all nodes together.
        place: per cell (a term and a strategy), index of that strategy in the flat list of all.
        bytes: per cell, the bytes it holds over [lo, hi).
        term_node, term_cell, lo, hi: per term, its node, its first cell, and its times.
    """

    limit: int
    base: Ints
    num_strategies: int
    place: Ints
    bytes: Ints
    term_node: Ints
    term_cell: Ints
    lo: Ints
    hi: Ints

    @staticmethod
    def build(terms: Sequence[Terms], sizes: Sequence[int], base: Ints, limit: int) -> "Memory":
        """Flattens `terms` (per node)."""
        first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        flat = [(v, lo, hi, use) for v, t in enumerate(terms) for (lo, hi), use in t.items()]
        lengths = [len(use) for *_, use in flat]
        return Memory(
            limit=limit,
            base=base,
            num_strategies=int(first[-1]),
            place=np.concatenate(
                [np.arange(first[v], first[v + 1]) for v, *_ in flat] or [np.zeros(0)]
            ).astype(np.int64),
            bytes=np.concatenate([use for *_, use in flat] or [np.zeros(0, np.int64)]),
            term_node=np.array([v for v, *_ in flat], np.int64),
            term_cell=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)[:-1],
            lo=np.array([lo for _, lo, _, _ in flat], np.int64),
            hi=np.array([hi for _, _, hi, _ in flat], np.int64),
        )

    def profile(self, choice: Ints) -> Ints:
        """Bytes live at each kept time."""
        change = np.zeros(len(self.base) + 1, np.int64)
        used = self.bytes[self.term_cell + choice[self.term_node]]
        np.add.at(change, self.lo, used)
        np.add.at(change, self.hi, -used)
        return self.base + np.cumsum(change)[:-1]

    def price_of_strategies(self, prices: Floats) -> Floats:
        """Memory cost of each strategy (flat) if a byte at time t costs `prices[t]`."""
        total = np.concatenate([[0.0], np.cumsum(prices)])
        per_term = total[self.hi] - total[self.lo]
        lengths = np.diff(np.append(self.term_cell, len(self.bytes)))
        weights = np.repeat(per_term, lengths) * self.bytes
        return np.bincount(self.place, weights, self.num_strategies)

    def peaks(self, profile: Ints, most: int) -> npt.NDArray[np.intp]:
        """The peak of each run of times over the limit, highest peaks first."""
        over = np.flatnonzero(profile > self.limit)
        if len(over) == 0:
            return over
        stretches = np.split(over, np.flatnonzero(np.diff(over) > 1) + 1)
        worst = np.array([s[np.argmax(profile[s])] for s in stretches])
        return worst[np.argsort(-profile[worst], kind="stable")][:most]

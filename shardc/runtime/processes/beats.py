"""Heartbeats: what each process writes, and the summary of all that rank 0 writes.

A process reads one short value per round however many there are: in it, ranks that have reached
the same point stand together.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

ABSENT, RUNS, ENDED = "absent", "runs", "ended"
"""States of a process; that of one that has failed is the text of its failure."""


class Reached(NamedTuple):
    """Progress of a process; all processes reach the same points, in the same order.

    So of two processes, one is behind the other in nothing; else they have parted.

    Attributes:
        devices: 1 once it has asked JAX for its devices; JAX returns them when all have asked.
        plans: how many plans it has begun to agree on.
        steps: how many steps it has begun, and has not left by an exception.
    """

    devices: int = 0
    plans: int = 0
    steps: int = 0

    def is_behind(self, other: "Reached") -> bool:
        """Whether the other process has come to a point that this one has not."""
        return any(own < theirs for own, theirs in zip(self, other, strict=True))


NOWHERE = Reached()


@dataclass(frozen=True)
class Seen:
    """What is known of a process.

    Attributes:
        state: absent, runs, ended, or how it failed.
        quiet_s: since its last heartbeat arrived at rank 0.
        lag_s: since when others are ahead of it and it makes no progress.
    """

    reached: Reached = NOWHERE
    state: str = ABSENT
    quiet_s: float = 0.0
    lag_s: float = 0.0

    @property
    def has_failed(self) -> bool:
        return self.state not in (ABSENT, RUNS, ENDED)


def beat(number: int, reached: Reached, state: str) -> bytes:
    """A heartbeat; `number` makes it differ from the one before."""
    return f"{number} {','.join(map(str, reached))} {state}".encode()


class Beats:
    """The heartbeats of all processes, as rank 0 reads them.

    Args:
        now_s: of a clock, as in `hear`.
    """

    def __init__(self, size: int, now_s: float) -> None:
        self._texts = [""] * size
        self._since_s = [now_s] * size
        self._reached = [NOWHERE] * size
        self._states = [ABSENT] * size
        self._behind_s: list[float | None] = [None] * size
        self._now_s = now_s

    def hear(self, texts: Mapping[int, bytes], now_s: float) -> None:
        """Takes the heartbeats written last, by rank."""
        for rank, text in texts.items():
            found = text.decode()
            if found == self._texts[rank]:
                continue
            _, points, self._states[rank] = found.split(" ", 2)
            reached = Reached(*map(int, points.split(",")))
            if reached != self._reached[rank]:
                self._behind_s[rank] = None  # it makes progress; its heartbeat is just older
            self._texts[rank], self._since_s[rank] = found, now_s
            self._reached[rank] = reached
        most = Reached(*map(max, zip(*self._reached, strict=True)))
        for rank, reached in enumerate(self._reached):
            if not reached.is_behind(most):
                self._behind_s[rank] = None
            elif self._behind_s[rank] is None:
                self._behind_s[rank] = now_s
        self._now_s = now_s

    def seen(self) -> dict[int, Seen]:
        """What is known of each process, by rank."""
        return {
            rank: Seen(
                self._reached[rank],
                self._states[rank],
                self._now_s - self._since_s[rank],
                0.0 if behind_s is None else self._now_s - behind_s,
            )
            for rank, behind_s in enumerate(self._behind_s)
        }


def summary(seen: Mapping[int, Seen], number: int, silence_s: float) -> bytes:
    """`seen` as rank 0 writes it.

    Args:
        number: of the round.
        silence_s: times up to this are left out.
    """
    alike: dict[tuple[Reached, str], list[int]] = {}
    for rank, own in seen.items():
        alike.setdefault((own.reached, own.state), []).append(rank)
    late = {
        rank: (round(own.quiet_s, 2), round(own.lag_s, 2))
        for rank, own in seen.items()
        if max(own.quiet_s, own.lag_s) > silence_s
    }
    groups = [[*reached, state, _runs(ranks)] for (reached, state), ranks in alike.items()]
    return json.dumps([number, groups, list(late.items())], separators=(",", ":")).encode()


def read_summary(text: bytes) -> tuple[int, dict[int, Seen]]:
    """The number of the round, and what rank 0 knows of each process."""
    number, groups, late = json.loads(text)
    times = {rank: (quiet_s, lag_s) for rank, (quiet_s, lag_s) in late}
    found = {
        rank: Seen(Reached(*reached), state, *times.get(rank, (0.0, 0.0)))
        for *reached, state, runs in groups
        for first, count in runs
        for rank in range(first, first + count)
    }
    return number, found


def _runs(ranks: Sequence[int]) -> list[list[int]]:
    """Ascending ranks as [first, how many]."""
    found: list[list[int]] = []
    for rank in ranks:
        if found and sum(found[-1]) == rank:
            found[-1][1] += 1
        else:
            found.append([rank, 1])
    return found

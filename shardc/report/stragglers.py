"""Finds processes of a job that fall behind their predictions more than the others do.

Each process writes the times of its own programs to a file (`shardc.rank_times`); this module
reads the files of a job together.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from shardc.errors import InputError, writing
from shardc.files import BAD_DATA, as_path, read_data, write_whole
from shardc.plan.decisions import Plan
from shardc.runtime.tape.measured import AloneStep

SLOW = 1.25  # times as slow as the others


class RankTimes(msgspec.Struct, frozen=True):
    """The measurements of one process.

    Attributes:
        actions: name -> (seconds measured, seconds predicted), one for each of its programs in a
            step.
        num_steps: the number of steps whose median was taken.
        probe_s: of a computation that the process did alone, the same in all; 0 if none was timed.
    """

    rank: int
    host: str
    num_steps: int
    actions: dict[str, tuple[float, float]]
    probe_s: float = 0.0

    @property
    def factor(self) -> float:
        """Measured over predicted, of all programs together."""
        return sum(a for a, _ in self.actions.values()) / sum(b for _, b in self.actions.values())

    def save(self, folder: str | Path) -> None:
        """Writes `rank-N.json`.

        Raises:
            InputError: SHARDC-180, it cannot be written.
        """
        with writing("the times of a rank", folder):
            as_path(folder).mkdir(parents=True, exist_ok=True)
            write_whole(as_path(folder) / f"rank-{self.rank}.json", msgspec.json.encode(self))


def times_of(rank: int, host: str, steps: Sequence[AloneStep], plans: Sequence[Plan]) -> RankTimes:
    """The times of a process's steps, except the first of each plan, which warms up.

    Raises:
        InputError: SHARDC-180, there is no second step, or a plan has no predictions.
    """
    measured: dict[str, list[float]] = {}
    predicted: dict[str, float] = {}
    seen: list[Plan] = []
    num_steps = 0
    for plan, step in zip(plans, steps, strict=False):
        if not any(plan is other for other in seen):
            seen.append(plan)
            continue
        num_steps += 1
        for action, seconds in step.busy_s.items():
            measured.setdefault(action, []).append(seconds)
        if plan.account is not None:
            predicted |= {t.action: t.end_s - t.start_s for t in plan.account.timeline}
    found = {
        action: (statistics.median(values), predicted[action])
        for action, values in measured.items()
        if predicted.get(action, 0.0) > 0
    }
    if not found:
        raise InputError(
            "no times to compare: no plan ran twice, or the plan predicts no times",
            help="run some steps of one function inside shardc.rank_times, and plan again if the"
            " plan is of an older version",
        )
    return RankTimes(rank, host, num_steps, found)


def read_times(folder: Path) -> list[RankTimes]:
    """The files of a job, by rank.

    Raises:
        InputError: SHARDC-180, one is damaged, or there are fewer than two.
    """
    found = []
    for path in sorted(folder.glob("rank-*.json")):
        try:
            times = msgspec.json.decode(read_data(path), type=RankTimes)
        except BAD_DATA as error:
            raise InputError(
                f"this is not a file of rank times: {error}", where=str(path)
            ) from error
        if not times.actions or not all(
            a >= 0 and b > 0 for a, b in [*times.actions.values(), (times.probe_s, 1)]
        ):
            raise InputError("this is not a file of rank times", where=str(path))
        found.append(times)
    if len(found) < 2:
        raise InputError(
            f"there are {len(found)} rank files: nothing to compare",
            where=str(folder),
            help="run steps of a job inside shardc.rank_times(folder) on all its processes",
        )
    return sorted(found, key=lambda times: times.rank)


class Slowness(NamedTuple):
    """How slow a process is relative to the median of the others.

    Attributes:
        programs: its measured over predicted times; a common factor in all predictions cancels.
        alone: the time of its probe; 1 if a process has none.
    """

    programs: float
    alone: float

    @property
    def is_slow(self) -> bool:
        return max(self) > SLOW


def slowness(times: Sequence[RankTimes]) -> dict[int, Slowness]:
    """By rank."""
    have_probes = all(own.probe_s > 0 for own in times)
    found = {}
    for own in times:
        others = [each for each in times if each is not own]
        alone = own.probe_s / statistics.median(e.probe_s for e in others) if have_probes else 1.0
        programs = own.factor / statistics.median(each.factor for each in others)
        found[own.rank] = Slowness(programs, alone)
    return found

"""What the processes of a job share: the coordination service and the watch over all processes."""

import functools
import threading

import jax

from shardc.errors import ClusterError, PlanError
from shardc.runtime.processes.agreement import Agreement, Steps
from shardc.runtime.processes.coordination import Coordination, cache_in_every_process
from shardc.runtime.processes.waiting import is_alone, limit_s
from shardc.runtime.processes.watch import Watch

POLL_S = 1.0  # between two checks whether the awaited process lives


class Job:
    """This process as a member of its job."""

    def __init__(self) -> None:
        self.coordination = Coordination()
        self.rank, self.size = self.coordination.rank, self.coordination.size
        self.watch = Watch(self.coordination, limit_s())
        self.watch.start()
        cache_in_every_process()
        self._names = 0
        self._steps = Steps(self.watch.begin_step, self.watch.leave_step)

    def new_plan(self) -> str:
        """A name for the next thing that all processes agree on, in the same order."""
        self.watch.begin_plan()
        return self._new_name()

    def _new_name(self) -> str:
        self._names += 1
        return str(self._names)

    def wait(self, key: str, rank: int = 0) -> bytes:
        """Waits for the value that `rank` writes under `key`, while that process lives.

        Raises:
            ClusterError: SHARDC-281, that process has ended without writing it.
            PlanError: SHARDC-280, it has gone on without it: it runs a step where this process
                plans, or the other way round.
        """
        while True:
            has_left = self.watch.has_left(rank)
            found = self.coordination.get(key, POLL_S)
            if found is not None:
                return found
            if has_left:
                raise ClusterError(
                    f"rank {rank} has ended, and rank {self.rank} waits for it ({key})",
                    help="call the same functions of shardc in the same order on all processes",
                    code="SHARDC-281",
                )
            if (parted := self.watch.parted(rank)) is not None:
                raise PlanError(
                    f"{parted}: they call different functions, or one passes arguments of other"
                    " types",
                    help="call the same functions, with arguments of the same shapes, types and"
                    " memory kinds, in the same order on all processes",
                    code="SHARDC-280",
                )

    def meet(self, name: str) -> None:
        """Waits until all processes have called this."""
        if self.rank == 0:
            self.collect(name)
            self.coordination.set(f"{name}/all", b"here")
        else:
            self.coordination.set(f"{name}/{self.rank}", b"here")
            self.wait(f"{name}/all")

    def collect(self, folder: str) -> dict[int, bytes]:
        """On rank 0: the values that the other ranks write under `folder`/rank, while they live.

        One request has all that are there; only those that are late are waited for one by one.

        Raises:
            ClusterError: SHARDC-281, a process has ended without writing it.
        """
        found = {int(rank): value for rank, value in self.coordination.all_under(folder).items()}
        for rank in range(1, self.size):
            if rank not in found:
                found[rank] = self.wait(f"{folder}/{rank}", rank)
        return found

    def agreement(self) -> Agreement:
        """For the steps of one program; returns when all processes have compiled it."""
        name = self._new_name()
        self.meet(f"compiled/{name}")
        return Agreement(self.coordination, self.wait, name, self._steps)


_ONE_JOB = threading.Lock()


def this_job() -> Job:
    """The job of this process; the first call starts its watch."""
    with _ONE_JOB:
        return _job()


@functools.cache
def _job() -> Job:
    return Job()


def is_several() -> bool:
    """Whether the job has other processes."""
    if jax.process_count() > 1:
        return True
    is_alone.set()
    return False

"""Threads in every process that end it when another process is missing, stuck or gone.

A collective that waits for a missing process cannot be interrupted, so a thread ends the whole
process, with a line that names the missing one.
"""

import atexit
import os
import sys
import threading
import time
from dataclasses import replace

import jax

from shardc.runtime.processes.beats import (
    ABSENT,
    ENDED,
    RUNS,
    Beats,
    Reached,
    Seen,
    beat,
    read_summary,
    summary,
)
from shardc.runtime.processes.coordination import (
    Coordination,
    has_asked_for_devices,
    is_in_shutdown,
    waits_for_devices,
)
from shardc.runtime.processes.waiting import POLL_S, end_process

MOST_SAID = 500  # characters of a failure
RANKS_PER_S = 256  # that send a heartbeat: larger jobs send them less often
REQUEST_S = 3600.0  # of the open request that fails when the service is gone


class Watch:
    """Writes this process's heartbeat and judges the others by theirs.

    Rank 0 reads the heartbeats of all and writes a summary, which the others read: two requests per
    process and round. To be created after `jax.distributed.initialize()`.

    Args:
        limit_s: how long another process may be silent, or lag behind.
    """

    def __init__(self, coordination: Coordination, limit_s: float) -> None:
        self._coordination = coordination
        self._limit_s = limit_s
        self._interval_s = min(max(1.0, coordination.size / RANKS_PER_S), limit_s / 10)
        self._farewell = f"farewell/{coordination.rank}"  # written by this process, at its end
        self._state = RUNS
        self._rounds = 0
        self._reached = Reached()
        self._counts = threading.Lock()  # of several threads: none may be lost
        # Since when this process needs all others: for a plan, or for JAX's devices.
        self._needs_s: float | None = None
        self._waits_s: float | None = None
        self._begin_s = self._round_s = time.monotonic()
        self._leaves, self._others_left = threading.Event(), threading.Event()
        self._ended = threading.Event()
        self._dying = threading.Lock()
        self._beats = None if coordination.rank else Beats(coordination.size, self._begin_s)
        self._news: tuple[int, float] | None = None  # number of the last summary; when it came
        self._summary: dict[int, Seen] = {}
        self._threads = [
            threading.Thread(target=work, name="shardc-watch", daemon=True)
            for work in (self._listen, self._guard, self._await_service)
        ]
        self._process = os.getpid()

    def start(self) -> None:
        """Begins to watch, until the program ends."""
        for thread in self._threads:
            thread.start()
        atexit.register(self._end)

    def begin_plan(self) -> None:
        """This process is about to agree on a plan with all others.

        From now on, a process without a heartbeat is missing. Before, it may be one that does not
        import shardc.
        """
        self._needs_s = self._needs_s or time.monotonic()
        self._count(plans=1)

    def begin_step(self) -> int:
        """Begins a step and returns its number, from 1."""
        return self._count(steps=1).steps

    def leave_step(self) -> None:
        """An exception has ended the step: to the others, this process has not begun it."""
        self._count(steps=-1)

    def _count(self, *, plans: int = 0, steps: int = 0) -> Reached:
        """Notes what this process begins, and its devices at once: it plans because it has them,
        and would have parted from a process that is known to have them and has not begun to plan.
        """
        with self._counts:
            own = self._reached
            devices = own.devices or int(has_asked_for_devices())
            self._reached = Reached(devices, own.plans + plans, own.steps + steps)
            return self._reached

    def parted(self, rank: int) -> str | None:
        """How this process and another one have gone different ways; None if they have not."""
        own, theirs = self._reached, self._seen()[rank].reached
        if not (own.is_behind(theirs) and theirs.is_behind(own)):
            return None
        return (
            f"rank {rank} has {_next(own, theirs)}, and rank {self._coordination.rank} has"
            f" {_next(theirs, own)}"
        )

    def has_left(self, rank: int) -> bool:
        """Whether another process has ended or failed."""
        is_other = rank != self._coordination.rank
        return is_other and self._seen()[rank].state not in (ABSENT, RUNS)

    def fail(self, fault: str) -> None:
        """Ends the process, and with it the job; all processes print `fault`."""
        self._say_failed(fault)
        self._die(fault)

    def _round(self) -> None:
        """Rank 0 hears before it says: what it says is a summary of all."""
        if self._beats is None:
            self._say()
            self._hear()
        else:
            self._hear()
            self._say()
        others = (seen for rank, seen in self._seen().items() if rank != self._coordination.rank)
        if all(seen.state != RUNS for seen in others):
            self._others_left.set()
        else:
            self._others_left.clear()
        now = time.monotonic()
        self._waits_s = (self._waits_s or now) if waits_for_devices() else None
        self._round_s = now

    def _say(self) -> None:
        self._rounds += 1
        own = beat(self._rounds, self._count(), self._state)
        if self._beats is None:
            self._coordination.set(f"beat/{self._coordination.rank}", own)
        else:
            self._beats.hear({0: own}, time.monotonic())
            said = summary(self._beats.seen(), self._rounds, 2 * self._interval_s)
            self._coordination.set("beats", said)

    def _hear(self) -> None:
        now = time.monotonic()
        if self._beats is not None:
            found = self._coordination.all_under("beat")
            self._beats.hear({int(rank): text for rank, text in found.items()}, now)
        elif (text := self._coordination.get("beats", self._interval_s)) is not None:
            number, self._summary = read_summary(text)
            if self._news is None or number != self._news[0]:
                self._news = number, now

    def _seen(self) -> dict[int, Seen]:
        """What is known of each process; of this process, as the others know it."""
        now = time.monotonic()
        if self._beats is not None:
            return self._beats.seen()
        if self._news is None:
            return dict.fromkeys(range(self._coordination.size), Seen(quiet_s=now - self._begin_s))
        # Without news from rank 0, nothing is known of the others: only rank 0 grows quiet.
        return self._summary | {0: replace(self._summary[0], quiet_s=now - self._news[1])}

    def _say_failed(self, fault: str) -> None:
        self._ended.set()
        self._state = f"failed: {fault}".splitlines()[0][:MOST_SAID]
        self._say()

    def _listen(self) -> None:
        while not self._ended.is_set():
            try:
                if is_in_shutdown():  # the program ended before `_end` was registered
                    self._leave()
                    return
                self._round()
            except jax.errors.JaxRuntimeError:  # `_guard` ends the process if this lasts
                if self._is_over():
                    return
            fault = self._fault(self._limit_s)
            if fault is not None and not self._is_over():
                self._die(fault)
            if self._leaves.wait(self._interval_s):
                time.sleep(POLL_S)

    def _is_over(self) -> bool:
        """Whether the program has ended, or has left the job by jax.distributed.shutdown()."""
        if not jax.distributed.is_initialized():
            self._ended.set()
        return self._ended.is_set()

    def _fault(self, silence_s: float) -> str | None:
        """Names the process that blocks the job, and why; None if none does."""
        now = time.monotonic()
        waited_s = 0.0 if self._waits_s is None else now - self._waits_s
        needed_s = 0.0 if self._needs_s is None else now - self._needs_s
        for rank, seen in self._seen().items():
            if rank == self._coordination.rank:
                continue
            quiet_s, lag_s = seen.quiet_s, seen.lag_s
            if seen.state == ABSENT:
                missed_s = min(quiet_s, max(waited_s, needed_s))
                if missed_s > silence_s:
                    return f"rank {rank} is missing: no sign of it for {missed_s:.0f} s"
            elif seen.has_failed:
                return f"rank {rank} {seen.state}"
            elif not seen.reached.devices and waited_s == 0:
                continue
            elif seen.state == ENDED:
                is_missed = seen.reached.devices and seen.reached.is_behind(self._reached)
                if is_missed or (not seen.reached.devices and waited_s > 2 * self._interval_s):
                    return f"rank {rank} ended before it had {_next(seen.reached, self._reached)}"
            elif quiet_s > (silence_s / 2 if lag_s > silence_s else silence_s):
                return f"rank {rank} is dead or stopped: no sign of it for {quiet_s:.0f} s"
            elif lag_s > silence_s:
                what = _next(seen.reached, self._reached)
                return f"rank {rank} has not {what} for {lag_s:.0f} s; others have"
        return None

    def _guard(self) -> None:
        """Ends the process if another thread is blocked forever."""
        left_s: float | None = None
        while not self._ended.wait(self._interval_s):
            # Python joins threads before it calls `_end`, and a thread that saves a checkpoint
            # waits for the other processes.
            if _has_failed():
                left_s = left_s or time.monotonic()
                if time.monotonic() - left_s > self._limit_s / 2:
                    self._end()
            silent_s = time.monotonic() - self._round_s
            if silent_s > self._limit_s and not self._is_over():
                self._die(
                    "rank 0, which keeps the coordination service, is dead or stopped: no answer"
                    f" for {silent_s:.0f} s"
                )

    def _await_service(self) -> None:
        """Ends the process when rank 0 dies, before jaxlib aborts it with a less clear message."""
        while self._coordination.rank != 0 and not self._ended.is_set():
            try:
                self._coordination.get(self._farewell, REQUEST_S)
            except jax.errors.JaxRuntimeError as error:
                if self._is_over() or is_in_shutdown():
                    return
                first = str(error).splitlines()[0]
                self._die(f"rank 0, which keeps the coordination service, is gone: {first}")

    def _die(self, fault: str) -> None:
        """Ends the process; only the first thread to call this prints the reason."""
        self._dying.acquire()
        # The service dies with rank 0, so rank 0 stays until the others have read its heartbeat.
        stays_s = 0.0 if self._coordination.rank else 2 * self._interval_s
        end_process(self._coordination.rank, fault, stays_s)

    def _end(self) -> None:
        """At the end of the program: tells the others; names a process that made this one fail."""
        error = getattr(sys, "last_exc", None)
        if self._is_over() or os.getpid() != self._process:
            return
        if error is None:
            # JAX waits for the others, too, but does not name one that dies meanwhile.
            self._state = ENDED
            self._leaves.set()
            self._others_left.clear()
            self._others_left.wait(self._limit_s + 2 * self._interval_s)
            self._leave()
            for thread in self._threads:
                thread.join(self._interval_s)
            return
        fault = self._fault_of_another() if _may_come_from_another(error) else None
        if fault is None:
            self._say_failed(f"{type(error).__name__}: {error}")
            fault = "of its own failure above"
        self._die(fault)

    def _leave(self) -> None:
        """Ends the threads: one still inside jaxlib when Python ends would abort the process."""
        self._ended.set()
        self._state = ENDED
        self._say()
        self._coordination.set(self._farewell, b"")

    def _fault_of_another(self) -> str | None:
        """Waits briefly for it: XLA's error for a broken connection does not name the process at
        the other end."""
        patience_s = 5 * self._interval_s
        until_s = time.monotonic() + 2 * patience_s
        while (fault := self._fault(patience_s)) is None and time.monotonic() < until_s:
            time.sleep(self._interval_s)
        return fault


def _next(reached: Reached, others: Reached) -> str:
    """The first point that a process has not reached yet."""
    if not reached.devices:
        return "asked for its devices"
    if reached.plans < others.plans:
        return "come to where all agree on a plan"
    return f"begun step {reached.steps + 1}"


def _may_come_from_another(error: BaseException | None) -> bool:
    """Whether XLA raised the error or one that led to it; some are plain ValueErrors."""
    while error is not None:
        if isinstance(error, (jax.errors.JaxRuntimeError, ValueError)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _has_failed() -> bool:
    """Whether an exception ended the program."""
    return getattr(sys, "last_exc", None) is not None and not threading.main_thread().is_alive()

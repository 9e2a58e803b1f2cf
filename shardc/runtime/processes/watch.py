"""Threads in every process that end it when another process is missing, stuck or gone.

A collective that waits for a missing process cannot be interrupted, so a thread ends the whole
process, with a line that names the missing one.
"""

import atexit
import os
import sys
import threading
import time
from dataclasses import dataclass
from typing import NamedTuple

import jax

from shardc.runtime.processes.coordination import (
    Coordination,
    has_asked_for_devices,
    is_in_shutdown,
    waits_for_devices,
)
from shardc.runtime.processes.roll_call import POLL_S, end_process

MOST_SAID = 500  # characters of a failure
REQUEST_S = 3600.0  # of the open request that fails when the service is gone


class Reached(NamedTuple):
    """Progress of a process; all processes reach the same points, in the same order.

    Attributes:
        devices: 1 once it has asked JAX for its devices; JAX returns them when all have asked.
        plans: how many plans it has begun to agree on.
        steps: how many steps it has begun.
    """

    devices: int = 0
    plans: int = 0
    steps: int = 0

    @property
    def points(self) -> int:
        return sum(self)


@dataclass
class Seen:
    """The last heartbeat of another process.

    Attributes:
        text: as written: number of the beat, progress as "devices,plans,steps", state.
        since_s: when it was read.
        behind_s: since when the process has lagged without progress; None if it does not lag.
    """

    text: str
    since_s: float
    behind_s: float | None = None

    @property
    def reached(self) -> Reached:
        return Reached(*map(int, self.text.split(" ", 2)[1].split(","))) if self.text else Reached()

    @property
    def state(self) -> str:
        return self.text.split(" ", 2)[2] if self.text else "absent"


class Watch:
    """Writes this process's heartbeat and reads those of the others.

    To be created after `jax.distributed.initialize()`.

    Args:
        limit_s: how long another process may be silent, or lag behind.
    """

    def __init__(self, coordination: Coordination, limit_s: float) -> None:
        self._coordination = coordination
        self._limit_s = limit_s
        self._interval_s = min(1.0, limit_s / 10)
        self._farewell = f"farewell/{coordination.rank}"  # written by this process, at its end
        self._state = "runs"
        self._beats = 0
        self._reached = Reached()
        # Since when this process needs all others: for a plan, or for JAX's devices.
        self._needs_s: float | None = None
        self._waits_s: float | None = None
        self._round_s = time.monotonic()
        self._leaves, self._others_left = threading.Event(), threading.Event()
        self._ended = threading.Event()
        self._dying = threading.Lock()
        self._seen = {
            rank: Seen("", self._round_s)
            for rank in range(coordination.size)
            if rank != coordination.rank
        }
        self._threads = [
            threading.Thread(target=work, name="shardc-watch", daemon=True)
            for work in (self._listen, self._guard, self._await_service)
        ]
        for thread in self._threads:
            thread.start()
        self._process = os.getpid()
        atexit.register(self._end)

    def begin_plan(self) -> None:
        """This process is about to agree on a plan with all others.

        From now on, a process without a heartbeat is missing. Before, it may be one that does not
        import shardc.
        """
        self._needs_s = self._needs_s or time.monotonic()
        self._reached = self._reached._replace(plans=self._reached.plans + 1)

    def begin_step(self) -> int:
        """Begins a step and returns its number, from 1."""
        self._reached = self._reached._replace(steps=self._reached.steps + 1)
        return self._reached.steps

    def has_left(self, rank: int) -> bool:
        """Whether another process has ended or failed."""
        return rank in self._seen and self._seen[rank].state not in ("absent", "runs")

    def fail(self, fault: str) -> None:
        """Ends the process, and with it the job; all processes print `fault`."""
        self._say_failed(fault)
        self._die(fault)

    def _say(self) -> None:
        self._beats += 1
        if not self._reached.devices and has_asked_for_devices():
            self._reached = self._reached._replace(devices=1)
        text = f"{self._beats} {','.join(map(str, self._reached))} {self._state}"
        self._coordination.set(f"beat/{self._coordination.rank}", text.encode())

    def _say_failed(self, fault: str) -> None:
        self._ended.set()
        self._state = f"failed: {fault}".splitlines()[0][:MOST_SAID]
        self._say()

    def _hear(self) -> None:
        now = time.monotonic()
        for key, value in self._coordination.all_under("beat").items():
            rank, text = int(key), value.decode()
            if rank in self._seen and text != self._seen[rank].text:
                seen, reached = self._seen[rank], self._seen[rank].reached
                seen.text, seen.since_s = text, now
                if seen.reached != reached:
                    seen.behind_s = None  # it makes progress; its heartbeat is just older
        every = self._reached, *(seen.reached for seen in self._seen.values())
        most = max(reached.points for reached in every)
        for seen in self._seen.values():
            if seen.reached.points == most:
                seen.behind_s = None
            elif seen.behind_s is None:
                seen.behind_s = now
        if all(seen.state != "runs" for seen in self._seen.values()):
            self._others_left.set()
        else:
            self._others_left.clear()
        self._waits_s = (self._waits_s or now) if waits_for_devices() else None
        self._round_s = now

    def _listen(self) -> None:
        while not self._ended.is_set():
            try:
                if is_in_shutdown():  # the program ended before `_end` was registered
                    self._leave()
                    return
                self._say()
                self._hear()
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
        for rank, seen in self._seen.items():
            quiet_s = now - seen.since_s
            lag_s = 0.0 if seen.behind_s is None else now - seen.behind_s
            if seen.state == "absent":
                missed_s = min(quiet_s, max(waited_s, needed_s))
                if missed_s > silence_s:
                    return f"rank {rank} is missing: no sign of it for {missed_s:.0f} s"
            elif seen.state.startswith("failed"):
                return f"rank {rank} {seen.state}"
            elif not seen.reached.devices and waited_s == 0:
                continue
            elif seen.state == "ended":
                is_missed = seen.reached.devices and seen.reached.points < self._reached.points
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
            self._state = "ended"
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
        self._state = "ended"
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

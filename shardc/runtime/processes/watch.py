"""A thread of every process that ends it when another process is missing, stuck or gone.

A collective that waits for a process which will never come cannot be interrupted, so the thread
ends the whole process, with a line that names the other one.
"""

import atexit
import os
import sys
import threading
import time
from dataclasses import dataclass

import jax

from shardc.runtime.processes.coordination import Coordination

LIMIT_VARIABLE = "SHARDC_PROCESS_LIMIT_S"
DEFAULT_LIMIT_S = 60.0
EXIT_CODE = 1
MOST_SAID = 500  # characters of a failure
MOST_ERRORS = 3  # of the coordination service, one after another: the job may just be ending


@dataclass
class Seen:
    """What was last heard of a process.

    Attributes:
        text: as it was written: beats, steps begun, state.
        since_s: when that came; `behind_s`: since when it is behind and begins no step, or None.
    """

    text: str
    since_s: float
    behind_s: float | None = None

    @property
    def steps(self) -> int:
        return int(self.text.split(" ", 2)[1]) if self.text else 0

    @property
    def state(self) -> str:
        return self.text.split(" ", 2)[2] if self.text else "absent"


class Watch:
    """Says that this process lives, and listens to the others.

    Args:
        limit_s: how long another may be silent, or behind in steps.
    """

    def __init__(self, coordination: Coordination, limit_s: float) -> None:
        self._coordination = coordination
        self._limit_s = limit_s
        self._interval_s = min(1.0, limit_s / 10)
        self._beats = 0
        self._steps = 0
        self._round_s = time.monotonic()
        self._ended = threading.Event()
        self._seen = {
            rank: Seen("", self._round_s)
            for rank in range(coordination.size)
            if rank != coordination.rank
        }
        for work in (self._listen, self._guard):
            threading.Thread(target=work, name="shardc-watch", daemon=True).start()
        atexit.register(self._end)

    def begin_step(self) -> int:
        """The number of the step that begins now, from 1."""
        self._steps += 1
        return self._steps

    def ended(self, rank: int) -> bool:
        """Whether another process has come to its end, well or not."""
        return rank in self._seen and self._seen[rank].state not in ("absent", "runs")

    def fail(self, fault: str) -> None:
        """Ends the process, and by that the job, with a line that the others say too."""
        self._ended.set()
        self._say(f"failed: {fault}".splitlines()[0][:MOST_SAID])
        self._die(fault)

    def _say(self, state: str) -> None:
        self._beats += 1
        text = f"{self._beats} {self._steps} {state}"
        self._coordination.set(f"beat/{self._coordination.rank}", text.encode())

    def _hear(self) -> None:
        now = time.monotonic()
        for key, value in self._coordination.all_under("beat").items():
            rank, text = int(key), value.decode()
            if rank in self._seen and text != self._seen[rank].text:
                seen, steps = self._seen[rank], self._seen[rank].steps
                seen.text, seen.since_s = text, now
                if seen.steps != steps:
                    seen.behind_s = None  # it goes on: what was heard of it is only older
        most = max((self._steps, *(seen.steps for seen in self._seen.values())))
        for seen in self._seen.values():
            if seen.steps == most:
                seen.behind_s = None
            elif seen.behind_s is None:
                seen.behind_s = now
        self._round_s = now

    def _listen(self) -> None:
        errors = 0
        while not self._ended.is_set():
            try:
                self._say("runs")
                self._hear()
                errors = 0
            except jax.errors.JaxRuntimeError as error:
                errors += 1
                if self._is_over():
                    return
                if errors == MOST_ERRORS:
                    first = str(error).splitlines()[0]
                    self._die(f"rank 0, which keeps the coordination service, is gone: {first}")
            fault = self._fault(self._limit_s)
            if fault is not None and not self._is_over():
                self._die(fault)
            self._ended.wait(self._interval_s)

    def _is_over(self) -> bool:
        """Whether the program is at its end, or has left the job by jax.distributed.shutdown()."""
        if not jax.distributed.is_initialized():
            self._ended.set()
        return self._ended.is_set()

    def _fault(self, silence_s: float) -> str | None:
        """Which process keeps the job from going on, and why."""
        now = time.monotonic()
        for rank, seen in self._seen.items():
            quiet_s, steps = now - seen.since_s, seen.steps
            if seen.state == "absent" and quiet_s > silence_s:
                return f"rank {rank} is missing: no sign of it for {quiet_s:.0f} s"
            if seen.state.startswith("failed"):
                return f"rank {rank} {seen.state}"
            if seen.state == "ended":
                if steps < self._steps:
                    return f"rank {rank} ended behind step {steps}, and this is step {self._steps}"
            elif seen.state != "absent" and quiet_s > silence_s:
                return f"rank {rank} is dead or stopped: no sign of it for {quiet_s:.0f} s"
            elif seen.behind_s is not None and now - seen.behind_s > silence_s:
                return (
                    f"rank {rank} has begun no step behind step {steps} for"
                    f" {now - seen.behind_s:.0f} s, which others have"
                )
        return None

    def _guard(self) -> None:
        """Ends the process where another thread waits for what will not come."""
        left_s: float | None = None
        while not self._ended.wait(self._interval_s):
            # Python waits for threads before it calls `_end`, and a thread that saves a checkpoint
            # with the others would wait for them.
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

    def _die(self, fault: str) -> None:
        sys.stderr.write(f"shardc: rank {self._coordination.rank} ends: {fault}\n")
        sys.stderr.flush()
        os._exit(EXIT_CODE)

    def _end(self) -> None:
        """At the end of the program: tells the others, and names who made this one fail."""
        error = getattr(sys, "last_exc", None)
        if self._is_over():
            return
        if error is None:
            self._ended.set()
            self._say("ended")
            return
        # Ctrl-C is nobody else's fault.
        fault = None if isinstance(error, KeyboardInterrupt) else self._fault_of_another()
        self._ended.set()
        said = f"failed: {type(error).__name__}: {error}".splitlines()[0][:MOST_SAID]
        if fault is None:
            self._say(said)
            fault = "of its own failure above"
        self._die(fault)

    def _fault_of_another(self) -> str | None:
        """Waits a little for it: what XLA says of a connection that broke does not name the process
        at its other end."""
        patience_s = 5 * self._interval_s
        until_s = time.monotonic() + 2 * patience_s
        while (fault := self._fault(patience_s)) is None and time.monotonic() < until_s:
            time.sleep(self._interval_s)
        return fault


def _has_failed() -> bool:
    """Whether the program was left by an exception."""
    return getattr(sys, "last_exc", None) is not None and not threading.main_thread().is_alive()

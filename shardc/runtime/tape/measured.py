"""Measures real steps action by action: each program completes before the next one starts."""

import contextlib
import contextvars
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax


@dataclass
class MeasuredStep:
    """One step. It runs slower than usual, because nothing overlaps.

    Attributes:
        start_ns: of `time.perf_counter_ns`.
        runs: action, start and end of each program in the order in which they ran. A program starts
            when the previous one ends, so its time includes transfers to it.
        busy_s: action -> seconds since all of its inputs were available.
        send_s: in sends, all together.
        receive_s: from receives until their arrays were available, all together; the wait for the
            sender is part of it.
    """

    start_ns: int
    runs: list[tuple[str, int, int]] = field(default_factory=list)
    busy_s: dict[str, float] = field(default_factory=dict)
    send_s: float = 0.0
    receive_s: float = 0.0
    _ready_ns: int = 0

    def ready(self, read: Any) -> None:
        """Waits until the inputs of a program are available."""
        jax.block_until_ready(read)
        self._ready_ns = time.perf_counter_ns()

    def sent(self, start_ns: int) -> None:
        """Counts a send that began at `start_ns`."""
        self.send_s += (time.perf_counter_ns() - start_ns) / 1e9

    def received(self, start_ns: int, values: Any) -> None:
        """Counts a receive that began at `start_ns`; waits for its values."""
        jax.block_until_ready(values)
        self.receive_s += (time.perf_counter_ns() - start_ns) / 1e9

    def wait(self, action: str, made: Any) -> None:
        """Waits until a program has produced its results."""
        jax.block_until_ready(made)
        now_ns = time.perf_counter_ns()
        last_ns = self.runs[-1][2] if self.runs else self.start_ns
        self.runs.append((action, last_ns, now_ns))
        self.busy_s[action] = (now_ns - self._ready_ns) / 1e9


_STEPS: contextvars.ContextVar[list[MeasuredStep] | None] = contextvars.ContextVar(
    "shardc_measured_steps", default=None
)


@contextlib.contextmanager
def measuring() -> Iterator[list[MeasuredStep]]:
    """Measures the steps of this thread while it is open."""
    steps: list[MeasuredStep] = []
    token = _STEPS.set(steps)
    try:
        yield steps
    finally:
        _STEPS.reset(token)


def next_step() -> MeasuredStep | None:
    """The measurement of the next step; None if nobody requested one."""
    steps = _STEPS.get()
    if steps is None:
        return None
    steps.append(MeasuredStep(time.perf_counter_ns()))
    return steps[-1]

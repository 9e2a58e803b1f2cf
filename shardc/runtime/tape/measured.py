"""Real steps, measured action by action: each program is waited for before the next is started."""

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
        runs: action, start and end of each program in the order in which they ran. Its start is the
            end of the one before, so what had to be sent to it counts to it.
        busy_s: action -> seconds from when all that it reads was there.
    """

    start_ns: int
    runs: list[tuple[str, int, int]] = field(default_factory=list)
    busy_s: dict[str, float] = field(default_factory=dict)
    _ready_ns: int = 0

    def ready(self, read: Any) -> None:
        """Waits until what a program reads is there."""
        jax.block_until_ready(read)
        self._ready_ns = time.perf_counter_ns()

    def wait(self, action: str, made: Any) -> None:
        """Waits until a program has made its results."""
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
    """Where the step that begins now is measured; None if nobody asked for it."""
    steps = _STEPS.get()
    if steps is None:
        return None
    steps.append(MeasuredStep(time.perf_counter_ns()))
    return steps[-1]

"""Measures real steps action by action: as they run, or each program alone."""

import contextlib
import contextvars
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import jax

Call = Callable[..., Sequence[Any]]


class Measurement(Protocol):
    """Runs the programs of one step."""

    def run(self, action: str, program: str, call: Call, read: Sequence[Any]) -> Sequence[Any]:
        """Calls the program of this name."""
        ...

    def sent(self, start_ns: int) -> None:
        """A send that began at `start_ns` (`time.perf_counter_ns`) has been dispatched."""

    def received(self, start_ns: int, values: Any) -> None:
        """The same of a receive."""


@dataclass
class MeasuredStep:
    """When each action of a step ran.

    Attributes:
        runs: action, start and end (in ns since the step began).
    """

    runs: list[tuple[str, int, int]] = field(default_factory=list)


@dataclass
class AloneStep(MeasuredStep):
    """A step whose programs run one at a time. It is slower than usual: nothing overlaps.

    A program starts when the previous one ends, so its time includes transfers to it.

    Attributes:
        start_ns: of `time.perf_counter_ns`.
        busy_s: action -> seconds since all of its inputs were available.
        send_s: in sends, all together.
        receive_s: from receives until their arrays were available, all together; the wait for the
            sender is part of it.
    """

    start_ns: int = field(default_factory=time.perf_counter_ns)
    busy_s: dict[str, float] = field(default_factory=dict)
    send_s: float = 0.0
    receive_s: float = 0.0

    def run(self, action: str, program: str, call: Call, read: Sequence[Any]) -> Sequence[Any]:
        """Calls a program when its inputs are there, and waits until it has ended."""
        jax.block_until_ready(read)
        ready_ns = time.perf_counter_ns()
        made = call(*read)
        jax.block_until_ready(made)
        now_ns = time.perf_counter_ns()
        last_ns = self.runs[-1][2] if self.runs else 0
        self.runs.append((action, last_ns, now_ns - self.start_ns))
        self.busy_s[action] = (now_ns - ready_ns) / 1e9
        return made

    def sent(self, start_ns: int) -> None:
        """Counts a send that began at `start_ns`."""
        self.send_s += (time.perf_counter_ns() - start_ns) / 1e9

    def received(self, start_ns: int, values: Any) -> None:
        """Counts a receive that began at `start_ns`; waits for its values."""
        jax.block_until_ready(values)
        self.receive_s += (time.perf_counter_ns() - start_ns) / 1e9


_NEXT: contextvars.ContextVar[Callable[[], Measurement] | None] = contextvars.ContextVar(
    "shardc_measured_steps", default=None
)


@contextlib.contextmanager
def measuring(begin: Callable[[], Measurement]) -> Iterator[None]:
    """Measures the steps of this thread while it is open; `begin` is called for each."""
    token = _NEXT.set(begin)
    try:
        yield
    finally:
        _NEXT.reset(token)


@contextlib.contextmanager
def alone() -> Iterator[list[AloneStep]]:
    """Measures the programs of steps one by one while it is open."""
    steps: list[AloneStep] = []

    def begin() -> AloneStep:
        steps.append(AloneStep())
        return steps[-1]

    with measuring(begin):
        yield steps


def next_step() -> Measurement | None:
    """The measurement of the next step; None if nobody requested one."""
    begin = _NEXT.get()
    return None if begin is None else begin()

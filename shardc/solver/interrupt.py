"""Ctrl-C while planning: noticed at any time, handled when a long loop polls.

An exception raised by a signal handler is lost if Python runs the handler inside a C++ callback
(JAX has one that collects garbage), and can leave half-written data anywhere else.
"""

import _thread
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

_wanted = threading.Event()
_finishing = threading.Event()
_asked = [False]  # a stop was requested and no poll has answered
GRACE_S = 0.5  # code that does not poll for this long is interrupted where it is
FINISH_S = 0.25  # of work after an interrupt for what a result can do without
_finish_by = [0.0]  # by the monotonic clock, while finishing
_ever = [False]  # a signal arrived
_inside = [0]  # nesting depth of `stoppable` and `remembered` on the main thread


class OutOfGraceError(Exception):
    """Optional work is to be left out: the user waits for the result."""


def poll() -> None:
    """Raises KeyboardInterrupt on the main thread if planning should stop; call in long loops."""
    if _wanted.is_set() and threading.current_thread() is threading.main_thread():
        _asked[0] = False
        raise KeyboardInterrupt


def finish() -> None:
    """Tells that a KeyboardInterrupt of `poll` was caught and there is a result to return: its
    user may finish, and then `poll_between` raises. No effect outside `stoppable`."""
    if not _inside[0] or threading.current_thread() is not threading.main_thread():
        return
    _wanted.clear()
    _asked[0] = False
    if not _finishing.is_set():
        _finish_by[0] = time.monotonic() + FINISH_S
    _finishing.set()


def was_signalled() -> bool:
    """Whether a signal ever arrived inside `stoppable` or `remembered`."""
    return _ever[0]


def is_finishing() -> bool:
    """Whether the current work is the last and should end soon."""
    return _finishing.is_set() and threading.current_thread() is threading.main_thread()


def poll_between() -> None:
    """`poll` before work that is not essential for a result."""
    poll()
    if is_finishing():
        raise KeyboardInterrupt


def solve_interruptibly(solver: Any, model: Any) -> Any:
    """Runs a CP-SAT solver, and stops it on Ctrl-C.

    CP-SAT's own signal handler aborts the process (std::bad_function_call) if the thread that
    receives the signal is not the solving one; so it is disabled, and Python's stays in place.
    """
    solver.parameters.catch_sigint_signal = False
    result: list[Any] = []
    thread = threading.Thread(target=lambda: result.append(solver.solve(model)), daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.05)
            poll()
    except KeyboardInterrupt:
        solver.stop_search()
        thread.join()
        raise
    return result[0]


def poll_optional() -> None:
    """`poll` in work that the result can do without; raises OutOfGraceError when the user has
    waited for it for `FINISH_S`."""
    poll()
    if is_finishing() and time.monotonic() > _finish_by[0]:
        raise OutOfGraceError


@contextmanager
def stoppable(signals: Sequence[signal.Signals] = (signal.SIGINT,)) -> Iterator[None]:
    """Inside, `signals` make `poll` raise. A second signal, or `GRACE_S` without a poll, raises
    at any point, because not all long loops of analyses poll. C++ code is never interrupted.

    On other threads, where Python handles no signals, and for ignored signals, nothing
    changes. Afterwards the previous handlers are restored.
    """
    with _handled(signals, raising=False):
        yield


@contextmanager
def remembered(signals: Sequence[signal.Signals]) -> Iterator[None]:
    """Inside, `signals` raise KeyboardInterrupt; if it gets lost, the next `poll` raises it."""
    with _handled(signals, raising=True):
        yield


@contextmanager
def _handled(signals: Sequence[signal.Signals], *, raising: bool) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        _ever[0] = True
        again = _wanted.is_set() or _finishing.is_set()
        _wanted.set()
        _asked[0] = True
        if raising or again:
            raise KeyboardInterrupt

    previous = {each: signal.getsignal(each) for each in signals}
    for each, handler in previous.items():
        if handler not in (signal.SIG_IGN, None):
            signal.signal(each, stop)
    _inside[0] += 1
    done = threading.Event()
    if not raising:
        threading.Thread(target=_insist, args=(done,), name="shardc-stop", daemon=True).start()
    try:
        yield
    finally:
        done.set()
        _inside[0] -= 1
        for each, handler in previous.items():
            if handler not in (signal.SIG_IGN, None):
                signal.signal(each, handler)
        _wanted.clear()
        _asked[0] = False
        _finishing.clear()


def _insist(done: threading.Event) -> None:
    """Repeats the user's signal until a poll answers or the exception is caught."""
    waited = 0
    while not done.wait(GRACE_S / 2):
        waited = waited + 1 if _asked[0] else 0
        if waited >= 2:
            _thread.interrupt_main()
            waited = 0

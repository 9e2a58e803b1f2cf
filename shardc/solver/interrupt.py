"""Ctrl-C while planning: noticed at any time, acted upon where a long loop polls.

An exception that a signal handler raises is lost where Python runs it inside a callback of C++ code
(JAX has one that collects garbage), and leaves half-written data anywhere else.
"""

import _thread
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

_wanted = threading.Event()
_finishing = threading.Event()
_asked = [False]  # for a stop that no poll has answered
GRACE_S = 0.5  # after which what does not poll is interrupted where it stands
_inside = [0]  # how many `stoppable`s and `remembered`s the main thread is in


def poll() -> None:
    """Raises KeyboardInterrupt on the main thread if planning shall stop; in every long loop."""
    if _wanted.is_set() and threading.current_thread() is threading.main_thread():
        _asked[0] = False
        raise KeyboardInterrupt


def finish() -> None:
    """Whoever has caught the KeyboardInterrupt of `poll` has something to return: what uses it may
    end its work, and then `poll_between` raises. Nothing changes outside of `stoppable`."""
    if not _inside[0] or threading.current_thread() is not threading.main_thread():
        return
    _wanted.clear()
    _asked[0] = False
    _finishing.set()


def is_finishing() -> bool:
    """Whether what is being worked on is the last, and shall end soon."""
    return _finishing.is_set() and threading.current_thread() is threading.main_thread()


def poll_between() -> None:
    """`poll` before work that another plan can do without."""
    poll()
    if is_finishing():
        raise KeyboardInterrupt


def solve_interruptibly(solver: Any, model: Any) -> Any:
    """Runs a solver of CP-SAT, and stops it on Ctrl-C.

    CP-SAT's own handler of signals ends the process (std::bad_function_call) where the thread that
    gets the signal is not the one that solves; so it installs none, and Python's stays in place.
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


@contextmanager
def stoppable(signals: Sequence[signal.Signals] = (signal.SIGINT,)) -> Iterator[None]:
    """Inside, `signals` make `poll` raise. A second signal, or `GRACE_S` without a poll, raises
    wherever that is: long loops of analyses do not all poll. C++ code is never interrupted.

    On other threads, where Python handles no signals, and for signals that are ignored, nothing
    changes. Afterwards the handlers are those of before.
    """
    with _handled(signals, raising=False):
        yield


@contextmanager
def remembered(signals: Sequence[signal.Signals]) -> Iterator[None]:
    """Inside, `signals` raise KeyboardInterrupt, and if that is lost, the next `poll` does."""
    with _handled(signals, raising=True):
        yield


@contextmanager
def _handled(signals: Sequence[signal.Signals], *, raising: bool) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
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
    """Signals again, as if by the user, until a poll answers or somebody has caught it."""
    waited = 0
    while not done.wait(GRACE_S / 2):
        waited = waited + 1 if _asked[0] else 0
        if waited >= 2:
            _thread.interrupt_main()
            waited = 0

"""Hold back Ctrl-C while a step may not be left half done."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred_interrupt() -> Iterator[None]:
    """A SIGINT that arrives inside is delivered at the end, to whoever handles it then.

    Python delivers signals to the main thread only, so in other threads there is nothing to do.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        arrived.append(number)

    previous = signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if previous is None else previous)
        if arrived:
            signal.raise_signal(signal.SIGINT)

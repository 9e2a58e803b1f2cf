"""Progress of long operations: a line on a terminal or in a notebook, `logging` elsewhere.

`SHARDC_PROGRESS=0` in the environment silences it. The logger is called `shardc`; if logging is
not configured, its lines go to standard error.
"""

import contextlib
import contextvars
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

EVERY_S = 5.0  # between two log lines, and before the first
WIDTH = 100
LOGGER = logging.getLogger("shardc")

Sink = Callable[[str], None]
_SINK: contextvars.ContextVar[Sink | None] = contextvars.ContextVar("shardc_progress", default=None)


def tell(text: str) -> None:
    """Logs what the user must know of an operation that goes on, once and whatever is shown."""
    if os.environ.get("SHARDC_PROGRESS") != "0":
        LOGGER.warning(text)


def say(text: str) -> None:
    """Reports the current activity; has no effect outside `shown_progress`."""
    sink = _SINK.get()
    if sink is not None:
        sink(text)


@contextlib.contextmanager
def shown_progress(doing: str, *, users: bool = False) -> Iterator[None]:
    """Shows the reports of `say` while it is open; a nested one uses the outer display.

    Args:
        users: code of the user runs inside, which may print, or stop in a debugger: a terminal
            gets log lines, too.
    """
    if _SINK.get() is not None or os.environ.get("SHARDC_PROGRESS") == "0":
        say(doing)
        yield
        return
    with _way(users)() as sink:
        token = _SINK.set(sink)
        sink(doing)
        try:
            yield
        finally:
            _SINK.reset(token)


def _way(users: bool) -> Callable[[], contextlib.AbstractContextManager[Sink]]:
    if "ipykernel" in sys.modules:
        return _in_notebook
    return _on_terminal if sys.stderr.isatty() and not users else _in_log


@contextlib.contextmanager
def _on_terminal() -> Iterator[Sink]:
    """A line on standard error that rewrites itself, and is gone afterwards."""
    from rich.console import Console

    with Console(stderr=True).status("shardc") as status:
        yield lambda text: status.update(f"shardc: {text[:WIDTH]}")


@contextlib.contextmanager
def _in_notebook() -> Iterator[Sink]:
    """A line below the cell that rewrites itself, and is empty afterwards."""
    from IPython.display import display  # type: ignore[import-not-found, unused-ignore]  # there in notebooks

    line = display({"text/plain": "shardc"}, raw=True, display_id=True)
    yield lambda text: line.update({"text/plain": f"shardc: {text}"}, raw=True)
    line.update({"text/plain": ""}, raw=True)


@contextlib.contextmanager
def _in_log() -> Iterator[Sink]:
    """A log line every few seconds; shorter operations log nothing."""
    handler = None if LOGGER.hasHandlers() else logging.StreamHandler()
    level = LOGGER.level
    if handler is not None:
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        LOGGER.addHandler(handler)
        LOGGER.setLevel(logging.INFO)
    start_s, done, last = time.monotonic(), threading.Event(), [""]

    def write() -> None:
        while not done.wait(EVERY_S):
            LOGGER.info("%s (%.0f s)", last[0], time.monotonic() - start_s)

    def sink(text: str) -> None:
        last[0] = text

    writer = threading.Thread(target=write, name="shardc-progress", daemon=True)
    writer.start()
    try:
        yield sink
    finally:
        done.set()
        writer.join()
        if handler is not None:
            LOGGER.removeHandler(handler)
            LOGGER.setLevel(level)

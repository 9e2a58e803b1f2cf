"""Watches a job from `import shardc` on: who never calls `jax.distributed.initialize()`?

JAX waits for such a process for minutes, and its error does not name it. This module does not
import JAX before the program does.
"""

import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from shardc.runtime.processes.waiting import POLL_S, end_process, is_alone, limit_s

FOLDER_VARIABLE = "SHARDC_LAUNCH_FOLDER"
"""Folder in which processes of one machine sign in; `shardc launch` creates it."""

CLOSE_POLL_S = 0.01  # a program may end right after it
CONNECT_S = 2.0


def begin() -> None:
    """Starts the watch, in a thread that ends once it is known that the job has one process."""
    threading.Thread(target=_watch_the_start, name="shardc-start", daemon=True).start()


def _watch_the_start() -> None:
    while not _has_begun():
        if is_alone.wait(POLL_S) or _has_devices():
            return
    from shardc.runtime.processes import coordination
    from shardc.runtime.processes.job import this_job

    rank, size, address = coordination.place_in_job()
    if size == 1:
        return
    _sign(rank)
    begin_s = time.monotonic()
    while coordination.is_in_initialize():
        if time.monotonic() - begin_s > limit_s():
            end_process(rank, f"{missing(rank, size, address)} {limit_s():.0f} s")
        time.sleep(CLOSE_POLL_S)
    if not coordination.is_in_shutdown():
        this_job()


def _has_begun() -> bool:
    """Whether the program has called `jax.distributed.initialize()`, even if still inside it."""
    distributed = getattr(sys.modules.get("jax"), "distributed", None)
    return distributed is not None and bool(distributed.is_initialized())


def _has_devices() -> bool:
    """Whether JAX has devices without a job: it refuses `jax.distributed.initialize()` then."""
    if not hasattr(sys.modules.get("jax"), "distributed"):
        return False
    from shardc.runtime.processes import coordination

    return coordination.has_asked_for_devices() and not _has_begun()


def _sign(rank: int) -> None:
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder is not None:
        Path(folder, str(rank)).touch()


def missing(rank: int, size: int, address: str) -> str:
    """Names the missing processes, as far as this process can tell.

    By the signatures of `shardc launch`; otherwise rank 0 if nobody listens at its address, else
    one of the others, because the coordination service does not say which.
    """
    folder = os.environ.get(FOLDER_VARIABLE)
    others = [other for other in range(size) if other != rank]
    if folder is not None:
        others = [other for other in others if not Path(folder, str(other)).exists()] or others
    elif rank != 0:
        others = others[1:] if others[1:] and _listens(address) else [0]
    return f"{_one_of(others)} missing: jax.distributed.initialize() has waited"


def _one_of(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]} is"
    return f"one or more of ranks {', '.join(map(str, ranks))} are"


def _listens(address: str) -> bool:
    import socket

    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), CONNECT_S):
            return True
    except OSError:
        return False

"""Fewer garbage collections while a step is planned, which makes many objects and few cycles."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Allocations per young collection, young ones per middle one, middle ones per full one. A full one
# visits every object of the process; while a step is planned it frees almost none.
RARE = (10_000, 20, 1_000)

_lock = threading.Lock()
_inside = [0]  # uses in progress, on all threads
_before = [gc.get_threshold()]


@contextmanager
def few_collections() -> Iterator[None]:
    """Inside, cycles are collected rarely; the thresholds of the process are restored afterwards.
    They stay where they are higher, and if the process never collects by itself."""
    with _lock:
        if _inside[0] == 0:
            _before[0] = gc.get_threshold()
            if _before[0][0] > 0:
                gc.set_threshold(*map(max, _before[0], RARE))
        _inside[0] += 1
    try:
        yield
    finally:
        with _lock:
            _inside[0] -= 1
            if _inside[0] == 0:
                gc.set_threshold(*_before[0])

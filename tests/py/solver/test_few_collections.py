"""The thresholds of the garbage collector while a step is planned."""

import gc
import threading
from collections.abc import Iterator

import pytest

from shardc.solver.few_collections import RARE, few_collections


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize("own", [(700, 10, 10), (10**6, 50, 5_000), (0, 10, 10)])
def test_thresholds_are_those_of_the_process_afterwards(own: tuple[int, int, int]) -> None:
    gc.set_threshold(*own)
    with few_collections():
        inside = gc.get_threshold()
    assert inside == (own if own[0] == 0 else tuple(map(max, own, RARE)))
    assert gc.get_threshold() == own


def test_the_last_thread_to_leave_restores_them() -> None:
    gc.set_threshold(700, 10, 10)
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with few_collections():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=other)
    with few_collections():
        thread.start()
        entered.wait()
    assert gc.get_threshold() == RARE
    leave.set()
    thread.join()
    assert gc.get_threshold() == (700, 10, 10)

"""Ctrl-C is late, never lost."""

import signal
import threading

import pytest

from shardc.runtime.interrupts import deferred_interrupt


def test_an_interrupt_is_delivered_at_the_end():
    reached = []

    def work():
        with deferred_interrupt():
            signal.raise_signal(signal.SIGINT)
            reached.append(1)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_handler_of_the_user_gets_it():
    caught = []
    previous = signal.signal(signal.SIGINT, lambda number, frame: caught.append(number))
    try:
        with deferred_interrupt():
            signal.raise_signal(signal.SIGINT)
            assert caught == []
        assert caught == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, previous)


def test_an_exception_inside_comes_out():
    with pytest.raises(ValueError, match="mine"), deferred_interrupt():
        raise ValueError("mine")


def test_other_threads_are_left_alone():
    done = []

    def work():
        with deferred_interrupt():
            done.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [signal.default_int_handler]

"""Ctrl-C while planning gives the best plan or KeyboardInterrupt, and is never lost."""

import os
import random
import signal
import threading
import time
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from ortools.sat.python import cp_model

import shardc
from shardc.plan.notes import Note, NoteCode
from shardc.report.reading import read_plan
from shardc.report.words import in_words
from shardc.solver import interrupt
from tests.py.table import CLUSTER

WEIGHTS = [np.ones((16, 16), np.float32)] * 3
ROWS = np.ones((32, 16), np.float32)


def step(w: Any, x: Any) -> Any:
    for each in w:
        x = jnp.tanh(x @ each)
    return x


class _OwnError(BaseException):
    """What the user's handler raises where shardc is not planning."""


class Counting:
    """The flag that `poll` looks at; sends this process a SIGINT when it is looked at for the
    `last` time."""

    def __init__(self, last: int = -1) -> None:
        self.looks, self.last, self.flag = 0, last, threading.Event()
        self.set, self.clear = self.flag.set, self.flag.clear

    def is_set(self) -> bool:
        self.looks += 1
        if self.looks == self.last:
            os.kill(os.getpid(), signal.SIGINT)
        return self.flag.is_set()


def planned(monkeypatch: pytest.MonkeyPatch, flag: Counting, cache: Any) -> Any:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(cache))
    monkeypatch.setattr(interrupt, "_wanted", Counting())
    lowered = shardc.jit(step, cluster=CLUSTER).lower(WEIGHTS, ROWS)
    monkeypatch.setattr(interrupt, "_wanted", flag)
    return lowered.plan().plan


def looks_of_a_plan(monkeypatch: pytest.MonkeyPatch, cache: Any) -> int:
    """How often a plan looks at the flag once what is cached for all plans is there."""
    for attempt in ("cold", "warm"):
        flag = Counting()
        planned(monkeypatch, flag, cache / attempt)
    return flag.looks


@pytest.mark.slow
def test_planning_can_be_interrupted_at_any_moment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    def own(number: int, frame: object) -> None:
        raise _OwnError

    looks = looks_of_a_plan(monkeypatch, tmp_path)
    moments = random.Random(0)
    kept = 0
    before = signal.signal(signal.SIGINT, own)
    try:
        for number in range(20):
            # The first polls are of `prepare`, where the signal is the user's.
            first = looks // 4 if number < 15 else looks - 2  # some when there is a plan
            last = moments.randint(first, looks)
            sent = Counting(last)
            try:
                made = planned(monkeypatch, sent, tmp_path / str(number))
            except (KeyboardInterrupt, _OwnError):
                pass
            else:
                assert Note(NoteCode.INTERRUPTED) in made.notes or sent.looks <= last
                kept += Note(NoteCode.INTERRUPTED) in made.notes
            assert signal.getsignal(signal.SIGINT) is own
            assert not sent.flag.is_set()
    finally:
        signal.signal(signal.SIGINT, before)
    assert kept > 0


def test_after_an_interrupt_what_a_plan_can_do_without_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    looks = looks_of_a_plan(monkeypatch, tmp_path)
    monkeypatch.setattr(interrupt, "FINISH_S", -1.0)
    made = planned(monkeypatch, Counting(looks - 2), tmp_path / "late")
    assert Note(NoteCode.INTERRUPTED) in made.notes
    assert made.account is None
    assert "interrupted; plan again" in in_words(read_plan(made))


def test_a_second_interrupt_does_not_wait_for_a_poll() -> None:
    with interrupt.stoppable():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    interrupt.poll()


def test_what_does_not_poll_is_interrupted_where_it_stands() -> None:
    """As the loops of analyses, of which not all poll."""

    def deaf() -> None:
        with interrupt.stoppable():
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(3000):  # a minute at most
                time.sleep(0.02)

    with pytest.raises(KeyboardInterrupt):
        deaf()


def test_what_was_lost_before_planning_stops_it() -> None:
    with interrupt.remembered([signal.SIGINT]):
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)  # as in a callback that drops exceptions
        with interrupt.stoppable(), pytest.raises(KeyboardInterrupt):
            interrupt.poll()


def test_other_threads_and_ignored_signals_are_left_alone() -> None:
    found = []

    def elsewhere() -> None:
        with interrupt.stoppable():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with interrupt.stoppable([signal.SIGTERM]):
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def hard_model() -> Any:
    """No CP-SAT solves this in a minute: pigeons, more than there are holes."""
    model = cp_model.CpModel()
    pigeons, holes = 14, 13
    inside = [[model.new_bool_var(f"{p}_{h}") for h in range(holes)] for p in range(pigeons)]
    for own in inside:
        model.add_bool_or(own)
    for h in range(holes):
        for p in range(pigeons):
            for q in range(p):
                model.add_bool_or(inside[p][h].negated(), inside[q][h].negated())
    return model


@pytest.mark.slow
def test_a_solver_of_another_thread_stops_and_leaves_the_handlers_alone() -> None:
    """CP-SAT's own handler ended the process, and after each solve Ctrl-C did so, too."""
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = 60.0
    solver.parameters.num_workers = 1
    solver.parameters.cp_model_presolve = False
    solver.parameters.symmetry_level = 0
    sent = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    sent.start()
    with interrupt.stoppable(), pytest.raises(KeyboardInterrupt):
        interrupt.solve_interruptibly(solver, hard_model())
    sent.join()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)

"""What a process says of another that is missing, silent, behind, gone or failed."""

import jax
import pytest

from shardc.errors import ClusterError, PlanError
from shardc.runtime.processes import watch as watch_module
from shardc.runtime.processes.job import Job
from shardc.runtime.processes.watch import Watch
from tests.py.runtime.processes.fake_job import FakeCoordination, FakeService


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves."""
    now = [100.0]
    monkeypatch.setattr(watch_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(watch_module, "has_asked_for_devices", lambda: True)
    return now


def new_watches(size, service=None):
    """One per rank."""
    service = service or FakeService()
    return [Watch(FakeCoordination(service, rank, size), 10.0) for rank in range(size)]


def watches(size, service=None):
    """One per rank, all of which have begun to agree on a plan."""
    found = new_watches(size, service)
    for each in found:
        each.begin_plan()
    return found


def pair(clock):
    return watches(2)


def heard(clock, one, other=None, seconds=1.0, times=1):
    for _ in range(times):
        clock[0] += seconds
        if other is not None:
            other._say()
        one._round()
    return one._fault(10.0)


def test_processes_that_beat_are_well(clock):
    one, other = pair(clock)
    assert heard(clock, one, other, times=100) is None


def test_a_process_that_never_came_is_missing(clock):
    one, _ = pair(clock)
    assert heard(clock, one, times=9) is None
    assert heard(clock, one, times=2) == "rank 1 is missing: no sign of it for 11 s"


def test_a_process_that_falls_silent_is_dead_or_stopped(clock):
    one, other = pair(clock)
    heard(clock, one, other, times=5)
    assert heard(clock, one, times=9) is None
    assert heard(clock, one, times=3) == "rank 1 is dead or stopped: no sign of it for 12 s"


def test_a_process_that_begins_no_step_is_slow(clock):
    one, other = pair(clock)
    one.begin_step()
    other.begin_step()
    assert heard(clock, one, other, times=50) is None
    one.begin_step()
    said = heard(clock, one, other, times=12)
    assert said == "rank 1 has not begun step 2 for 11 s; others have"
    other.begin_step()
    assert heard(clock, one, other) is None


def test_a_process_that_lags_and_then_falls_silent_is_dead_or_stopped(clock):
    one, other = pair(clock)
    one.begin_step()
    assert heard(clock, one, other, times=4) is None
    assert heard(clock, one, times=6) is None
    assert heard(clock, one, times=2) == "rank 1 is dead or stopped: no sign of it for 8 s"


def test_a_process_that_does_not_come_to_the_plan_of_the_others_is_named(clock):
    one, other = pair(clock)
    one.begin_plan()
    said = heard(clock, one, other, times=12)
    assert said == "rank 1 has not come to where all agree on a plan for 11 s; others have"


def test_processes_that_part_miss_each_other(clock):
    """One plans where the other runs a step: neither is behind in the number of points."""
    one, other = pair(clock)
    one.begin_step()
    other.begin_plan()
    assert heard(clock, one, other) is None
    other._hear()
    said = "rank 1 has come to where all agree on a plan, and rank 0 has begun step 1"
    assert one.parted(1) == said
    said = "rank 0 has begun step 1, and rank 1 has come to where all agree on a plan"
    assert other.parted(0) == said
    assert heard(clock, one, other, times=12) == "rank 1 has not begun step 1 for 12 s; others have"
    other._hear()
    said = "rank 0 has not come to where all agree on a plan for 12 s; others have"
    assert other._fault(10.0) == said


def test_a_process_behind_another_has_not_parted_from_it(clock):
    one, other = pair(clock)
    one.begin_step()
    one.begin_plan()
    heard(clock, one, other)
    other._hear()
    assert one.parted(1) is None and other.parted(0) is None


def test_a_process_that_plans_before_its_first_beat_has_not_parted_from_a_slow_one(clock):
    one, other = new_watches(2)
    heard(clock, one)
    other._hear()  # rank 0 has its devices, and does not plan yet
    other.begin_plan()
    assert other.parted(0) is None


def test_a_step_that_an_exception_ended_is_one_that_others_wait_for(clock):
    one, other = pair(clock)
    for each in (one, other):
        each.begin_step()
    assert heard(clock, one, other, times=50) is None
    other.leave_step()
    said = heard(clock, one, other, times=12)
    assert said == "rank 1 has not begun step 1 for 11 s; others have"


def test_a_process_that_is_always_heard_of_late_is_well(clock):
    """Steps are faster than beats: whoever listens has always begun more."""
    one, other = pair(clock)
    for _ in range(100):
        one.begin_step()
        assert heard(clock, one, other) is None
        other.begin_step()


def test_a_process_that_ended_is_missed_only_by_a_step_that_needs_it(clock):
    one, other = pair(clock)
    one.begin_step()
    other.begin_step()
    other._state = "ended"
    other._say()
    assert heard(clock, one, times=100) is None and one.has_left(1)
    one.begin_step()
    assert heard(clock, one) == "rank 1 ended before it had begun step 2"


def test_a_process_that_failed_is_named_with_its_error(clock):
    one, other = pair(clock)
    other._say_failed("ValueError: no")
    assert heard(clock, one) == "rank 1 failed: ValueError: no"


FAULTS = {
    "silence": "rank 1 is dead or stopped: no sign of it for 12 s",
    "lag": "rank 1 has not begun step 1 for 12 s; others have",
    "end": "rank 1 ended before it had begun step 1",
    "failure": "rank 1 failed: ValueError: no",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_ranks_that_read_a_summary_judge_as_rank_0_does(clock, fault):
    ranks = watches(4)
    for each in ranks:
        each._round()
    if fault == "failure":
        ranks[1]._say_failed("ValueError: no")
    if fault == "end":
        ranks[1]._state = "ended"
    if fault in ("lag", "end"):
        for rank in (0, 2, 3):
            ranks[rank].begin_step()
    for _ in range(13 if fault in ("silence", "lag") else 1):
        clock[0] += 1.0
        for rank in (1, 3, 2, 0):
            if rank != 1 or fault in ("lag", "end"):
                ranks[rank]._round()
    for rank in (2, 3):
        ranks[rank]._hear()
    assert {ranks[rank]._fault(10.0) for rank in (0, 2, 3)} == {FAULTS[fault]}


def test_without_news_from_rank_0_nobody_else_is_blamed(clock):
    ranks = watches(4)
    for each in ranks:
        each._round()
    for _ in range(12):
        clock[0] += 1.0
        for rank in (1, 2, 3):
            ranks[rank].begin_step()
            ranks[rank]._round()
    said = "rank 0 is dead or stopped: no sign of it for 12 s"
    assert {ranks[rank]._fault(10.0) for rank in (1, 2, 3)} == {said}


def test_a_round_takes_two_requests_per_process_and_a_short_answer(clock):
    service = FakeService()
    ranks = watches(200, service)
    for each in ranks:
        each._round()
    service.requests = service.num_bytes = 0
    clock[0] += 1.0
    for each in ranks[1:]:
        each._round()
    assert service.requests == 2 * 199
    assert service.num_bytes < 100 * 199  # all are alike


@pytest.mark.slow
def test_waiting_for_a_process_that_ended_is_an_error(clock):
    one, other = pair(clock)
    other._state = "ended"
    other._say()
    heard(clock, one)
    job = object.__new__(Job)
    job.coordination, job.watch, job.rank, job.size = one._coordination, one, 0, 2
    with pytest.raises(ClusterError) as caught:
        job.wait("facts/1/1/parts", 1)
    assert caught.value.code == "SHARDC-281"


@pytest.mark.slow
def test_waiting_for_a_process_that_went_another_way_is_an_error(clock):
    one, other = pair(clock)
    one.begin_step()
    other.begin_plan()
    heard(clock, one, other)
    job = object.__new__(Job)
    job.coordination, job.watch, job.rank, job.size = one._coordination, one, 0, 2
    with pytest.raises(PlanError, match="rank 1 has come to where all agree") as caught:
        job.wait("differ/2/1", 1)
    assert caught.value.code == "SHARDC-280"


class Deaf(FakeCoordination):
    """A service that does not answer."""

    def get(self, key, timeout_s):
        raise jax.errors.JaxRuntimeError("UNAVAILABLE: gone")

    set = get


class Died(BaseException):
    """In place of the end of the process."""


@pytest.fixture
def death(monkeypatch):
    def die(rank, fault, stays_s):
        raise Died(fault)

    monkeypatch.setattr(watch_module, "end_process", die)
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)


def test_a_service_that_is_gone_ends_the_process(clock, death):
    _, other = pair(clock)
    other._coordination = Deaf(FakeService(), 1, 2)
    said = "rank 0, which keeps the coordination service, is gone: UNAVAILABLE: gone"
    with pytest.raises(Died, match=said):
        other._await_service()


def test_a_process_without_shardc_is_missed_only_where_devices_are_waited_for(clock, monkeypatch):
    one = Watch(FakeCoordination(FakeService(), 0, 2), 10.0)
    assert heard(clock, one, times=100) is None
    monkeypatch.setattr(watch_module, "waits_for_devices", lambda: True)
    assert heard(clock, one, times=10) is None
    assert heard(clock, one, times=2) == "rank 1 is missing: no sign of it for 11 s"


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("ended", "rank 1 ended before it had asked for its devices"),
        ("runs", "rank 1 has not asked for its devices for 16 s; others have"),
    ],
)
def test_a_process_that_does_not_come_to_its_devices_is_named(clock, monkeypatch, state, said):
    """By one that waits for them; a process that has its devices waits for nobody."""
    one, other = new_watches(2)
    one._say()
    monkeypatch.setattr(watch_module, "has_asked_for_devices", lambda: False)
    other._state = state
    other._say()
    assert heard(clock, one, other if state == "runs" else None, times=12) is None
    monkeypatch.setattr(watch_module, "waits_for_devices", lambda: True)
    heard(clock, one, other if state == "runs" else None)
    assert heard(clock, one, other if state == "runs" else None, times=3) == said


@pytest.mark.parametrize(
    ("error", "blames"),
    [
        (RuntimeError("no"), False),
        (KeyboardInterrupt(), False),
        (ValueError("UNKNOWN: Gloo all-reduce failed"), True),
        (jax.errors.JaxRuntimeError("UNAVAILABLE: gone"), True),
    ],
)
def test_only_an_error_of_xla_may_be_anothers_fault(clock, death, monkeypatch, error, blames):
    one, other = pair(clock)
    other._say()
    monkeypatch.setattr(watch_module.time, "sleep", lambda seconds: heard(clock, one))
    monkeypatch.setattr(watch_module.sys, "last_exc", error, raising=False)
    said = "rank 1 is dead or stopped" if blames else "of its own failure above"
    with pytest.raises(Died, match=said):
        one._end()


def test_a_failed_program_that_waits_for_a_thread_ends(clock, monkeypatch):
    """As one that saves: it waits for the others, and they for this process."""
    one, _ = pair(clock)
    ends = []

    def end():
        ends.append(clock[0])
        one._ended.set()

    def wait(seconds):
        clock[0] += seconds
        one._round_s = clock[0]
        return one._ended.is_set()

    monkeypatch.setattr(one, "_end", end)
    monkeypatch.setattr(one._ended, "wait", wait)
    monkeypatch.setattr(watch_module, "_has_failed", lambda: clock[0] >= 120)
    one._guard()
    assert ends == [126.0]


def test_a_program_that_left_the_job_is_left_alone(clock, monkeypatch):
    one, _ = pair(clock)
    monkeypatch.setattr(one, "_die", lambda fault: pytest.fail(fault))
    one._coordination = Deaf(FakeService(), 1, 2)
    one._await_service()
    one._listen()  # no jax.distributed.initialize() here, so it is over
    one._end()

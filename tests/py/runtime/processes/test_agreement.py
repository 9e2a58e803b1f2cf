"""Processes that pass different arguments to one step are told so, and which."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from shardc.errors import InputError
from shardc.runtime.processes.agreement import Steps
from tests.py.runtime.processes.fake_job import on_all

DEVICES = np.array(jax.devices())


def check(*values_of_rank):
    """Errors of the ranks whose values, of three steps, are given."""

    def work(job):
        agreement = job.agreement()
        for _ in range(3):
            agreement.check_step(["rate", "x"], values_of_rank[job.rank])
            agreement.steps.end()

    return on_all(work, len(values_of_rank))


def test_equal_values_pass():
    rows = np.arange(6.0)
    assert check([0.1, rows], [0.1, rows.copy()], [0.1, rows]) == [None] * 3


def test_the_argument_and_the_rank_are_named():
    first, second, third = check([0.1, 1], [0.1, 1], [0.2, 1])
    assert first is second is None
    assert isinstance(third, InputError) and third.code == "SHARDC-282"
    assert "argument 'rate' differs between rank 2 and rank 0 in step 1: 0.2" in str(third)


def test_after_a_step_that_did_not_end_there_is_no_other():
    """A process that goes on after an error would get the values of other steps."""

    def work(job):
        agreements = job.agreement(), job.agreement()
        for n in range(3):
            try:
                agreements[n % 2].check_step(["x"], [1 + (n == 0) * job.rank])
            except InputError:
                if n > 0:
                    raise
            else:
                agreements[n % 2].steps.end()

    first, second = on_all(work, 2)
    assert first is None
    assert second.code == "SHARDC-282"
    assert "an earlier step ended with an error in this process" in str(second)


def test_a_process_that_runs_another_program_is_told_so():
    """It would wait for the values of a step that rank 0 never begins."""

    def work(job):
        agreements = job.agreement(), job.agreement()
        agreements[job.rank == 1].check_step(["x"], [1])

    first, second, third = on_all(work)
    assert first is third is None
    assert second.code == "SHARDC-282"
    assert "rank 1 runs another program than rank 0 in step 1" in str(second)


def test_a_step_is_left_once_and_only_if_it_has_begun():
    left = []
    steps = Steps(lambda: 1, lambda: left.append("left"))
    steps.leave()
    assert not left
    steps.begin()
    steps.leave()
    with pytest.raises(InputError):
        steps.begin()
    steps.leave()
    assert left == ["left"]


def test_an_error_in_one_thread_leaves_no_step_of_another():
    """The number of the step that runs on would be given again, to the one behind it."""
    numbers, left = itertools.count(1), []
    steps = Steps(numbers.__next__, lambda: left.append("left"))
    steps.begin()
    with ThreadPoolExecutor(1) as other:
        with pytest.raises(InputError, match="another thread of this process runs a step"):
            other.submit(steps.begin).result()
        other.submit(steps.leave).result()
        assert not left
        steps.end()
        assert other.submit(steps.begin).result() == 2
        other.submit(steps.end).result()
    assert steps.begin() == 3


def test_a_layout_is_compared_and_not_how_it_is_written():
    mesh = Mesh(DEVICES[:4].reshape(4, 1), ("x", "y"))
    array = np.zeros((4, 4), np.float32)

    def lies(*spec):
        return jax.device_put(array, NamedSharding(mesh, PartitionSpec(*spec)))

    assert check([0, lies("x")], [0, lies("x", "y")], [0, lies("x", None)]) == [None] * 3
    (_, other) = check([0, lies("x")], [0, lies(None, "x")])
    assert "argument 'x' differs" in str(other)

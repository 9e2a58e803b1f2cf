"""`shardc.initialize`: a process that is alone stays alone; one of a job joins it."""

import os

import jax
import pytest

import shardc
from shardc.runtime.processes import joining, xla_threads

SLURM = {
    "SLURM_JOB_ID": "1",
    "SLURM_STEP_NODELIST": "here",
    "SLURM_NTASKS": "2",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
}


@pytest.fixture
def joined(monkeypatch):
    """The settings of every call of `jax.distributed.initialize`, which joins nothing here."""
    calls = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda **settings: calls.append(settings))
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: bool(calls))
    monkeypatch.setattr(joining, "entry_points", lambda group: [])
    for name in ("JAX_COORDINATOR_ADDRESS", *SLURM):
        monkeypatch.delenv(name, raising=False)
    return calls


def test_a_process_that_is_alone_stays_alone(joined):
    shardc.initialize()
    assert joined == []


@pytest.mark.parametrize("variables", [SLURM, {"JAX_COORDINATOR_ADDRESS": "here:1"}])
def test_a_process_of_a_job_joins_it_once(joined, monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    shardc.initialize()
    shardc.initialize()
    assert joined == [{}]


def test_settings_are_those_of_jax(joined):
    settings = {"coordinator_address": "there:1", "num_processes": 4, "process_id": 2}
    shardc.initialize(**settings)
    assert joined == [settings]


@pytest.mark.parametrize("plugins", [[], ["xla_cuda13"]])
def test_with_a_plugin_for_gpus_each_process_tunes_its_own_programs(joined, monkeypatch, plugins):
    monkeypatch.setattr(joining, "entry_points", lambda group: plugins)
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    shardc.initialize(process_id=0)
    own = ["--xla_cpu_enable_fast_math=false"]
    own += ["--xla_gpu_shard_autotuning=false"] if plugins else []
    assert os.environ["XLA_FLAGS"].split() == own
    assert joining.tunes_alone() == bool(plugins)


@pytest.mark.parametrize(
    ("devices", "cores", "said", "threads"),
    [(4, 2, None, "6"), (2, 8, None, None), (1, 1, None, None), (4, 2, "5", "5"), (4, 2, "3", "6")],
)
def test_xla_has_a_thread_more_than_there_are_virtual_devices(
    joined, monkeypatch, devices, cores, said, threads
):
    """With as many, programs that wait for other processes block what copies arrays to them."""
    monkeypatch.setattr(xla_threads, "_cores", lambda: cores)
    monkeypatch.setenv(xla_threads.VARIABLE, "")
    monkeypatch.delenv(xla_threads.VARIABLE)
    if said is not None:
        monkeypatch.setenv(xla_threads.VARIABLE, said)
    monkeypatch.setattr(joining, "_virtual_devices", lambda: devices)
    shardc.initialize(process_id=0)
    assert os.environ.get(xla_threads.VARIABLE) == threads
    assert xla_threads.are_enough(devices)

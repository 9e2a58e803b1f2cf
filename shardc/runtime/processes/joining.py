"""`shardc.initialize`: joins the job of this process, if there is one."""

import os
from importlib.metadata import entry_points
from typing import Any

import jax

from shardc.runtime.processes import xla_threads
from shardc.runtime.processes.coordination import is_announced

FLAGS = "XLA_FLAGS"
OWN_AUTOTUNING = "--xla_gpu_shard_autotuning=false"
"""XLA shares the tuning of a GPU program among all processes; those that compile another program,
as the stages of a pipeline do, would be waited for without end."""


def initialize(**settings: Any) -> None:
    """Joins the other processes of the job; does nothing in a process that is alone.

    Calls `jax.distributed.initialize(**settings)` if there are settings, or if JAX finds a job in
    the environment: SLURM, MPI, Kubernetes, a TPU slice, `shardc launch`. So one script runs in one
    process or in many. To be called before anything that needs devices; a second call does nothing.
    Where JAX has a plugin for GPUs, it also adds `--xla_gpu_shard_autotuning=false` to XLA_FLAGS;
    where virtual CPU devices take all threads of XLA, it asks for more of them in NPROC.
    """
    if jax.distributed.is_initialized() or not (settings or is_announced()):
        return
    if any(True for _ in entry_points(group="jax_plugins")) and not tunes_alone():
        os.environ[FLAGS] = f"{os.environ.get(FLAGS, '')} {OWN_AUTOTUNING}".strip()
    os.environ.update(xla_threads.variables(_virtual_devices()))
    jax.distributed.initialize(**settings)


def tunes_alone() -> bool:
    """Whether XLA was told that each process tunes its own GPU programs."""
    return OWN_AUTOTUNING in os.environ.get(FLAGS, "").split()


def _virtual_devices() -> int:
    """CPU devices that JAX will have."""
    return max(int(jax.config.jax_num_cpu_devices), 1)

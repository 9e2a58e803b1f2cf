"""`shardc.initialize`: joins the job of this process, if there is one."""

from typing import Any

import jax

from shardc.runtime.processes.coordination import is_announced


def initialize(**settings: Any) -> None:
    """Joins the other processes of the job; does nothing in a process that is alone.

    Calls `jax.distributed.initialize(**settings)` if there are settings, or if JAX finds a job in
    the environment: SLURM, MPI, Kubernetes, a TPU slice, `shardc launch`. So one script runs in one
    process or in many. To be called before anything that needs devices; a second call does nothing.
    """
    if not jax.distributed.is_initialized() and (settings or is_announced()):
        jax.distributed.initialize(**settings)

"""The key-value store of the coordination service that `jax.distributed.initialize` starts.

This is the only file that reads private modules of JAX: the store has no public name, and a service
of our own would need a second port, address and startup rule. There is also no public way to tell
what a thread waits for before devices exist; `jax.process_index()` would itself wait for them. And
no setting lets processes other than 0 write to JAX's cache of compiled programs.
"""

import os
import sys
import warnings
from types import FrameType
from typing import Any

import jax

from shardc.errors import ClusterError

PREFIX = "shardc/"


def place_in_job() -> tuple[int, int, str]:
    """Rank of this process, number of processes, and address of rank 0, before devices exist.

    Without `jax.distributed.initialize()` a process is rank 0 of 1, and there is no address.
    """
    from jax._src.distributed import global_state as job

    return job.process_id, job.num_processes, job.coordinator_address or ""


def is_announced() -> bool:
    """Whether the environment names a job, as SLURM, MPI, Kubernetes and `shardc launch` do.

    Then `jax.distributed.initialize()` needs no arguments.
    """
    from jax._src.clusters import ClusterEnv

    return "JAX_COORDINATOR_ADDRESS" in os.environ or any(
        kind.is_env_present() for kind in ClusterEnv._cluster_types if not kind.opt_in_only_method
    )


def is_in_initialize() -> bool:
    """Whether a thread is inside `jax.distributed.initialize()`.

    The service must not be queried then: jaxlib aborts a process that queries too early.
    """
    from jax._src.distributed import State

    return _runs(State.initialize)


def is_in_shutdown() -> bool:
    """Whether a thread is inside `jax.distributed.shutdown()`, which cancels pending requests."""
    from jax._src.distributed import State

    return _runs(State.shutdown)


def _runs(function: Any) -> bool:
    for innermost in sys._current_frames().values():
        frame: FrameType | None = innermost
        while frame is not None:
            if frame.f_code is function.__code__:
                return True
            frame = frame.f_back
    return False


def has_asked_for_devices() -> bool:
    """Whether this process has devices, or waits for those of the other processes."""
    from jax._src import xla_bridge

    return bool(xla_bridge._backends) or waits_for_devices()


def waits_for_devices() -> bool:
    """Whether a thread waits in JAX for the devices of the other processes."""
    from jax._src import xla_bridge

    return xla_bridge._backend_lock.locked()


def cache_in_every_process() -> None:
    """Lets this process, too, write to JAX's persistent cache, if the user has set its folder.

    JAX writes in process 0 only, as all processes usually compile the same program. Those of a
    pipeline do not: every other stage would be compiled anew at each start.
    """
    from jax._src import compilation_cache, config
    from jax._src import compiler as found

    compiler: Any = found
    original = compiler._cache_write

    def write(*entry: Any) -> None:
        key, seconds, name, backend, executable = entry
        if place_in_job()[0] == 0:
            original(*entry)
        elif seconds >= config.persistent_cache_min_compile_time_secs.value:
            try:
                compilation_cache.put_executable_and_time(
                    key, name, executable, backend, int(seconds)
                )
            except OSError as error:  # a full disk: JAX, too, goes on without the entry
                warnings.warn(f"the compiled program {name} is not cached: {error}", stacklevel=2)

    compiler._cache_write = write


class Coordination:
    """Small values by name, for all processes of the job; written once or repeatedly.

    Every call is a request to the service in process 0, and raises the client's error if the
    service does not answer.
    """

    def __init__(self) -> None:
        from jax._src.distributed import global_state

        client: Any = global_state.client
        if client is None:
            raise ClusterError(
                "the job has several processes and no coordination service",
                help="call jax.distributed.initialize() before anything else",
                code="SHARDC-101",
            )
        self._client = client
        self.rank, self.size, _ = place_in_job()

    def set(self, key: str, value: bytes) -> None:
        """Writes a value, replacing an earlier one."""
        self._client.key_value_set_bytes(PREFIX + key, value, allow_overwrite=True)

    def get(self, key: str, timeout_s: float) -> bytes | None:
        """Waits for a value; None if it is not written in time."""
        try:
            found: bytes = self._client.blocking_key_value_get_bytes(
                PREFIX + key, max(int(1000 * timeout_s), 1)
            )
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" in str(error):
                return None
            raise
        return found

    def all_under(self, folder: str) -> dict[str, bytes]:
        """All values under `folder` + "/", by the rest of their keys."""
        start = PREFIX + folder + "/"
        found = self._client.key_value_dir_get_bytes(start)
        return {key.removeprefix(start): value for key, value in found}

    def delete(self, key: str) -> None:
        """Deletes a value."""
        self._client.key_value_delete(PREFIX + key)

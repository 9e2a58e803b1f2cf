"""The key-value store of the coordination service that `jax.distributed.initialize` starts.

This is the one file that reads a private module of JAX: the store has no public name, and a service
of our own would need a second port, a second address and a second rule for who starts it.
"""

from typing import Any

import jax

from shardc.errors import ClusterError

PREFIX = "shardc/"


class Coordination:
    """Small values by name, for all processes of the job; written once, or over and over.

    Every call is a request to the service in process 0, and raises what the client raises if that
    does not answer.
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
        self.rank = jax.process_index()
        self.size = jax.process_count()

    def set(self, key: str, value: bytes) -> None:
        """Writes a value, in the place of an earlier one."""
        self._client.key_value_set_bytes(PREFIX + key, value, allow_overwrite=True)

    def get(self, key: str, timeout_s: float) -> bytes | None:
        """Waits for a value; None if nobody has written it in time."""
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
        """What stands under `folder` + "/", by the rest of its key."""
        start = PREFIX + folder + "/"
        found = self._client.key_value_dir_get_bytes(start)
        return {key.removeprefix(start): value for key, value in found}

    def delete(self, key: str) -> None:
        """Forgets a value."""
        self._client.key_value_delete(PREFIX + key)

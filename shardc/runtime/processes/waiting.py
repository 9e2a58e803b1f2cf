"""How long a process waits for the others of its job, and how it ends if one is missing."""

import os
import threading
import time

from shardc.errors import ClusterError

LIMIT_VARIABLE = "SHARDC_PROCESS_LIMIT_S"
DEFAULT_LIMIT_S = 60.0
POLL_S = 0.1
EXIT_CODE = 1

is_alone = threading.Event()
"""Set once this process is known to be the whole job: it waits for no other."""


def limit_s() -> float:
    """How long another process may be silent, or lag behind.

    Raises:
        ClusterError: SHARDC-101, the environment variable is not a time.
    """
    text = os.environ.get(LIMIT_VARIABLE, str(DEFAULT_LIMIT_S))
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not found > 0:
        raise ClusterError(
            f"{LIMIT_VARIABLE}={text} is not a positive number of seconds",
            help="unset it for the default of 60 seconds",
            code="SHARDC-101",
        )
    return found


def end_process(rank: int, fault: str, stays_s: float = 0.0) -> None:
    """Prints why this process ends, and ends it, whatever its other threads wait for."""
    os.write(2, f"shardc: rank {rank} ends: {fault}\n".encode())
    time.sleep(stays_s)
    os._exit(EXIT_CODE)

"""Threads of XLA's client for CPUs: one more than a program can block.

XLA dispatches a program over several devices of a process on as many threads of the pool that also
copies arrays for other processes. Where 32 computations of a device wait for arrays of other
processes, these threads wait, too. With no thread left, nothing is copied, and the processes
wait for each other without end.
"""

import os

VARIABLE = "NPROC"  # what XLA reads


def xla_threads(devices: int) -> int:
    """Threads of a client with so many devices; XLA reads the variable once, when it starts."""
    said = os.environ.get(VARIABLE, "")
    return max(int(said) if said.isdigit() and int(said) > 0 else _cores(), devices)


def are_enough(devices: int) -> bool:
    """Whether a thread is left when programs over all devices of a process wait.

    Programs of one device are dispatched by the thread that calls them.
    """
    return devices == 1 or xla_threads(devices) > devices


def variables(devices: int) -> dict[str, str]:
    """What the environment lacks for a process with so many devices; empty if nothing."""
    return {} if are_enough(devices) else {VARIABLE: str(devices + _cores())}


def _cores() -> int:
    """Those that this process may use, as XLA counts them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

"""Checks that all processes pass the same numbers, in the same layouts, to the same step."""

import functools
import hashlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, Sharding

from shardc.errors import InputError
from shardc.runtime.processes.coordination import Coordination

KEPT_STEPS = 256  # the most steps that a process may lag behind the first

Wait = Callable[[str], bytes]
"""Waits for a key while the process that writes it lives."""


class Steps:
    """The steps of this process, of all programs.

    Processes send each other the values of their next step, whichever that is. So after a step
    that has not run to its end in one process, what it gets would be of another step. For the same
    reason a process has one step at a time, and the thread that begins it ends or leaves it.

    Args:
        begin: notes that a step begins, and returns its number.
        leave: notes that an exception has ended it.
    """

    def __init__(self, begin: Callable[[], int], leave: Callable[[], None]) -> None:
        self._begin, self._leave = begin, leave
        self._turn = threading.Lock()
        self._runs_in: int | None = None  # the thread whose step has begun
        self._is_left = False

    def begin(self) -> int:
        """The number of the next step.

        Raises:
            InputError: SHARDC-282, the step before has not ended.
        """
        with self._turn:
            if self._is_left or self._runs_in == threading.get_ident():
                raise InputError(
                    "an earlier step ended with an error in this process: its next steps would get"
                    " values of other steps from the other processes",
                    help="let such errors end the process, and start the job again",
                    code="SHARDC-282",
                )
            if self._runs_in is not None:
                raise InputError(
                    "another thread of this process runs a step: the other processes could not"
                    " tell which of the two comes first",
                    help="run the steps of a job one after the other, in the same order on all"
                    " processes",
                    code="SHARDC-282",
                )
            self._runs_in = threading.get_ident()
            return self._begin()

    def end(self) -> None:
        """The step has run to its end."""
        self._runs_in = None

    def leave(self) -> None:
        """An exception ends a call in this thread; the call may have begun a step."""
        if self._runs_in == threading.get_ident():
            self._runs_in, self._is_left = None, True
            self._leave()


class Agreement:
    """Compares the arguments of each process with those of process 0, step by step.

    Args:
        name: of the program, the same in all processes.
        steps: of this process.
    """

    def __init__(self, coordination: Coordination, wait: Wait, name: str, steps: Steps) -> None:
        self._coordination, self._wait, self._name = coordination, wait, name
        self.steps = steps

    def check_step(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Begins a step.

        Raises:
            InputError: SHARDC-282, process 0 runs another program, or passes other arguments.
        """
        step, rank = self.steps.begin(), self._coordination.rank
        own = [_hash(self._name.encode()), *map(_digest, values)]
        if rank == 0:
            self._coordination.set(f"step/{step}", b"".join(own))
            if step > KEPT_STEPS:
                self._coordination.delete(f"step/{step - KEPT_STEPS}")
            return
        # Under the number of the step alone: a process that runs another program finds it, too.
        said = self._wait(f"step/{step}")
        first = [said[i : i + _SIZE] for i in range(0, len(said), _SIZE)]
        if first[0] != own[0]:
            raise InputError(
                f"rank {rank} runs another program than rank 0 in step {step}",
                help="call the same functions, with arguments of the same shapes, types and memory"
                " kinds, in the same order on all processes",
                code="SHARDC-282",
            )
        for name, value, theirs, ours in zip(names, values, first[1:], own[1:], strict=True):
            if theirs != ours:
                raise InputError(
                    f"argument '{name}' differs between rank {rank} and rank 0 in step {step}:"
                    f" {_said(value)} here",
                    help="pass the same numbers on all processes; rows that differ from process to"
                    " process are one array: jax.make_array_from_process_local_data("
                    "shardc.batch_sharding(), rows)",
                    code="SHARDC-282",
                )


_SIZE = 8


def _hash(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=_SIZE).digest()


def _digest(value: Any) -> bytes:
    if isinstance(value, jax.Array):
        return _digest_of_layout(value.dtype, value.shape, value.sharding)
    array = np.asarray(value)
    return _hash(f"{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())


@functools.lru_cache(maxsize=1 << 14)  # a step has the same layouts as the one before
def _digest_of_layout(dtype: np.dtype[Any], shape: tuple[int, ...], sharding: Sharding) -> bytes:
    if not isinstance(sharding, NamedSharding):  # no program reads it
        return _hash(f"{dtype}{shape}{sharding}".encode())
    devices = [device.id for device in sharding.mesh.devices.flat]
    axes = [(name, size) for name, size in sharding.mesh.shape.items() if size > 1]
    return _hash(f"{dtype}{shape}{axes}{devices}{_splits(sharding)}".encode())


def _splits(sharding: Any) -> list[tuple[int, str]]:
    """(dim, axis) for every axis of several devices that splits a dim."""
    found = []
    for dim, entry in enumerate(sharding.spec):
        names = (entry,) if isinstance(entry, str) else tuple(entry or ())
        found += [(dim, name) for name in names if sharding.mesh.shape[name] > 1]
    return found


def _said(value: Any) -> str:
    if isinstance(value, jax.Array):
        return f"{value.dtype}{list(value.shape)} over {value.sharding}"
    array = np.asarray(value)
    return repr(value) if array.ndim == 0 else f"{array.dtype}{list(array.shape)}"

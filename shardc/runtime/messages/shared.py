"""Results that every process of a job can read, such as the loss."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, Sharding

from shardc.plan.executable import Executable
from shardc.runtime.messages.array_moves import one_device_each
from shardc.runtime.messages.between import Between
from shardc.runtime.processes.arrays import is_here
from shardc.runtime.transport import Move

MOST_BYTES = 1024


class SharedResults:
    """Sends small results that replace no donated argument to all processes.

    All of a step travel in one message at its end. In each process one device then has them whole.

    Args:
        places: by result, in the user's dims; None for an argument that is returned unchanged.
        devices: of the step.
    """

    def __init__(
        self,
        executable: Executable,
        places: Sequence[Sharding | None],
        devices: Sequence[jax.Device],
        between: Between,
    ) -> None:
        # A process without any of them gets the results nevertheless.
        everywhere = one_device_each([*devices, *jax.devices()])
        replaced = {argument.aliased_result for argument in executable.arguments}
        own = [result for result in executable.results if result.piece is None]
        moves = {}
        for i, (result, place) in enumerate(zip(own, places, strict=True)):
            num_bytes = int(np.prod(result.shape)) * np.dtype(result.dtype).itemsize
            is_small = num_bytes <= MOST_BYTES and i not in replaced
            if is_small and isinstance(place, NamedSharding) and not _is_readable(place):
                moves[i] = Move(place, everywhere, result.shape, result.dtype)
        self.places = dict.fromkeys(moves, everywhere)
        self._route = between.route(list(moves.values())) if moves else None
        self._sends = any(is_here(move.source) for move in moves.values())

    def share(self, results: list[jax.Array]) -> None:
        """Replaces the results that are shared; every process calls it at the end of a step."""
        if self._route is None:
            return
        if self._sends:
            self._route.send([results[i] for i in self.places])
        for i, value in zip(self.places, self._route.receive(), strict=True):
            results[i] = value


def _is_readable(place: NamedSharding) -> bool:
    """Whether every process has an array whole."""
    devices: set[Any] = set(place.device_set)
    return (
        place.is_fully_replicated and len({d.process_index for d in devices}) == jax.process_count()
    )

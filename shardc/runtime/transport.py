"""Moves values from one device group to another."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import jax
from jax.sharding import NamedSharding

from shardc.errors import ShardcError
from shardc.runtime.transfers import Transfer, Transfers


class Move(NamedTuple):
    """One array of a message: its source and target shardings."""

    source: NamedSharding
    target: NamedSharding
    shape: tuple[int, ...]
    dtype: str


class Route(Protocol):
    """One message of a step, prepared as far as possible before the step.

    `send` dispatches and never waits for the values. `receive` returns them, one per array sent, in
    the receiver's shardings.
    """

    def send(self, values: Sequence[jax.Array]) -> None: ...
    def receive(self) -> Sequence[jax.Array]: ...


class Transport(Protocol):
    """Makes routes between device groups."""

    def route(self, moves: Sequence[Move]) -> Route:
        """The route of a message of arrays; compiles what it needs."""
        ...


class InProcess:
    """Transport inside one process: reshards, and copies from device to device."""

    def __init__(self, transfers: Transfers) -> None:
        self._transfers = transfers

    def route(self, moves: Sequence[Move]) -> Route:
        """Like `Transport.route`."""
        transfers = [self._transfers.find(*move) for move in moves]
        return _LocalRoute(transfers, [move.target for move in moves])


class _LocalRoute:
    """Plain copies share one `device_put`; the others are transfers of several steps."""

    def __init__(self, transfers: Sequence[Transfer], targets: Sequence[NamedSharding]) -> None:
        is_copy = [
            each.is_copy and each.copy_to == target
            for each, target in zip(transfers, targets, strict=True)
        ]
        self._copied = [i for i, copied in enumerate(is_copy) if copied]
        self._shardings = [targets[i] for i in self._copied]
        self._others = [(i, transfers[i]) for i, copied in enumerate(is_copy) if not copied]
        self._waiting: list[jax.Array] | None = None

    def send(self, values: Sequence[jax.Array]) -> None:
        found: list[jax.Array] = list(values)
        if self._copied:
            copies = jax.device_put([values[i] for i in self._copied], self._shardings)
            for i, copy in zip(self._copied, copies, strict=True):
                found[i] = copy
        for i, transfer in self._others:
            found[i] = transfer(values[i])
        self._waiting = found

    def receive(self) -> Sequence[jax.Array]:
        found, self._waiting = self._waiting, None
        if found is None:
            raise ShardcError("a message is received that was never sent", code="SHARDC-266")
        return found

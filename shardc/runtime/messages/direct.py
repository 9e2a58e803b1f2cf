"""Messages that the receiver fetches: JAX's transfer server, without a collective.

The sender offers its cells under a number; the receiver asks for that number when it likes. Neither
waits: the arrays are there when the bytes are. A process that never fetches holds up nobody else.
"""

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, SingleDeviceSharding

from shardc.errors import ShardcError
from shardc.runtime.messages.cells import Crossing, crossings_of
from shardc.runtime.processes.arrays import assembled, pieces_of
from shardc.runtime.transport import Move

Cell = tuple[int, int]
"""Positions of a move in the message, and of a crossing in its plan."""

ROUTE_BITS, USE_BITS = 22, 26  # of an offer's number; the rank that fetches it is above


class Offers:
    """Numbers for offers, and connections to the processes that make them.

    The routes between two processes are numbered in the order in which both make them.

    Args:
        server: of this process.
        addresses: by rank, of their servers.
        process_of: the rank of a device.
    """

    def __init__(
        self,
        server: Any,
        addresses: Sequence[str],
        rank: int,
        process_of: Callable[[Any], int] = lambda device: int(device.process_index),
    ) -> None:
        self.server, self.rank, self.process_of = server, rank, process_of
        self._addresses = addresses
        self._routes: Counter[tuple[int, int]] = Counter()
        self.connection = functools.cache(lambda rank: server.connect(self._addresses[rank]))

    def number(self, sender: int, receiver: int) -> int:
        """The first number of a new route."""
        self._routes[sender, receiver] += 1
        route = self._routes[sender, receiver] % (1 << ROUTE_BITS)
        return (receiver << (ROUTE_BITS + USE_BITS)) | (route << USE_BITS)


class DirectRoute:
    """One message of a step between processes that fetch from each other."""

    def __init__(self, moves: Sequence[Move], offers: Offers) -> None:
        self._moves, self._offers = tuple(moves), offers
        found: set[Any] = {d for move in moves for side in move[:2] for d in side.device_set}
        self._devices = {device.id: device for device in found}
        self._near = {device.id: offers.process_of(device) for device in found}
        self._plans = [self._plan(move) for move in self._moves]
        between: dict[tuple[int, int], list[Cell]] = {}
        for m, (_, crossings) in enumerate(self._plans):
            for c, crossing in enumerate(crossings):
                pair = self._near[crossing.source], self._near[crossing.targets[0]]
                between.setdefault(pair, []).append((m, c))
        me = offers.rank
        numbers = {
            pair: offers.number(*pair)
            for pair in sorted(between)
            if me in pair and pair[0] != pair[1]
        }
        # The first number of each offer, and its cells; of each fetch, also its arrays.
        self._offered = [(n, between[p]) for p, n in numbers.items() if p[0] == me]
        self._fetched = [
            (n, pair[0], between[pair], [self._wanted(*cell) for cell in between[pair]])
            for pair, n in numbers.items()
            if pair[1] == me
        ]
        self._own = between.get((me, me), [])
        self._sends = any(self._is_mine(d) for move in moves for d in _ids(move.source))
        self._sent = self._received = 0
        self._cutters = self._make_cutters()
        self._joiners = self._make_joiners()
        self._waiting: dict[Cell, jax.Array] | None = None

    def _plan(self, move: Move) -> tuple[tuple[int, ...], list[Crossing]]:
        source = move.source.devices_indices_map(move.shape)
        target = move.target.devices_indices_map(move.shape)
        return crossings_of(move.shape, _by_id(source), _by_id(target), self._near)

    def _is_mine(self, device: int) -> bool:
        return self._near[device] == self._offers.rank

    def _make_cutters(self) -> dict[int, tuple[Any, list[int], list[Cell]]]:
        """By own source device: a program that cuts cells out of its pieces, the moves whose pieces
        it takes, and the (move, crossing) of each cell."""
        cuts: dict[int, list[Cell]] = {}
        for m, (_, crossings) in enumerate(self._plans):
            for c, crossing in enumerate(crossings):
                if self._is_mine(crossing.source):
                    cuts.setdefault(crossing.source, []).append((m, c))
        made = {}
        for device, own in cuts.items():
            taken = sorted({m for m, _ in own})
            place = SingleDeviceSharding(self._devices[device])

            def cut(
                *pieces: jax.Array, taken: list[int] = taken, own: list[Cell] = own
            ) -> list[jax.Array]:
                by_move = dict(zip(taken, pieces, strict=True))
                cells = []
                for m, c in own:
                    cell, crossings = self._plans[m]
                    start = crossings[c].taken
                    stop = [a + b for a, b in zip(start, cell, strict=True)]
                    cells.append(jax.lax.slice(by_move[m], start, stop))
                return cells

            examples = [_struct(self._source_shape(m), self._moves[m].dtype, place) for m in taken]
            made[device] = jax.jit(cut).lower(*examples).compile(), taken, own
        return made

    def _source_shape(self, move: int) -> tuple[int, ...]:
        return self._moves[move].source.shard_shape(self._moves[move].shape)

    def _make_joiners(self) -> dict[tuple[int, int], tuple[Any, list[int]]]:
        """By move and own target device: a program that makes its piece of cells (None: its only
        cell is its piece), and their crossings."""
        made: dict[tuple[int, int], tuple[Any, list[int]]] = {}
        for m, (move, (cell, crossings)) in enumerate(zip(self._moves, self._plans, strict=True)):
            for device in filter(self._is_mine, sorted(_ids(move.target))):
                comes = [c for c, each in enumerate(crossings) if device in each.targets]
                is_whole = len(comes) == 1 and cell == move.target.shard_shape(move.shape)
                made[m, device] = None if is_whole else self._joiner(m, device, comes), comes
        return made

    def _joiner(self, move: int, device: int, comes: list[int]) -> Any:
        cell, crossings = self._plans[move]
        own, place = self._moves[move], SingleDeviceSharding(self._devices[device])
        starts = [crossings[c].put[crossings[c].targets.index(device)] for c in comes]

        def join(*cells: jax.Array) -> jax.Array:
            result = jnp.zeros(own.target.shard_shape(own.shape), own.dtype)
            for part, start in zip(cells, starts, strict=True):
                result = jax.lax.dynamic_update_slice(result, part, [np.int32(a) for a in start])
            return result

        examples = [_struct(cell, own.dtype, place)] * len(comes)
        return jax.jit(join, out_shardings=place).lower(*examples).compile()

    def send(self, values: Sequence[jax.Array]) -> None:
        """Offers copies: the values may be donated or deleted before they are fetched."""
        pieces = [pieces_of(value) for value in values]
        cells: dict[Cell, jax.Array] = {}
        for device, (cut, taken, own) in self._cutters.items():
            given = [pieces[m][self._devices[device]] for m in taken]
            cells |= zip(own, cut(*given), strict=True)
        for number, offered in self._offered:
            self._offers.server.await_pull(number + self._sent, [cells[key] for key in offered])
        self._sent = (self._sent + 1) % (1 << USE_BITS)
        if self._joiners:  # else nothing is received here
            self._waiting = {key: cells[key] for key in self._own}

    def receive(self) -> Sequence[jax.Array]:
        """Fetches the cells that other processes offer, and puts all together."""
        cells, self._waiting = self._waiting, None
        if self._sends and cells is None:
            raise ShardcError("a message is received that was never sent", code="SHARDC-266")
        cells = cells or {}
        for number, sender, keys, wanted in self._fetched:
            fetched = self._offers.connection(sender).pull(number + self._received, wanted)
            cells |= zip(keys, fetched, strict=True)
        self._received = (self._received + 1) % (1 << USE_BITS)
        made: list[dict[jax.Device, jax.Array]] = [{} for _ in self._moves]
        for (m, device), (program, comes) in self._joiners.items():
            target = self._devices[device]
            given = [_on(target, cells[m, c]) for c in comes]
            made[m][target] = program(*given) if program is not None else given[0]
        return [
            assembled(move.shape, move.target, own, np.dtype(move.dtype))
            for move, own in zip(self._moves, made, strict=True)
        ]

    def _wanted(self, move: int, crossing: int) -> Any:
        cell, crossings = self._plans[move]
        place = SingleDeviceSharding(self._devices[crossings[crossing].targets[0]])
        return _struct(cell, self._moves[move].dtype, place)


def _on(device: jax.Device, cell: jax.Array) -> jax.Array:
    """A cell on a device; most arrive there, and to say so costs JAX as much as a copy."""
    return cell if cell.device == device else jax.device_put(cell, device)


def _ids(sharding: NamedSharding) -> list[int]:
    devices: set[Any] = set(sharding.device_set)
    return [device.id for device in devices]


def _by_id(indices: Mapping[Any, Any]) -> dict[int, Any]:
    return {device.id: index for device, index in indices.items()}


def _struct(shape: tuple[int, ...], dtype: str, place: SingleDeviceSharding) -> Any:
    return jax.ShapeDtypeStruct(shape, np.dtype(dtype), sharding=place)

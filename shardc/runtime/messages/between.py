"""Transport between device groups of different processes.

Where processes can fetch arrays from each other, a message is a `DirectRoute`. Elsewhere it is one
program over the devices of both groups: collective permutes of cells, which arrive in the
receiver's layout. Every process with one of these devices runs it. All processes run such programs
in the order of one tape, so they cannot deadlock.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from shardc.errors import ShardcError
from shardc.runtime.messages.cells import Rounds, rounds_of
from shardc.runtime.messages.direct import DirectRoute, Offers
from shardc.runtime.processes.arrays import assembled, is_here, nowhere_here, pieces_of
from shardc.runtime.transport import InProcess, Move, Route

AXIS = "all"


class Between:
    """Transport of a job of several processes; `InProcess` handles messages inside one process.

    Args:
        offers: None: all messages are collectives.
        can_fetch: whether all of some ranks can fetch from each other; needed with `offers`.
    """

    def __init__(
        self,
        local: InProcess,
        offers: Offers | None = None,
        can_fetch: Callable[[set[int]], bool] = lambda ranks: False,
    ) -> None:
        self._local = local
        self._offers, self._can_fetch = offers, can_fetch
        self._brought: dict[Move, Route] = {}
        self._programs: dict[tuple[Move, ...], CellProgram] = {}

    def route(self, moves: Sequence[Move]) -> Route:
        """Like `Transport.route`; compiles only if this process takes part."""
        devices: set[Any] = {d for move in moves for side in move[:2] for d in side.device_set}
        ends = {device.process_index for device in devices}
        if ends == {jax.process_index()}:
            return self._local.route(moves)
        if self._offers is not None and self._can_fetch(ends):
            return DirectRoute(moves, self._offers)
        key = tuple(moves)
        if key not in self._programs:
            self._programs[key] = CellProgram(key)
        return _JointRoute(self._programs[key])

    def bring(self, value: jax.Array, target: NamedSharding) -> jax.Array:
        """`value` in `target`, immediately; every process with a device of either takes part."""
        source = value.sharding
        assert isinstance(source, NamedSharding), "a value of several processes is on a mesh"
        if _is_local(source, target, value.shape):
            return assembled(value.shape, target, pieces_of(value), value.dtype)
        if not is_here(source) and not is_here(target):
            return nowhere_here(value.shape, target, value.dtype)
        move = Move(source, target, value.shape, value.dtype.name)
        if move not in self._brought:
            self._brought[move] = self.route([move])
        route = self._brought[move]
        if is_here(source):
            route.send([value])
        if not is_here(target):
            return nowhere_here(value.shape, target, value.dtype)
        return route.receive()[0]


def _is_local(source: NamedSharding, target: NamedSharding, shape: tuple[int, ...]) -> bool:
    """Whether every device of `target` already has its piece."""
    has = source.devices_indices_map(shape)
    return all(has.get(d) == index for d, index in target.devices_indices_map(shape).items())


class _JointRoute:
    """A message between processes: its program runs once in each of them."""

    def __init__(self, program: "CellProgram") -> None:
        self._program = program
        self._waiting: list[jax.Array] | None = None
        self._sends = any(is_here(move.source) for move in program.moves)

    def send(self, values: Sequence[jax.Array]) -> None:
        self._waiting = self._program.run([pieces_of(value) for value in values])

    def receive(self) -> Sequence[jax.Array]:
        if not self._sends:
            return self._program.run([{} for _ in self._program.moves])
        found, self._waiting = self._waiting, None
        if found is None:
            raise ShardcError("a message is received that was never sent", code="SHARDC-266")
        return found


class CellProgram:
    """The program of a message over the devices of both ends, in one process or several.

    Keeps the zeros that devices without data to send pass in.
    """

    def __init__(self, moves: tuple[Move, ...]) -> None:
        self.moves = moves
        found: set[Any] = {d for move in moves for side in move[:2] for d in side.device_set}
        self._devices = sorted(found, key=lambda device: device.id)
        everywhere = Mesh(np.array(self._devices), (AXIS,), axis_types=(AxisType.Auto,))
        # Pieces of one shape on all devices, declared replicated: nobody reads that sharding.
        self._place = NamedSharding(everywhere, PartitionSpec())
        position = {device: i for i, device in enumerate(self._devices)}
        near = {i: device.process_index for i, device in enumerate(self._devices)}
        rounds = [
            rounds_of(
                move.shape,
                {position[d]: i for d, i in move.source.devices_indices_map(move.shape).items()},
                {position[d]: i for d, i in move.target.devices_indices_map(move.shape).items()},
                near,
            )
            for move in moves
        ]
        self._shapes = [move.source.shard_shape(move.shape) for move in moves]
        targets = [move.target.shard_shape(move.shape) for move in moves]

        def body(*values: jax.Array) -> list[jax.Array]:
            return [
                _moved(value, shape, own, len(self._devices))
                for value, shape, own in zip(values, targets, rounds, strict=True)
            ]

        spec = PartitionSpec()
        program = jax.shard_map(
            body, mesh=everywhere, in_specs=spec, out_specs=spec, check_vma=False
        )
        examples: list[Any] = [
            jax.ShapeDtypeStruct(shape, np.dtype(move.dtype), sharding=self._place)
            for shape, move in zip(self._shapes, moves, strict=True)
        ]
        self._call = jax.jit(program).lower(*examples).compile()
        own = [d for d in self._devices if d.process_index == jax.process_index()]
        self._zeros = [
            {
                device: jax.device_put(np.zeros(shape, move.dtype), device)
                for device in own
                if device not in move.source.device_set
            }
            for shape, move in zip(self._shapes, moves, strict=True)
        ]

    def text(self) -> str:
        """The program text as XLA compiled it."""
        return self._call.as_text() or ""

    def run(self, values: Sequence[dict[jax.Device, jax.Array]]) -> list[jax.Array]:
        """The arrays in the receiver's layouts, from the sender's pieces."""
        given = [
            assembled(shape, self._place, {**zeros, **pieces}, np.dtype(move.dtype))
            for shape, zeros, pieces, move in zip(
                self._shapes, self._zeros, values, self.moves, strict=True
            )
        ]
        return [
            assembled(move.shape, move.target, pieces_of(value), np.dtype(move.dtype))
            for move, value in zip(self.moves, self._call(*given), strict=True)
        ]


def _moved(value: jax.Array, shape: tuple[int, ...], rounds: Rounds, count: int) -> jax.Array:
    """The piece of each device after all rounds, of shape `shape`."""
    me = jax.lax.axis_index(AXIS)
    result = jnp.zeros(shape, value.dtype)
    for hops in rounds.rounds:
        taken = np.zeros((count, value.ndim), np.int32)
        put = np.zeros((count, value.ndim), np.int32)
        gets, passes_on = np.zeros(count, bool), np.zeros(count, bool)
        for hop in hops:
            taken[hop.source], put[hop.target], gets[hop.target] = hop.taken, hop.put, True
            passes_on[hop.source] = hop.passed_on
        start = list(jnp.asarray(taken)[me])
        if not passes_on.any():
            cell = jax.lax.dynamic_slice(value, start, rounds.cell)
        else:
            cell = jax.lax.dynamic_slice(result, start, rounds.cell)
            if not all(hop.passed_on for hop in hops):
                own = jax.lax.dynamic_slice(value, start, rounds.cell)
                cell = jnp.where(jnp.asarray(passes_on)[me], cell, own)
        if any(hop.source != hop.target for hop in hops):
            cell = jax.lax.ppermute(cell, AXIS, [(hop.source, hop.target) for hop in hops])
        at = list(jnp.asarray(put)[me])
        there = jax.lax.dynamic_slice(result, at, rounds.cell)
        kept = jnp.where(jnp.asarray(gets)[me], cell, there)
        result = jax.lax.dynamic_update_slice(result, kept, at)
    return result

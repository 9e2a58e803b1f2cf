"""Refuses a donated buffer that is passed twice, without waiting for the results of a step."""

import weakref
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import jax

from shardc.errors import InputError


class UserArgument(Protocol):
    """The properties of a flat argument that are known before compilation."""

    @property
    def name(self) -> str: ...
    @property
    def donated(self) -> bool: ...


def check_donated_once(arguments: Sequence[UserArgument], values: Sequence[Any]) -> None:
    """Refuses donated buffers that are passed twice.

    Raises:
        InputError: SHARDC-264.
    """
    first: dict[Any, int] = {}
    for i, value in enumerate(values):
        if isinstance(value, jax.Array):
            _check(arguments, first, i, _buffers(value))


class _Known(NamedTuple):
    array: weakref.ref[jax.Array]
    since: int
    is_result: bool


class DonatedOnce:
    """The same check for every step, by what is known of arrays that earlier steps returned.

    Reading an array's address waits for the array, and a step is called before the last one is
    done. So it is read only where two arrays may share a buffer. Two results of steps do not, nor
    do a result and an array that was an argument before the result was made; arrays whose pieces
    differ in type do not either.
    """

    def __init__(self, arguments: Sequence[UserArgument]) -> None:
        self._arguments = tuple(arguments)
        self._is_needed = any(argument.donated for argument in arguments)
        self._known: dict[int, _Known] = {}  # by id, of arrays that still live
        self._steps = 0

    def check(self, values: Sequence[Any]) -> None:
        """Before a step.

        Raises:
            InputError: SHARDC-264, a donated array is passed twice.
        """
        if not self._is_needed:
            return
        arrays = {i: value for i, value in enumerate(values) if isinstance(value, jax.Array)}
        first: dict[Any, int] = {}
        if len(set(map(id, arrays.values()))) < len(arrays):
            for i, value in arrays.items():
                _check(self._arguments, first, i, [id(value)])
        known = {i: self._of(value) for i, value in arrays.items()}
        donated = [i for i in arrays if self._arguments[i].donated]
        oldest = self._steps
        for i in donated:
            found = known[i]
            oldest = min(oldest, found.since if found is not None and found.is_result else -1)
        doubtful = {i for i, found in known.items() if not self._has_its_own(found, i, oldest)}
        if not doubtful:
            return
        alike: dict[Any, list[int]] = {}
        for i in sorted(doubtful | set(donated)):
            alike.setdefault(_type(arrays[i]), []).append(i)
        for group in alike.values():
            first = {}
            if len(group) > 1 and not doubtful.isdisjoint(group):
                for i in group:
                    _check(self._arguments, first, i, _buffers(arrays[i]))

    def returned(self, values: Sequence[Any], results: Sequence[jax.Array]) -> None:
        """After a step that took `values`."""
        if not self._is_needed:
            return
        self._steps += 1
        self._known = dict(self._living())
        for value in values:
            if isinstance(value, jax.Array) and self._of(value) is None:
                self._known[id(value)] = _Known(weakref.ref(value), self._steps, False)
        for result in results:
            self._known[id(result)] = _Known(weakref.ref(result), self._steps, True)

    def _has_its_own(self, known: _Known | None, i: int, oldest: int) -> bool:
        """Whether no donated array but the argument itself may have its buffer."""
        if known is None or (self._arguments[i].donated and not known.is_result):
            return False
        return oldest >= 0 and (known.is_result or known.since <= oldest)

    def _of(self, value: jax.Array) -> _Known | None:
        known = self._known.get(id(value))
        return known if known is not None and known.array() is value else None

    def _living(self) -> Iterator[tuple[int, _Known]]:
        for key, known in self._known.items():
            array = known.array()
            if array is not None and not array.is_deleted():
                yield key, known


def _check(
    arguments: Sequence[UserArgument], first: dict[Any, int], i: int, keys: Sequence[Any]
) -> None:
    for key in keys:
        j = first.setdefault(key, i)
        if j != i and (arguments[i].donated or arguments[j].donated):
            raise InputError(
                f"the same array is passed as argument '{arguments[j].name}' and as argument"
                f" '{arguments[i].name}', and it is donated",
                help="pass a copy for one of them, or do not donate",
                code="SHARDC-264",
            )


def _type(value: jax.Array) -> tuple[Any, tuple[int, ...]]:
    return value.dtype, value.sharding.shard_shape(value.shape)


def _buffers(value: jax.Array) -> list[tuple[jax.Device, int]]:
    """The memory of an array's elements: two arrays may share it, such as an array and its
    `jax.device_put`.

    Waits for the array first: reading a pointer waits, too, but holds the interpreter's lock, and
    no thread could end the process if another one never sends the array.
    """
    value.block_until_ready()
    pieces = [shard.data for shard in value.addressable_shards if shard.data.size]
    return [(piece.device, piece.unsafe_buffer_pointer()) for piece in pieces]

"""Refuses a donated buffer that is passed twice, without waiting for the results of a step."""

import collections
import itertools
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import jax

from shardc.errors import InputError

REMEMBERED_CALLS = 4  # a program may alternate between states


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


class _Call(NamedTuple):
    """An earlier step.

    Attributes:
        given: its arrays that no remembered step had returned.
        results: of the step.
    """

    given: list[weakref.ref[jax.Array]]
    results: list[weakref.ref[jax.Array]]


class DonatedOnce:
    """The same check for every step, by what is known of arrays that earlier steps returned.

    Reading an array's address waits for the array, and a step is called before the last one is
    done. So it is read only where two arrays may share a buffer. Two results of steps do not, nor
    do a result and an array that was an argument before the result was made; arrays whose pieces
    differ in type do not either. Of steps longer ago than the last few nothing is known.
    """

    def __init__(self, arguments: Sequence[UserArgument]) -> None:
        self._arguments = tuple(arguments)
        self._donated = [i for i, argument in enumerate(arguments) if argument.donated]
        self._calls: collections.deque[_Call] = collections.deque(maxlen=REMEMBERED_CALLS)
        self._given: list[weakref.ref[jax.Array]] = []  # of the step that is about to run
        self._types: dict[int, tuple[jax.sharding.Sharding, Any]] = {}  # of arguments

    def check(self, values: Sequence[Any]) -> None:
        """Before a step.

        Args:
            values: one per argument, with its shape and element type.
        Raises:
            InputError: SHARDC-264, a donated array is passed twice.
        """
        if not self._donated:
            return
        ids = list(map(id, values))
        if len(set(ids)) < len(ids):
            first: dict[Any, int] = {}
            for i, value in enumerate(values):
                if isinstance(value, jax.Array):
                    _check(self._arguments, first, i, [id(value)])
        results, older = self._known({ids[i] for i in self._donated})
        others = [i for i, each in enumerate(ids) if each not in results]
        new = [i for i in others if ids[i] not in older and isinstance(values[i], jax.Array)]
        self._given = [weakref.ref(values[i]) for i in new]
        self._given += [weakref.ref(values[i]) for i in others if ids[i] in older]
        alike: dict[Any, list[int]] = {}
        for i in new:
            alike.setdefault(_type(values[i]), []).append(i)
        is_any_donated = any(self._arguments[i].donated for i in new)
        with_them = range(len(values)) if is_any_donated else self._donated if new else ()
        for i in with_them:
            is_known = ids[i] in results or ids[i] in older
            if is_known and (key := self._type_of(i, values[i])) in alike:
                alike[key].append(i)
        for group in alike.values():
            first = {}
            for i in sorted(group) if len(group) > 1 else ():
                _check(self._arguments, first, i, _buffers(values[i]))

    def returned(self, results: Sequence[jax.Array]) -> None:
        """After the step for which `check` was called last."""
        if self._donated:
            self._calls.append(_Call(self._given, list(map(weakref.ref, results))))
            self._given = []

    def passed_on(self, result: jax.Array, other: jax.Array) -> None:
        """`other`, which the user gets instead of a result, has taken over its buffer."""
        for call in reversed(tuple(self._calls)):
            if any(ref() is result for ref in call.results):
                call.results.append(weakref.ref(other))
                return

    def _known(self, donated: set[int]) -> tuple[set[int], set[int]]:
        """The ids of results of steps, and of arguments older than each of `donated` that is one.

        Ids are of arrays that live: whoever calls this holds those that it asks about.
        """
        results: set[int] = set()
        oldest = len(self._calls)
        for at in reversed(range(len(self._calls))):
            if donated:
                own = _living(self._calls[at].results)
                results |= own
                oldest = oldest if donated.isdisjoint(own) else at
                donated = donated - own
        if not results:
            return results, set()
        given = [ref for call in itertools.islice(self._calls, oldest + 1) for ref in call.given]
        return results, _living(given)

    def _type_of(self, i: int, value: jax.Array) -> Any:
        place = value.sharding
        known = self._types.get(i)
        if known is None or known[0] is not place:
            known = self._types[i] = place, _type(value)
        return known[1]


def _living(refs: Sequence[weakref.ref[jax.Array]]) -> set[int]:
    return {id(array) for ref in refs if (array := ref()) is not None}


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

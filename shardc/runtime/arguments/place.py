"""Places the user's arguments where the step reads them; arrays already there are not copied."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, Sharding, SingleDeviceSharding

from shardc.errors import InputError
from shardc.plan.executable import ArgumentSpec
from shardc.runtime.arguments.donated_once import UserArgument, check_donated_once
from shardc.runtime.transfers import Transfers


def checked_array(argument: ArgumentSpec, value: Any) -> Any:
    """`value` as an array of the declared type; a NumPy array is copied.

    JAX on CPU may use a NumPy array's memory instead of copying it (jax 0.12 does so even with
    may_alias=False), while the user may write to it as soon as the step returns.

    Raises:
        InputError: SHARDC-262, the argument is gone; 263, it has another shape or dtype.
    """
    wanted = np.dtype(argument.dtype)
    if isinstance(value, jax.Array):
        if value.is_deleted():
            raise _is_gone(argument.name)
        dtype = value.dtype
    elif isinstance(value, np.ndarray | np.generic):
        dtype = jax.dtypes.canonicalize_dtype(value.dtype)
        value = np.array(value, dtype=dtype)
    else:
        value = _as_number(argument, value, wanted)
        dtype = value.dtype
    if value.shape != argument.shape or dtype != wanted:
        raise InputError(
            f"argument '{argument.name}' is {dtype}{list(value.shape)}; the step was compiled"
            f" for {argument.dtype}{list(argument.shape)}",
            help="lower, plan and compile again for these types",
            code="SHARDC-263",
        )
    return value


def _as_number(argument: ArgumentSpec, value: Any, wanted: np.dtype[Any]) -> Any:
    """A Python value as an array of the wanted type: no fraction or imaginary part is cut off."""

    try:
        own = np.asarray(value).dtype
        is_integer = own.kind == "i" and jax.numpy.issubdtype(wanted, np.integer)
        if not is_integer and not np.can_cast(own, wanted, "same_kind"):
            raise TypeError(f"{own} is no {wanted}")
        return np.array(value, dtype=wanted)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"argument '{argument.name}' is {value!r}; the step was compiled for"
            f" {argument.dtype}{list(argument.shape)}",
            help="pass arrays and numbers of that type",
            code="SHARDC-263",
        ) from error


def check_usable(arguments: Sequence[UserArgument], values: Sequence[Any]) -> None:
    """Refuses arguments that no step takes, before any time is spent.

    Raises:
        InputError: SHARDC-262, an argument is gone; 264, a donated array is passed twice.
    """
    arrays: list[Any] = [None] * len(values)
    for i, value in enumerate(values):
        if isinstance(value, jax.Array):
            if value.is_deleted():
                raise _is_gone(arguments[i].name)
            if not jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
                arrays[i] = value
    check_donated_once(arguments, arrays)


def _is_gone(name: str) -> InputError:
    return InputError(
        f"argument '{name}' is gone: it was donated by an earlier call, or deleted",
        help="use the result of the call it was donated to, or pass a copy",
        code="SHARDC-262",
    )


class ArgumentPlacer:
    """Places flat user arguments on their owner stages.

    An array already in place is used directly. Anything else is copied. The copy belongs to
    shardc, but JAX may let it share the buffer of an array on one device. Therefore a program may
    donate it only if the user donated the argument (the tape checks that).

    Args:
        arguments: one per flat argument.
        shardings: the target of each; None if no program reads it.
        shapes: the shape that the programs read: for batch arguments [.., M, B / M, ..].
    """

    def __init__(
        self,
        arguments: Sequence[ArgumentSpec],
        shardings: Sequence[NamedSharding | None],
        shapes: Sequence[tuple[int, ...] | None],
        transfers: Transfers,
    ) -> None:
        self._arguments = tuple(arguments)
        self._shardings = tuple(shardings)
        self._shapes = tuple(shapes)
        self._transfers = transfers
        self._cut = tuple(
            shape is not None and shape != argument.shape
            for argument, shape in zip(arguments, shapes, strict=True)
        )
        # The last sharding object that was accepted: usually the same object arrives again.
        self._accepted: list[Sharding | None] = [None] * len(self._arguments)

    def completed(self) -> None:
        """The step has run to its end."""

    def abandoned(self) -> None:
        """An exception ends the call, before or in its step."""

    def place(self, values: Sequence[Any]) -> list[jax.Array | None]:
        """One array per argument, None for arguments that no program reads.

        Raises:
            InputError: SHARDC-262, an argument is gone; 263, it has another shape or dtype than
                the step was compiled for.
        """
        if len(values) != len(self._arguments):
            raise InputError(
                f"the step takes {len(self._arguments)} arrays, {len(values)} were passed",
                code="SHARDC-263",
            )
        checked = map(checked_array, self._arguments, values)
        placed: list[jax.Array | None] = []
        waiting: list[tuple[int, Any, NamedSharding]] = []
        for i, own in enumerate(self._agreed([*checked])):
            target = self._shardings[i]
            if target is None:
                placed.append(None)
            elif not isinstance(own, jax.Array):
                waiting.append((i, own.reshape(self._shapes[i]), target))
                placed.append(None)
            elif not self._cut[i] and self._is_there(i, own, target):
                placed.append(own)
            elif _is_cut_on_host(own, target):
                waiting.append((i, np.array(own).reshape(self._shapes[i]), target))
                placed.append(None)
            else:
                placed.append(self._bring(i, own, target))
        if waiting:
            copies = self._put(
                [value for _, value, _ in waiting], [target for _, _, target in waiting]
            )
            for (i, _, _), copy in zip(waiting, copies, strict=True):
                placed[i] = copy
        return placed

    def _agreed(self, values: list[Any]) -> list[Any]:
        """The checked values of a step that begins."""
        return values

    def _put(self, values: list[Any], targets: list[NamedSharding]) -> Sequence[jax.Array]:
        copies: Sequence[jax.Array] = jax.device_put(values, targets)
        return copies

    def _is_there(self, i: int, value: jax.Array, target: NamedSharding) -> bool:
        sharding = value.sharding
        if sharding is self._accepted[i]:
            return True
        if sharding == target or sharding.is_equivalent_to(target, value.ndim):
            self._accepted[i] = sharding
            return True
        return False

    def _bring(self, i: int, value: jax.Array, target: NamedSharding) -> jax.Array:
        shape = self._shapes[i]
        assert shape is not None, "an argument that a program reads has a shape"
        value = self._transfers.without_explicit_axes(value)
        if self._cut[i]:
            value = self._transfers.reshape(value, shape, target)
            if value.sharding == target:
                return value
        return self._transfers.find(value.sharding, target, shape, value.dtype.name)(value)


def _is_cut_on_host(value: Any, target: NamedSharding) -> bool:
    """Whether an array is ready in host memory, and each device gets a part of it.

    JAX would compile a program for each shape to cut it, which took 3 of 4 s of a first step.
    """
    if not isinstance(value.sharding, SingleDeviceSharding) or target.is_fully_replicated:
        return False
    on_host = {device.platform for device in value.devices()} == {"cpu"}
    return on_host and bool(value.is_ready())

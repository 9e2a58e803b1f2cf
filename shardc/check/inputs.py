"""The inputs of `shardc run`: seeded small values, or a file of arrays."""

import zipfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shardc.errors import InputError
from shardc.importer.program import Argument

Array = npt.NDArray[Any]


def seeded_inputs(
    arguments: Sequence[Argument],
    small: Collection[int],
    limits: Mapping[int, int],
    seed: int = 0,
) -> list[Array]:
    """Small values that keep a training step finite.

    Floats of `small` and scalars are between 0 and 0.1 (a second moment must not be negative), all
    others are normal. Indices are in bounds; other signed integers are 0 to 3, and
    unsigned ones are random bits (for a random key).

    Args:
        small: arguments that reappear as results, or whose root is taken.
        limits: argument -> exclusive upper bound of an index.
    """
    random = np.random.default_rng(seed)
    return [
        _values(random, argument, position in small, limits.get(position))
        for position, argument in enumerate(arguments)
    ]


def _values(
    random: np.random.Generator, argument: Argument, is_small: bool, limit: int | None
) -> Array:
    shape, dtype = argument.shape, np.dtype(argument.dtype)
    if dtype == np.bool_:
        return random.integers(0, 2, shape).astype(np.bool_)
    if dtype.kind == "u" and limit is None:
        top = int(np.iinfo(dtype).max)
        return random.integers(0, top, shape, dtype=dtype, endpoint=True)
    if dtype.kind in "iu":
        return np.asarray(random.integers(0, limit or 4, shape)).astype(dtype)
    small = is_small or not shape

    def floats() -> Array:
        numbers = random.uniform(0.0, 0.1, shape) if small else random.standard_normal(shape)
        return np.asarray(numbers)

    if dtype.kind == "c":
        return np.asarray(floats() + 1j * floats()).astype(dtype)
    return floats().astype(dtype)


def load_inputs(path: str | Path, arguments: Sequence[Argument]) -> list[Array]:
    """Arrays of an .npz file, by the arguments' names, or else in the file's order.

    Raises:
        InputError: SHARDC-187, not such a file, or an array is missing or of another type.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            given = {name: file[name] for name in file.files}
    except (OSError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise InputError(
            f"'{path}' is not an .npz file of arrays: {error}",
            where=str(path),
            code="SHARDC-187",
            help="write it with numpy.savez(path, *arrays), in the order of the arguments",
        ) from error
    if not all(argument.name in given for argument in arguments):
        if len(given) != len(arguments):
            raise InputError(
                f"'{path}' has {len(given)} arrays, and the program takes {len(arguments)}",
                where=str(path),
                code="SHARDC-187",
                help="write one array per argument, in their order",
            )
        given = dict(zip([a.name for a in arguments], given.values(), strict=True))
    return [_checked(given[argument.name], argument, path) for argument in arguments]


def _checked(array: Array, argument: Argument, path: str | Path) -> Array:
    dtype = np.dtype(argument.dtype)
    # NumPy's files do not know bfloat16 and the like: they load as raw bytes of that size.
    if array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize:
        array = array.view(dtype)
    if array.shape != argument.shape or array.dtype != dtype:
        raise InputError(
            f"'{argument.name}' in '{path}' is {array.dtype}{list(array.shape)}; the program takes"
            f" {argument.dtype}{list(argument.shape)}",
            where=str(path),
            code="SHARDC-187",
            help="give every array the type of its argument",
        )
    return array

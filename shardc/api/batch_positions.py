"""The flat arguments that hold the batch, if the user names them by `batch_argnums`."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import jax
import numpy as np

from shardc.api.request import several
from shardc.errors import InputError
from shardc.importer.static_arguments import CallArguments


def batch_positions(
    fun: str, batch_argnums: Sequence[int], num_positional: int, call: CallArguments
) -> tuple[int, ...]:
    """Flat positions of the batch's leaves; scalars have no batch dim and are skipped.

    Args:
        fun: the function's name.
        num_positional: positional arguments of the call, static ones included.
    Raises:
        InputError: SHARDC-186, a number does not name a non-static argument, or none of them names
            an array with a batch dim.
    """
    static = {position for position, _ in call.static if isinstance(position, int)}
    dynamic = [position for position in range(num_positional) if position not in static]
    wanted = set()
    for number in batch_argnums:
        position = number + num_positional if number < 0 else number
        if position not in dynamic:
            raise InputError(
                f"batch_argnums has {number}, and '{fun}' was called with {len(dynamic)}"
                " positional arguments that are not static",
                help="count from 0, and pass the batch by position",
                code="SHARDC-186",
            )
        wanted.add(position)
    found: list[int] = []
    start = 0
    for position, argument in zip(dynamic, call.args, strict=True):
        leaves = jax.tree.leaves(argument)
        if position in wanted:
            found += [start + i for i, leaf in enumerate(leaves) if np.ndim(leaf) > 0]
        start += len(leaves)
    if not found:
        raise InputError(
            f"batch_argnums={tuple(batch_argnums)} names no array with a batch dim",
            help="name the argument that holds the batch",
            code="SHARDC-186",
        )
    return tuple(found)


def given_argnums(argnums: Any, name: str = "batch_argnums") -> tuple[int, ...]:
    """Positions of arguments: a number or several.

    Args:
        name: of the option.

    Raises:
        InputError: SHARDC-186, something else.
    """
    numbers = several(argnums) or (() if isinstance(argnums, list | tuple) else (argnums,))
    strange = [each for each in numbers if not isinstance(each, Integral)]
    if strange:
        raise InputError(
            f"{name} has {strange[0]!r}, which is not the position of an argument",
            help=f"give numbers from 0 on, such as {name}=1",
            code="SHARDC-186",
        )
    return tuple(map(int, numbers))

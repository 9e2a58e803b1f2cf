"""The shardings of the user's arguments and results, in the user's dims."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from shardc.plan.executable import ArgumentSpec, ResultSpec


class UserShardings(NamedTuple):
    """One entry per flat argument, and per flat result, of the user's function.

    Attributes:
        arguments: an array with this sharding is used without a copy, unless it is split into
            microbatches; None if no program reads it.
        results: None for an argument that is returned unchanged.
    """

    arguments: tuple[Sharding | None, ...]
    results: tuple[Sharding | None, ...]


def argument_places(
    specs: Sequence[ArgumentSpec],
    places: Sequence[NamedSharding | None],
    stacks: Mapping[int, NamedSharding],
) -> tuple[Sharding | None, ...]:
    """The shardings of the user's arguments.

    Args:
        places: of the programs' arguments, with a microbatch dim before the batch dim.
        stacks: of arguments that the programs take in pieces.
    """
    return tuple(
        stacks.get(i, without_microbatches(place, spec.batch_dim))
        for i, (spec, place) in enumerate(zip(specs, places, strict=True))
        if spec.piece is None
    )


def without_microbatches(place: NamedSharding | None, batch_dim: int | None) -> Sharding | None:
    """The sharding of a batch in the user's dims, from that of its microbatches."""
    if place is None or batch_dim is None or batch_dim >= len(place.spec):
        return place
    spec = [*place.spec[:batch_dim], *place.spec[batch_dim + 1 :]]
    return NamedSharding(place.mesh, PartitionSpec(*spec))


def result_places(
    specs: Sequence[ResultSpec],
    places: Sequence[NamedSharding | None],
    stacks: Mapping[int, NamedSharding],
    finishers: Sequence[Callable[[Any], jax.Array] | None],
    num_microbatches: int,
) -> tuple[Sharding | None, ...]:
    """The shardings of the user's results; arguments as in `argument_places`.

    Args:
        finishers: merge the microbatches of results that are split.
    """
    found: list[Sharding | None] = []
    for i, (spec, place) in enumerate(zip(specs, places, strict=True)):
        if spec.piece is not None:
            continue
        if place is not None and spec.batch_dim is not None:
            d, rows = spec.batch_dim, spec.shape[spec.batch_dim] // num_microbatches
            shape = (*spec.shape[:d], num_microbatches, rows, *spec.shape[d + 1 :])
            merge: Any = finishers[i]
            value = jax.ShapeDtypeStruct(shape, spec.dtype, sharding=place)
            found.append(merge.lower(value).compile().output_shardings)
        else:
            found.append(stacks.get(i, place))
    return tuple(found)

"""The cost of each part of the model, in one namespace of paths for the whole program."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from jax.extend.mlir import ir

from shardc.analysis.roles.paths import path_of_name, scope_of
from shardc.ir.walk import where
from shardc.plan.account import Part, Worst
from shardc.plan.function_kind import FunctionKind

_NUMBER = re.compile(r"\d+")
UPDATE = ("update",)


class Place(NamedTuple):
    """Where an op stands in the model.

    Attributes:
        scope: JAX's names; () without any.
        near: path of the last parameter that was read up to this op; () if it has no name.
        weight: as in `shardc.plan.account.Part`.
    """

    stage: int
    kind: FunctionKind
    scope: tuple[str, ...]
    near: tuple[str, ...]
    weight: str


@dataclass
class _Sum:
    """Amounts of the ops at one place."""

    num_ops: int = 0
    num_flops: int = 0
    seconds: float = 0.0
    lies: str = ""
    line: str = ""
    largest: int = -1


class Parts:
    """Adds up costs by place; names the places when all are known.

    A place is named by JAX's scopes if these tell the layers apart. In equinox they are names of
    classes, the same in every layer, and plain functions have none: there, each op has the path of
    the parameter that was read last.
    """

    def __init__(self) -> None:
        self._sums: dict[Place, _Sum] = {}
        self._worst: list[tuple[Place, str]] = []
        self._near: tuple[str, ...] = ()

    def enter(self) -> None:
        """Begins a function."""
        self._near = ()

    def place(
        self, op: ir.Operation, stage: int, kind: FunctionKind, weight: str, reads: str
    ) -> Place:
        """The place of the next op of the function; `reads` is the parameter that it reads."""
        self._near = path_of_name(reads) or self._near
        return Place(stage, kind, scope_of(op), self._near, weight)

    def add(
        self, place: Place, op: ir.Operation, times: int, flops: int, seconds: float, lies: str
    ) -> None:
        """Adds an op that runs `times` times; `lies` is its layout if it is a product."""
        own = self._sums.setdefault(place, _Sum())
        if flops > own.largest:
            own.largest, own.line = flops, where(op)
            own.lies = lies or own.lies
        own.num_ops += 1
        own.num_flops += flops * times
        own.seconds += seconds * times

    def add_worst(self, place: Place, op: ir.Operation) -> None:
        """Notes the op at which a stage holds the most memory."""
        self._worst.append((place, where(op)))

    def named(self) -> tuple[Part, ...]:
        """All parts in program order."""
        path_of = self.path_of()
        found: dict[tuple[object, ...], tuple[Part, int]] = {}
        for place, own in self._sums.items():
            path = path_of(place)
            key = place.stage, place.kind, path, place.weight
            part, largest = found.get(key, (Part(*key[:3], 0, 0, 0.0, weight=place.weight), -1))
            is_larger = own.largest > largest
            found[key] = (
                Part(
                    place.stage,
                    place.kind,
                    path,
                    part.num_ops + own.num_ops,
                    part.num_flops + own.num_flops,
                    part.seconds + own.seconds,
                    own.lies if is_larger and own.lies else part.lies,
                    own.line if is_larger else part.place,
                    place.weight,
                ),
                max(largest, own.largest),
            )
        return tuple(part for part, _ in found.values())

    def worst(self) -> tuple[Worst, ...]:
        """The op of each stage at which it holds the most memory."""
        path_of = self.path_of()
        found = [Worst(p.stage, p.kind, path_of(p), line) for p, line in self._worst]
        return tuple(sorted(found, key=lambda each: each.stage))

    def path_of(self) -> Callable[[Place], tuple[str, ...]]:
        """A function that names places, when all are known."""
        products = ((each.scope, path_of_name(each.weight)) for each in self._sums)
        return _by_scope if tell_layers_apart(products) else _by_parameter


def tell_layers_apart(products: Iterable[tuple[tuple[str, ...], tuple[str, ...]]]) -> bool:
    """Whether the parameters of each scope differ in no number.

    Args:
        products: scope, and path of the parameter; those without a path say nothing.
    """
    numbers: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for scope, path in products:
        if path:
            numbers.setdefault(scope, set()).add(tuple(_NUMBER.findall(".".join(path))))
    return all(len(own) == 1 for own in numbers.values())


def _by_scope(place: Place) -> tuple[str, ...]:
    if place.kind is FunctionKind.UPDATE:
        return place.scope or UPDATE
    return place.scope or path_of_name(place.weight)


def _by_parameter(place: Place) -> tuple[str, ...]:
    return UPDATE if place.kind is FunctionKind.UPDATE else place.near or place.scope

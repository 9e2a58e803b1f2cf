"""Premises about numbers that only a run knows; each step checks them."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from jax.extend.mlir import ir

Answer = TypeVar("Answer")

DEEPEST = 60  # questions behind each other, beyond which nothing is said: each takes Python frames


@dataclass(frozen=True)
class Premise:
    """Each element x of a value is a number with `least` <= |x| <= `most`."""

    value: ir.Value
    most: float
    least: float = 0.0


def merged(premises: Iterable[Premise]) -> dict[ir.Value, Premise]:
    """One premise per value, which implies all premises about it."""
    found: dict[ir.Value, Premise] = {}
    for each in premises:
        known = found.get(each.value, each)
        most, least = min(known.most, each.most), max(known.least, each.least)
        found[each.value] = Premise(each.value, most, least)
    return found


class Answers:
    """Answers to questions that ask each other, and the premises on which each rests."""

    def __init__(self) -> None:
        self._depth = 0
        self._known: dict[Hashable, tuple[Any, frozenset[Premise]]] = {}
        self._taken: set[Premise] = set()  # by the answer that is being found

    def take(self, premise: Premise) -> None:
        """The answer that is being found rests on `premise`."""
        self._taken.add(premise)

    def of(self, key: Hashable, nothing: Answer, find: Callable[[], Answer]) -> Answer:
        """The answer to `key`. `nothing` is the answer that rests on no premise; a question that is
        being answered already gets it, and one behind too many others."""
        if key not in self._known:
            if self._depth == DEEPEST:
                return nothing
            self._known[key] = nothing, frozenset()
            outer, self._taken = self._taken, set()
            self._depth += 1
            found = find()
            self._depth -= 1
            self._known[key] = found, frozenset(() if found == nothing else self._taken)
            self._taken = outer
        answer: Answer = self._known[key][0]
        self._taken |= self._known[key][1]
        return answer

    def resting_on(self, find: Callable[[], Answer]) -> tuple[Answer, frozenset[Premise]]:
        """An answer, and its premises."""
        outer, self._taken = self._taken, set()
        found, taken = find(), frozenset(self._taken)
        self._taken = outer
        return found, taken

"""Shardy's op sharding rules as plain data: the factors that the dims of an op share."""

import functools
import re
from dataclasses import dataclass
from enum import Enum


class FactorKind(Enum):
    """What splitting a factor over devices does to an op."""

    PASS_THROUGH = "pass_through"  # each device computes its part of the result
    REDUCTION = "reduction"  # each device computes a partial result
    NEED_REPLICATION = "need_replication"  # the op needs the whole factor
    PERMUTATION = "permutation"  # devices would have to exchange parts


@dataclass(frozen=True)
class OpRule:
    """Factors of an op. `operands[i][d]` are the factors of dim d of operand i, major to minor.

    A dim of size 1 has no factors. `sizes[f]` and `kinds[f]` describe factor f. Result r is a
    partial sum over the reduction factors, and over those of `summed[r]` (of calls: what a function
    passes through may be added up in another of its results).
    """

    operands: tuple[tuple[tuple[int, ...], ...], ...]
    results: tuple[tuple[tuple[int, ...], ...], ...]
    sizes: tuple[int, ...]
    kinds: tuple[FactorKind, ...]
    summed: tuple[tuple[int, ...], ...] = ()

    def is_summed(self, result: int, factor: int) -> bool:
        """Whether a result is a partial sum where the factor is split."""
        if self.kinds[factor] is FactorKind.REDUCTION:
            return True
        return bool(self.summed) and factor in self.summed[result]


_RULE = re.compile(r"<\((.*?)\)->\((.*?)\)(?: \{(.*?)\})?(.*)>$")
_FACTOR = re.compile(r"[a-z](?:_\d+)?")


@functools.lru_cache(maxsize=65536)
def parse_rule(text: str) -> OpRule:
    """Reads the text of a `#sdy.op_sharding_rule` attribute."""
    match = _RULE.search(text)
    assert match, f"unknown form of a sharding rule: {text}"
    operands, results, sizes, kinds = match.groups()
    names: dict[str, int] = {}
    size_of: list[int] = []
    for item in (sizes or "").split(","):
        if item.strip():
            name, size = item.strip().split("=")
            names[name] = len(names)
            size_of.append(int(size))
    kind_of = [FactorKind.PASS_THROUGH] * len(names)
    for word, listed in re.findall(r"(\w+)=\{(.*?)\}", kinds):
        if word in ("reduction", "need_replication", "permutation"):
            for name in listed.split(","):
                kind_of[names[name.strip()]] = FactorKind(word)

    def mappings(part: str) -> tuple[tuple[tuple[int, ...], ...], ...]:
        found = []
        for tensor in re.findall(r"\[(.*?)\]", part):
            dims = [d.strip() for d in tensor.split(",")] if tensor.strip() else []
            found.append(
                tuple(
                    tuple(names[f] for f in _FACTOR.findall(d) if size_of[names[f]] != 1)
                    for d in dims
                )
            )
        return tuple(found)

    return OpRule(mappings(operands), mappings(results), tuple(size_of), tuple(kind_of))

"""What one microbatch holds of a value, and the transfer function of an op."""

from dataclasses import dataclass
from enum import Enum
from math import gcd, isqrt, prod

from jax.extend.mlir import ir

from shardc.rules.allowed_factors import allowed_factors
from shardc.rules.blocks import cuts_blocks
from shardc.rules.op_rule import FactorKind, OpRule
from shardc.rules.partial_sums import sums


class Kind(Enum):
    """What a microbatch holds of a value."""

    INVARIANT = "invariant"  # the whole value, the same in every microbatch
    VARYING = "varying"  # its part of one dim
    PARTIAL = "partial"  # a partial sum: the sum over the microbatches is the value


@dataclass(frozen=True)
class Cut:
    """Where the microbatches cut a tensor.

    Dim `dim`, viewed as [outer, M, rest], holds microbatch i at [:, i, :]; `outer` is 1 unless a
    reshape has merged the batch dim as the minor one into another.
    """

    dim: int
    outer: int = 1

    def part(self, shape: tuple[int, ...], count: int) -> tuple[int, ...]:
        """Shape of one microbatch's part."""
        return (*shape[: self.dim], shape[self.dim] // count, *shape[self.dim + 1 :])


LATE = 1 << 16  # the sweep of values that no sweep computes: they exist once all are done


@dataclass(frozen=True)
class State:
    """Kind of a value, and the first sweep over the microbatches in which it exists.

    The sweep is the number of sums over the batch, each over the work of a sweep, that the value
    depends on one after the other; `LATE` if it depends on a sum for which no sweep waits.
    """

    kind: Kind
    sweep: int = 0
    cut: Cut | None = None

    @property
    def varies(self) -> bool:
        return self.kind is Kind.VARYING

    @property
    def is_partial(self) -> bool:
        return self.kind is Kind.PARTIAL


INVARIANT = State(Kind.INVARIANT)


@dataclass(frozen=True)
class FactorCut:
    """A factor of an op's rule that the microbatches cut, [outer, M, rest] of it."""

    factor: int
    outer: int = 1


def to_factor(rule: OpRule, mapping: tuple[tuple[int, ...], ...], cut: Cut) -> FactorCut | None:
    """The factor that a cut of a tensor cuts; None if it cuts no single factor."""
    outer = cut.outer
    for factor in mapping[cut.dim]:
        size = rule.sizes[factor]
        if outer % size == 0:
            outer //= size
        elif size % outer == 0:
            return FactorCut(factor, outer)
        else:
            return None
    return None


def from_factor(rule: OpRule, mapping: tuple[tuple[int, ...], ...], cut: FactorCut) -> Cut | None:
    """Where a cut factor cuts a tensor; None if the tensor does not have the factor."""
    for dim, factors in enumerate(mapping):
        if cut.factor in factors:
            major = factors[: factors.index(cut.factor)]
            return Cut(dim, prod(rule.sizes[f] for f in major) * cut.outer)
    return None


def most_parts(rule: OpRule, cut: FactorCut) -> int:
    """The number of microbatches must divide this for the factor to be cut evenly."""
    return rule.sizes[cut.factor] // cut.outer


def may_cut(op: ir.Operation, rule: OpRule, cut: FactorCut) -> Kind | None:
    """Kind of the results of an op that computes one part of a factor; None if it may not."""
    kind = rule.kinds[cut.factor]
    everywhere = all(
        rule.is_summed(r, cut.factor) or from_factor(rule, mapping, cut) is not None
        for r, mapping in enumerate(rule.results)
    )
    if op.name == "stablehlo.reshape":  # also a minor factor of a dim: see Cut.outer
        return Kind.VARYING if kind is FactorKind.PASS_THROUGH and everywhere else None
    if cuts_blocks(op, rule, cut.factor):
        return Kind.VARYING
    if not allowed_factors(op, rule)[cut.factor]:
        return None
    if kind is FactorKind.PASS_THROUGH:
        return Kind.VARYING if everywhere else None
    if op.name in ("stablehlo.reduce", "stablehlo.scatter") and not sums(op):
        return None
    return Kind.PARTIAL


def cut_states(rule: OpRule, cut: FactorCut, sweep: int = 0) -> list[State]:
    """States of the results of an op that computes a part of a factor, if `may_cut` allows it."""
    return [
        State(Kind.PARTIAL, sweep)
        if rule.is_summed(r, cut.factor)
        else State(Kind.VARYING, sweep, from_factor(rule, mapping, cut))
        for r, mapping in enumerate(rule.results)
    ]


def common_parts(sizes: list[int]) -> int:
    """The largest number of equal parts that divides all of `sizes`; 0 without sizes."""
    return gcd(*sizes) if sizes else 0


def divisors(number: int) -> list[int]:
    """The divisors of `number`, ascending; none for 0."""
    small = [n for n in range(1, isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})

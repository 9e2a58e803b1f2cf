"""Calls of functions that stay calls: what is known of one.

A call is kept where replacing all calls by what they run would make the program too large. What its
function does is known by factors, as in a sharding rule: a factor is one dim of some arguments and
results along which the function does the same to each part, all the way through. The pass
`shardc-summarize-calls` finds them and writes, with -1 for a dim that is needed whole:

    on function and calls   shardc.factors = [array<i64: 0, -1>, ...]   arguments, then results
                            shardc.factor_sizes = array<i64: 8>         how finely each can be cut
                            shardc.summed = [array<i64: 0>]             over which each result is
                                                                        summed up
                            shardc.cost = array<i64: ...>               see `CallCost`
    on the ops inside       shardc.called_factors = [array<i64: 0, -1>, ...]   of each result
"""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from math import prod
from typing import NamedTuple

from jax.extend.mlir import ir

from shardc.ir.attributes import call_target
from shardc.ir.walk import all_functions, symbol, walk

CALL = "func.call"
CALLED_FACTORS = "shardc.called_factors"
_CALLEE = {CALL: "callee", "stablehlo.composite": "decomposition"}
_FACTORS = "shardc.factors"
_FACTOR_SIZES = "shardc.factor_sizes"
_SUMMED = "shardc.summed"
_COST = "shardc.cost"
_MOST = 2**63 - 1  # functions that call twice what calls twice ... may cost more

Factors = tuple[tuple[int, ...], ...]  # of each value, of each dim: the factor, or -1


class CallCost(NamedTuple):
    """What a call costs on whole values.

    Attributes:
        flops: of all that it runs.
        bytes_read: memory traffic, as of `OpCost`.
        bytes_written: likewise.
        heavy_flops: of the matrix products and convolutions in it.
        inner_bytes: what lives inside at most, besides arguments and results.
    """

    flops: int
    bytes_read: int
    bytes_written: int
    heavy_flops: int
    inner_bytes: int


class CallFacts(NamedTuple):
    """What is known of a function that is called.

    Attributes:
        factors: of its arguments, then of its results.
        sizes: into how many parts each factor can be cut.
        summed: of each result the factors such that the results of the parts are to be added.
        cost: of one call.
    """

    factors: Factors
    sizes: tuple[int, ...]
    summed: Factors
    cost: CallCost

    def cut(self, shares: Sequence[Fraction]) -> "CallFacts":
        """The facts of the function that works on the share `shares[f]` of each factor f."""
        sizes = tuple(int(size * share) for size, share in zip(self.sizes, shares, strict=True))
        cost = CallCost(*(int(each * prod(shares)) for each in self.cost))
        return CallFacts(self.factors, sizes, self.summed, cost)


def called(op: ir.Operation) -> str | None:
    """Symbol of the function that `op` runs; None if it runs none."""
    field = _CALLEE.get(op.name)
    return str(ir.FlatSymbolRefAttr(op.attributes[field]).value) if field else None


def full_name(op: ir.Operation) -> str:
    """`stablehlo.add`, or with what it calls: `stablehlo.custom_call @target`."""
    target = call_target(op) or called(op)
    return f"{op.name} @{target}" if target else op.name


def set_callee(call: ir.Operation, name: str) -> None:
    """Lets a call run another function."""
    call.attributes[_CALLEE[CALL]] = ir.FlatSymbolRefAttr.get(name)


def calls_in(op: ir.Operation) -> Iterator[ir.Operation]:
    """The calls inside `op`, those in loops and branches too."""
    return (inner for inner in walk(op) if inner.name == CALL)


def functions_by_name(module: ir.Operation) -> dict[str, ir.Operation]:
    """Every function of a module."""
    return {symbol(function): function for function in all_functions(module)}


def write_facts(op: ir.Operation, facts: CallFacts) -> None:
    """Writes on a function or a call what is known of it."""
    op.attributes[_FACTORS] = factors_attr(facts.factors)
    op.attributes[_FACTOR_SIZES] = ir.DenseI64ArrayAttr.get(facts.sizes)
    op.attributes[_SUMMED] = factors_attr(facts.summed)
    op.attributes[_COST] = ir.DenseI64ArrayAttr.get([min(each, _MOST) for each in facts.cost])


def facts_of(op: ir.Operation) -> CallFacts | None:
    """What is known of a function or call; None before `shardc-summarize-calls` and of all else."""
    if op.name not in (CALL, "func.func") or _FACTORS not in op.attributes:
        return None
    return CallFacts(
        read_factors(op.attributes[_FACTORS]),
        tuple(ir.DenseI64ArrayAttr(op.attributes[_FACTOR_SIZES])),
        read_factors(op.attributes[_SUMMED]),
        CallCost(*ir.DenseI64ArrayAttr(op.attributes[_COST])),
    )


def factors_attr(factors: Iterable[Sequence[int]]) -> ir.Attribute:
    """Factors of values as an attribute."""
    return ir.ArrayAttr.get([ir.DenseI64ArrayAttr.get(list(dims)) for dims in factors])


def read_factors(attribute: ir.Attribute) -> Factors:
    """What `factors_attr` wrote."""
    return tuple(tuple(ir.DenseI64ArrayAttr(dims)) for dims in ir.ArrayAttr(attribute))

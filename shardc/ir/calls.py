"""Summaries of functions that stay calls.

A call stays if inlining all calls would make the program too large. A summary describes its
function by factors, as in a sharding rule: a factor is one dim of some arguments and results along
which the whole function treats all parts alike. The pass `shardc-summarize-calls` finds the factors
and writes, with -1 for a dim that must stay whole:

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

from shardc.ir.attributes import COST, FACTOR_SIZES, FACTORS, SUMMED, call_target
from shardc.ir.walk import all_functions, symbol, walk

CALL = "func.call"
_CALLEE = {CALL: "callee", "stablehlo.composite": "decomposition"}
_MOST = 2**63 - 1  # functions that call twice what calls twice ... may cost more

Factors = tuple[tuple[int, ...], ...]  # of each value, of each dim: the factor, or -1


class CallCost(NamedTuple):
    """The cost of a call on whole values.

    Attributes:
        flops: of all its ops.
        bytes_read: memory traffic, as in `OpCost`.
        bytes_written: likewise.
        heavy_flops: of its matrix products and convolutions.
        inner_bytes: peak bytes of live values inside, besides arguments and results.
    """

    flops: int
    bytes_read: int
    bytes_written: int
    heavy_flops: int
    inner_bytes: int


class CallFacts(NamedTuple):
    """The summary of a called function.

    Attributes:
        factors: of its arguments, then of its results.
        sizes: maximum number of parts of each factor.
        summed: for each result the factors over which it is a partial sum.
        cost: of one call.
    """

    factors: Factors
    sizes: tuple[int, ...]
    summed: Factors
    cost: CallCost

    def cut(self, shares: Sequence[Fraction]) -> "CallFacts":
        """The summary of the function on the share `shares[f]` of each factor f."""
        sizes = tuple(int(size * share) for size, share in zip(self.sizes, shares, strict=True))
        cost = CallCost(*(int(each * prod(shares)) for each in self.cost))
        return CallFacts(self.factors, sizes, self.summed, cost)


def called(op: ir.Operation) -> str | None:
    """Symbol of the function that `op` calls; None if it calls none."""
    field = _CALLEE.get(op.name)
    return str(ir.FlatSymbolRefAttr(op.attributes[field]).value) if field else None


def full_name(op: ir.Operation) -> str:
    """`stablehlo.add`, or with its call target: `stablehlo.custom_call @target`."""
    target = call_target(op) or called(op)
    return f"{op.name} @{target}" if target else op.name


def set_callee(call: ir.Operation, name: str) -> None:
    """Changes the callee of a call."""
    call.attributes[_CALLEE[CALL]] = ir.FlatSymbolRefAttr.get(name)


def calls_in(op: ir.Operation) -> Iterator[ir.Operation]:
    """The calls nested in `op`, including those in loops and branches."""
    return (inner for inner in walk(op) if inner.name == CALL)


def functions_by_name(module: ir.Operation) -> dict[str, ir.Operation]:
    """Every function of a module."""
    return {symbol(function): function for function in all_functions(module)}


def write_facts(op: ir.Operation, facts: CallFacts) -> None:
    """Writes the summary of a function or a call on it."""
    op.attributes[FACTORS] = factors_attr(facts.factors)
    op.attributes[FACTOR_SIZES] = ir.DenseI64ArrayAttr.get(facts.sizes)
    op.attributes[SUMMED] = factors_attr(facts.summed)
    op.attributes[COST] = ir.DenseI64ArrayAttr.get([min(each, _MOST) for each in facts.cost])


def facts_of(op: ir.Operation) -> CallFacts | None:
    """The summary of a function or call; None before `shardc-summarize-calls` and for other ops."""
    if op.name not in (CALL, "func.func") or FACTORS not in op.attributes:
        return None
    return CallFacts(
        read_factors(op.attributes[FACTORS]),
        tuple(ir.DenseI64ArrayAttr(op.attributes[FACTOR_SIZES])),
        read_factors(op.attributes[SUMMED]),
        CallCost(*ir.DenseI64ArrayAttr(op.attributes[COST])),
    )


def factors_attr(factors: Iterable[Sequence[int]]) -> ir.Attribute:
    """Factors of values as an attribute."""
    return ir.ArrayAttr.get([ir.DenseI64ArrayAttr.get(list(dims)) for dims in factors])


def read_factors(attribute: ir.Attribute) -> Factors:
    """What `factors_attr` wrote."""
    return tuple(tuple(ir.DenseI64ArrayAttr(dims)) for dims in ir.ArrayAttr(attribute))

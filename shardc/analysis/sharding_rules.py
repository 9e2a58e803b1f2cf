"""Shardy's op sharding rules as plain data: how the dims of an op belong together."""

import functools
import itertools
import re
from dataclasses import dataclass, replace
from enum import Enum

from jax.extend.mlir import ir

from shardc.ir.asked import CONSTRAINT
from shardc.ir.attributes import ACCUMULATE, call_target
from shardc.ir.calls import CallFacts, facts_of
from shardc.ir.library_calls import num_batch_dims, solved_along
from shardc.ir.pass_manager import run_registered
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import body, functions, main_function, planned_ops, symbol


class FactorKind(Enum):
    """What happens to an op when one of its factors is split over devices."""

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


_POPULATED = "sdy.sharding_rule"
_POPULATE = "func.func(sdy-populate-op-sharding-rules)"
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


def own_rule(op: ir.Operation) -> OpRule | None:
    """The rule of an op that Shardy has none for, but we do: result i of some lies like operand i;
    calls of libraries map over leading dims or solve along one; calls of functions have factors."""
    if (facts := facts_of(op)) is not None:
        return _call_rule(op, facts)
    known = op.name in ("stablehlo.optimization_barrier", CONSTRAINT)
    if known or call_target(op) == ACCUMULATE:
        return _identity_rule(op)
    count, along = num_batch_dims(op), solved_along(op)
    if along is None:
        return _batched_rule(op, count) if count else None
    rule = _batched_rule(op, count)  # the last operand has the dims of the result
    kinds = list(rule.kinds)
    for factor in rule.results[0][along]:
        kinds[factor] = FactorKind.PASS_THROUGH
    return replace(rule, operands=(rule.operands[0], rule.results[0]), kinds=tuple(kinds))


def _identity_rule(op: ir.Operation) -> OpRule | None:
    shapes = [shape_of(value) for value in op.operands]
    if [shape_of(value) for value in op.results] != shapes:
        return None  # concatenated over the microbatches
    sizes = tuple(size for shape in shapes for size in shape)
    factors = iter(range(len(sizes)))
    dims = tuple(
        tuple((f,) if sizes[f] != 1 else () for f in itertools.islice(factors, len(shape)))
        for shape in shapes
    )
    return OpRule(dims, dims, sizes, (FactorKind.PASS_THROUGH,) * len(sizes))


def _batched_rule(op: ir.Operation, count: int) -> OpRule:
    """Factor d < `count` is dim d of every operand and result; every other dim is needed whole."""
    sizes = list(shape_of((*op.operands, *op.results)[0])[:count])

    def dims(value: ir.Value) -> tuple[tuple[int, ...], ...]:
        shape = shape_of(value)
        own = range(len(sizes), len(sizes) + len(shape) - count)
        sizes.extend(shape[count:])
        factors = (*range(count), *own)
        return tuple(() if size == 1 else (f,) for f, size in zip(factors, shape, strict=True))

    operands, results = tuple(map(dims, op.operands)), tuple(map(dims, op.results))
    whole = (FactorKind.NEED_REPLICATION,) * (len(sizes) - count)
    return OpRule(operands, results, tuple(sizes), (FactorKind.PASS_THROUGH,) * count + whole)


def _call_rule(call: ir.Operation, facts: CallFacts) -> OpRule:
    """The known factors, outermost in their dims; what else a dim has is needed whole."""
    sizes = list(facts.sizes)

    def dim(size: int, factor: int) -> tuple[int, ...]:
        outer = (factor,) if factor >= 0 and sizes[factor] > 1 else ()
        rest = size // (sizes[factor] if outer else 1)
        if rest == 1:
            return outer
        sizes.append(rest)
        return (*outer, len(sizes) - 1)

    values = [*call.operands, *call.results]
    mappings = tuple(
        tuple(map(dim, shape_of(value), factors))
        for value, factors in zip(values, facts.factors, strict=True)
    )
    whole = (FactorKind.NEED_REPLICATION,) * (len(sizes) - len(facts.sizes))
    kinds = (FactorKind.PASS_THROUGH,) * len(facts.sizes) + whole
    count = len(call.operands)
    return OpRule(mappings[:count], mappings[count:], tuple(sizes), kinds, facts.summed)


def rules_of(module: ir.Operation) -> dict[str, list[OpRule | None]]:
    """For each function of a module, the rule of each of its `planned_ops`.

    An op without a rule (iota, constants, loops, unknown custom calls) gets None.
    Works on a clone: the module itself is left alone.
    """
    clone = module.clone()
    for function in functions(clone):
        _forget_rules(function)
    run_registered(clone, _POPULATE)
    return {symbol(function): _populated_rules(function) for function in functions(clone)}


def function_rules(function: ir.Operation) -> list[OpRule | None]:
    """The rules of one function, whose calls need not be known; see `rules_of`."""
    alone = ir.Module.create()
    clone = function.clone(ip=ir.InsertionPoint(alone.body)).operation
    _forget_rules(clone)
    run_registered(alone.operation, _POPULATE, verify=False)
    return _populated_rules(clone)


def _forget_rules(function: ir.Operation) -> None:
    """Removes rules that stand in the program: JAX writes some of its own on calls of libraries."""
    for op in planned_ops(function):
        if _POPULATED in op.attributes:
            del op.attributes[_POPULATED]


def _populated_rules(function: ir.Operation) -> list[OpRule | None]:
    return [
        parse_rule(str(op.attributes[_POPULATED])) if _POPULATED in op.attributes else own_rule(op)
        for op in planned_ops(function)
    ]


def main_rules(module: ir.Operation) -> tuple[list[OpRule | None], dict[ir.Value, OpRule]]:
    """The rules of the main function: of its top-level ops, and of the ops in control flow by their
    first result."""
    main = main_function(module)
    top, inner = [], {}
    for op, rule in zip(planned_ops(main), rules_of(module)[symbol(main)], strict=True):
        if op.block == body(main):
            top.append(rule)
        elif rule is not None:
            inner[op.results[0]] = rule
    return top, inner

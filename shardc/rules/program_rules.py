"""The sharding rule of every op of a program: Shardy's, or ours where Shardy has none."""

import itertools
from dataclasses import replace

from jax.extend.mlir import ir

from shardc.ir.attributes import ACCUMULATE, call_target
from shardc.ir.calls import CallFacts, facts_of
from shardc.ir.pass_manager import run_registered
from shardc.ir.tensor_types import shape_of
from shardc.ir.user_shardings import CONSTRAINT
from shardc.ir.walk import body, functions, main_function, planned_ops, symbol
from shardc.rules.libraries import num_batch_dims, solved_along
from shardc.rules.op_rule import FactorKind, OpRule, parse_rule

_POPULATED = "sdy.sharding_rule"
_POPULATE = "func.func(sdy-populate-op-sharding-rules)"


def own_rule(op: ir.Operation) -> OpRule | None:
    """Our rule for an op without one in Shardy: identities (result i shares the factors of operand
    i), library calls with leading or solved batch dims, and calls of functions with factors."""
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
    """Factor d < `count` is dim d of every operand and result; all other dims stay whole."""
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
    """The factors of a call, major in their dims; the rest of each dim stays whole."""
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
    """The rules of one function, whose calls need no summaries; see `rules_of`."""
    alone = ir.Module.create()
    clone = function.clone(ip=ir.InsertionPoint(alone.body)).operation
    _forget_rules(clone)
    run_registered(alone.operation, _POPULATE, verify=False)
    return _populated_rules(clone)


def _forget_rules(function: ir.Operation) -> None:
    """Removes existing rules: JAX writes its own on some library calls."""
    for op in planned_ops(function):
        if _POPULATED in op.attributes:
            del op.attributes[_POPULATED]


def _populated_rules(function: ir.Operation) -> list[OpRule | None]:
    return [
        parse_rule(str(op.attributes[_POPULATED])) if _POPULATED in op.attributes else own_rule(op)
        for op in planned_ops(function)
    ]


def main_rules(module: ir.Operation) -> tuple[list[OpRule | None], dict[ir.Value, OpRule]]:
    """The rules of the main function: of its top-level ops, and of ops in control flow by their
    first result."""
    main = main_function(module)
    top, inner = [], {}
    for op, rule in zip(planned_ops(main), rules_of(module)[symbol(main)], strict=True):
        if op.block == body(main):
            top.append(rule)
        elif rule is not None:
            inner[op.results[0]] = rule
    return top, inner

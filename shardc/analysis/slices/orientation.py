"""Which of the two token dims of a square are the queries, and which the keys."""

from collections.abc import Mapping

from jax.extend.mlir import ir

from shardc.analysis.slices.factors import Mapping as Factors
from shardc.analysis.slices.held_parts import Role, State
from shardc.rules.op_rule import OpRule

Pair = tuple[int, int]


def queries_and_keys(
    op: ir.Operation,
    rule: OpRule,
    factors: Pair,
    states: Mapping[ir.Value, State],
    rules: Mapping[ir.Operation, OpRule | None],
) -> bool:
    """Whether the first of two factors of an op is that of the queries.

    The first op behind it that tells them apart decides: one that also uses another square whose
    dims are known, or one that reduces one of the two dims, which is then that of the keys. The
    proof of the order of tokens detects a wrong answer.
    """
    squares: dict[ir.Value, Pair] = {}
    _follow(op, rule, factors, squares)
    behind = False
    for each in op.operation.block.operations:
        user = each.operation
        behind = behind or user == op
        if not behind or user == op:
            continue
        known = rules.get(user)
        if known is None or len(known.operands) != len(user.operands):
            continue
        for position, value in enumerate(user.operands):
            if value not in squares:
                continue
            first, second = (
                known.operands[position][dim][0] if known.operands[position][dim] else -1
                for dim in squares[value]
            )
            answer = _told(user, known, (first, second), states)
            if answer is not None:
                return answer
            _follow(user, known, (first, second), squares)
            break
    return True


def _follow(op: ir.Operation, rule: OpRule, factors: Pair, squares: dict[ir.Value, Pair]) -> None:
    for value, mapping in zip(op.results, rule.results, strict=True):
        first, second = (_dim(mapping, factor) for factor in factors)
        if first is not None and second is not None:
            squares[value] = first, second


def _dim(mapping: Factors, factor: int) -> int | None:
    return next((dim for dim, found in enumerate(mapping) if found == (factor,)), None)


def _told(
    user: ir.Operation, rule: OpRule, factors: Pair, states: Mapping[ir.Value, State]
) -> bool | None:
    for value, mapping in zip(user.operands, rule.operands, strict=True):
        state = states.get(value)
        if state is None or Role.PAST not in state.roles:
            continue
        for dim, role in enumerate(state.roles):
            if role is Role.PAST and mapping[dim] in ((factors[0],), (factors[1],)):
                return mapping[dim] == (factors[1],)
    left = [
        any(factor in found for mapping in rule.results for found in mapping) for factor in factors
    ]
    return left[0] if left[0] != left[1] else None

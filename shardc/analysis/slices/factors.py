"""The factors of an op as rows of tokens: their dims, and whether slices may cut them."""

from collections.abc import Sequence

from jax.extend.mlir import ir

from shardc.analysis.batch.batch_state import FactorCut, Kind, may_cut
from shardc.analysis.slices.held_parts import Role, Roles
from shardc.ir.calls import CALL
from shardc.rules.op_rule import OpRule

# What runs on other parts than even ones is not proved for these.
_WHOLE = {CALL, "stablehlo.convolution", "stablehlo.custom_call", "stablehlo.while"}

Mapping = Sequence[tuple[int, ...]]
FactorRoles = dict[int, Role]


def alone(rule: OpRule, mapping: Mapping, dim: int) -> int | None:
    """The factor of a dim that has only one."""
    return mapping[dim][0] if len(mapping[dim]) == 1 else None


def with_roles(mapping: Mapping, wanted: FactorRoles) -> Roles | None:
    """The rows of a value whose factors have roles; None if a dim has several factors."""
    if any(f in wanted for factors in mapping if len(factors) > 1 for f in factors):
        return None
    return tuple(wanted.get(factors[0]) if factors else None for factors in mapping)


def passes(op: ir.Operation, rule: OpRule, factor: int) -> bool:
    """Whether each row of the results along a factor needs only that row of the operands."""
    return op.name not in _WHOLE and may_cut(op, rule, FactorCut(factor)) is Kind.VARYING


def adds_up(op: ir.Operation, rule: OpRule, factor: int) -> bool:
    """Whether the results are sums over a factor, to which each row contributes separately."""
    return op.name not in _WHOLE and may_cut(op, rule, FactorCut(factor)) is Kind.PARTIAL


def on_rows(
    op: ir.Operation, rule: OpRule | None, result: int, roles: Roles
) -> tuple[Roles, ...] | None:
    """The operand rows from which rows of a result are computed; None if it needs more."""
    if rule is None or len(op.results) != 1 or len(rule.operands) != len(op.operands):
        return None
    wanted: FactorRoles = {}
    for dim, role in enumerate(roles):
        if role is None:
            continue
        factor = alone(rule, rule.results[result], dim)
        if factor is None or not passes(op, rule, factor):
            return None
        wanted[factor] = role
    found = [with_roles(mapping, wanted) for mapping in rule.operands]
    return None if None in found else tuple(roles for roles in found if roles is not None)

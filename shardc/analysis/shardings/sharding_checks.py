"""Whether an op may run on the local parts of its planned shardings."""

import math
from collections.abc import Sequence

from jax.extend.mlir import ir

from shardc.cost.reshard import describe, is_valid
from shardc.ir.constants import MADE_OF_NOTHING, is_zero
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import CONTROL_FLOW
from shardc.plan.layout import Mesh, TensorSharding
from shardc.rules.allowed_factors import BARRIER, COUNTED_ONCE, splittable_factors
from shardc.rules.op_rule import OpRule
from shardc.rules.partial_sums import keeps_partial
from shardc.rules.reducers import reducer


def disagreement(
    op: ir.Operation,
    rule: OpRule | None,
    mesh: Mesh,
    operands: Sequence[TensorSharding],
    results: Sequence[TensorSharding],
    reduce_axes: Sequence[str] = (),
) -> str | None:
    """Why `op` must not run with these shardings, in words that follow "because"; None if it may.

    Checks the planner's invariants independently of its code: each axis splits one factor, in every
    dim that has it; the table of `shardc.rules.allowed_factors` allows it; partial sums arise only
    from reductions and propagate only through linear ops.
    """
    if op.name in MADE_OF_NOTHING:
        return "its values are no partial sums" if results[0].unreduced else None
    if not any(s.axes or s.unreduced for s in (*operands, *results)) and not reduce_axes:
        return None
    if op.name == BARRIER:
        return _identity_disagreement(op, mesh, operands, results, reduce_axes)
    if op.name in CONTROL_FLOW:
        return _control_flow_disagreement(op, mesh, operands, results, reduce_axes)
    if rule is None:
        return "there is no sharding rule for it, so it needs whole operands"
    try:
        on_factor = _axes_of_factors(op, rule, mesh, operands, results)
    except _Disagreement as reason:
        return str(reason)
    reduced = [
        {axis for f, axes in on_factor.items() if rule.is_summed(r, f) for axis in axes}
        for r in range(len(results))
    ]
    if op.name == "stablehlo.reduce" and reducer(op) != "add":
        if set(reduce_axes) != reduced[0]:
            wanted, found = sorted(reduced[0]), sorted(reduce_axes)
            return f"it must all-reduce its result over {wanted}, not {found}"
        reduced = [set() for _ in results]
    elif reduce_axes:
        return f"it must all-reduce its result over [], not {sorted(reduce_axes)}"
    split = {axis for axes in on_factor.values() for axis in axes}
    return _sums_disagreement(op, operands, results, reduced, split)


def _control_flow_disagreement(
    op: ir.Operation,
    mesh: Mesh,
    operands: Sequence[TensorSharding],
    results: Sequence[TensorSharding],
    reduce_axes: Sequence[str],
) -> str | None:
    """A loop carries each value in one sharding; the predicate of a branch is replicated."""
    if op.name == "stablehlo.while":
        return _identity_disagreement(op, mesh, operands, results, reduce_axes)
    if operands[0].axes or operands[0].unreduced or reduce_axes:
        return "every device must take the same branch"
    if any(s.unreduced for s in results):
        return "what a branch gives is no partial sum"
    return _unevenness(op.results, results, mesh)


def _identity_disagreement(
    op: ir.Operation,
    mesh: Mesh,
    operands: Sequence[TensorSharding],
    results: Sequence[TensorSharding],
    reduce_axes: Sequence[str],
) -> str | None:
    if list(operands) != list(results) or reduce_axes:
        return "it passes each operand on as it is"
    return _unevenness(op.operands, operands, mesh)


def _unevenness(
    values: Sequence[ir.Value], shardings: Sequence[TensorSharding], mesh: Mesh
) -> str | None:
    for value, lies in zip(values, shardings, strict=True):
        if not is_valid(lies, mesh, shape_of(value)):
            return f"{describe(lies)} does not split a value of shape {shape_of(value)} evenly"
    return None


class _Disagreement(Exception):
    pass


def _axes_of_factors(
    op: ir.Operation,
    rule: OpRule,
    mesh: Mesh,
    operands: Sequence[TensorSharding],
    results: Sequence[TensorSharding],
) -> dict[int, tuple[str, ...]]:
    tensors = [
        *zip(rule.operands, operands, strict=True),
        *zip(rule.results, results, strict=True),
    ]
    allowed = splittable_factors(op, rule)
    found: dict[int, tuple[str, ...]] = {}
    for mapping, sharding in tensors:
        for factors, axes in zip(mapping, sharding.dims, strict=True):
            if axes and not factors:
                raise _Disagreement(f"axes {list(axes)} split a dim of size 1")
            if axes:
                found[factors[0]] = axes
    for factor, axes in found.items():
        if not allowed[factor]:
            raise _Disagreement(
                f"axes {list(axes)} split a dim that the op needs whole"
                f" ({rule.kinds[factor].value})"
            )
        if rule.sizes[factor] % math.prod(mesh.size(axis) for axis in axes):
            raise _Disagreement(f"{list(axes)} do not divide a dim of {rule.sizes[factor]}")
    if len({axis for axes in found.values() for axis in axes}) != sum(map(len, found.values())):
        raise _Disagreement("an axis splits two of its dims")
    for mapping, sharding in tensors:
        for factors, axes in zip(mapping, sharding.dims, strict=True):
            if axes != tuple(axis for factor in factors for axis in found.get(factor, ())):
                raise _Disagreement("operands and results are split in different ways")
    return found


def _sums_disagreement(
    op: ir.Operation,
    operands: Sequence[TensorSharding],
    results: Sequence[TensorSharding],
    reduced: Sequence[set[str]],
    split: set[str],
) -> str | None:
    """`reduced`: for each result the axes over which it is a partial sum."""
    zero = {i for i, operand in enumerate(op.operands) if is_zero(operand)}
    incoming = {axis for operand in operands for axis in operand.unreduced}
    for axis in sorted(incoming):
        partial = {i for i, operand in enumerate(operands) if axis in operand.unreduced}
        others = {i for i, operand in enumerate(operands) if operand.unreduced} - partial
        if op.name in COUNTED_ONCE:
            zero = set(range(len(operands)))  # whole operands are zeroed on all devices but one
            others = set()
        if axis in split or others or not keeps_partial(op, partial, zero - partial):
            return f"it is not linear in partial sums over '{axis}'"
    if not incoming and is_zero(op.results[0]):
        return None  # zeros are partial sums of zeros
    for result, axes in zip(results, reduced, strict=True):
        expected = incoming | axes
        if set(result.unreduced) != expected:
            return (
                f"its result is a partial sum over {sorted(expected)}, not"
                f" {sorted(result.unreduced)}"
            )
    return None

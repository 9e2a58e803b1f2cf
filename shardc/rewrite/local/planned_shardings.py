"""Writing a function's planned shardings into its attributes."""

from collections.abc import Sequence

from jax.extend.mlir import ir

from shardc.errors import PlanError
from shardc.ir.attributes import (
    GLOBAL_TYPE,
    REDUCE_AXES,
    SHARDING,
    STAGE,
    arg_attrs,
    get_int,
    result_attrs,
    set_arg_attrs,
    set_result_attrs,
    str_array,
)
from shardc.ir.shardings import attrs_on, set_operand_shardings, set_result_shardings
from shardc.ir.walk import body, planned_ops, symbol, terminator
from shardc.plan.decisions import FunctionSharding
from shardc.plan.layout import TensorSharding


def write_shardings(function: ir.Operation, planned: FunctionSharding) -> None:
    """Writes the shardings of a stage function: of its arguments, results and ops.

    Raises:
        PlanError: SHARDC-200, `planned` was made for another function.
    """
    attr_of = attrs_on(f"stage{get_int(function, STAGE) or 0}")
    all_ops = planned_ops(function)
    if len(all_ops) != len(planned.ops):
        raise _mismatch(
            f"@{symbol(function)} has {len(all_ops)} ops and the plan {len(planned.ops)}"
        )
    for op, chosen in zip(all_ops, planned.ops, strict=True):
        if (len(op.operands), len(op.results)) != (len(chosen.operands), len(chosen.results)):
            raise _mismatch(f"'{op.name}' in @{symbol(function)} is not the op that was planned")
        set_operand_shardings(op, chosen.operands, attr_of)
        set_result_shardings(op, chosen.results, attr_of)
        if chosen.reduce_axes:
            op.attributes[REDUCE_AXES] = str_array(chosen.reduce_axes)

    def marked(
        attrs: list[dict[str, ir.Attribute]], shardings: tuple[TensorSharding, ...]
    ) -> list[dict[str, ir.Attribute]]:
        if len(attrs) != len(shardings):
            raise _mismatch(f"@{symbol(function)} takes or gives other values than were planned")
        return [
            {**each, SHARDING: attr_of(sharding)}
            for each, sharding in zip(attrs, shardings, strict=True)
        ]

    set_arg_attrs(function, marked(arg_attrs(function), planned.arguments))
    set_result_attrs(function, marked(result_attrs(function), planned.results))


def _mismatch(message: str) -> PlanError:
    return PlanError(
        message, help="plan again: this plan was made for another version of the program"
    )


def keep_global_types(old: ir.Operation, new: ir.Operation) -> None:
    """Writes the global type on each argument and result."""

    def marked(
        attrs: list[dict[str, ir.Attribute]], values: Sequence[ir.Value]
    ) -> list[dict[str, ir.Attribute]]:
        return [
            {**each, GLOBAL_TYPE: ir.TypeAttr.get(value.type)}
            for each, value in zip(attrs, values, strict=True)
        ]

    set_arg_attrs(new, marked(arg_attrs(old), body(old).arguments))
    set_result_attrs(new, marked(result_attrs(old), terminator(old).operands))

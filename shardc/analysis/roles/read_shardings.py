"""Reading a module's planned shardings as data."""

from jax.extend.mlir import ir

from shardc.errors import PlanError
from shardc.ir.attributes import REDUCE_AXES, SHARDING, arg_attrs, result_attrs
from shardc.ir.shardings import from_attr, operand_shardings, result_shardings
from shardc.ir.walk import planned_ops, symbol, where
from shardc.plan.decisions import FunctionSharding, OpSharding
from shardc.plan.layout import TensorSharding


def function_sharding(function: ir.Operation) -> FunctionSharding:
    """Reads the decisions of shardc-plan-shardings from a function.

    Raises:
        PlanError: SHARDC-201, an op has no shardings.
    """
    found = []
    for op in planned_ops(function):
        operands, results = operand_shardings(op), result_shardings(op)
        if operands is None or results is None:
            raise PlanError(
                f"'{op.name}' in @{symbol(function)} has no shardings",
                where=where(op),
                help="run shardc-plan-shardings first",
                code="SHARDC-201",
            )
        axes: tuple[str, ...] = ()
        if REDUCE_AXES in op.attributes:
            axes = tuple(ir.StringAttr(a).value for a in ir.ArrayAttr(op.attributes[REDUCE_AXES]))
        found.append(OpSharding(tuple(operands), tuple(results), axes))
    return FunctionSharding(
        boundary_shardings(function, arg_attrs(function)),
        boundary_shardings(function, result_attrs(function)),
        tuple(found),
    )


def boundary_shardings(
    function: ir.Operation, attrs: list[dict[str, ir.Attribute]]
) -> tuple[TensorSharding, ...]:
    """The `sdy.sharding` of each argument (or result); PlanError if one is missing."""
    missing = [n for n, each in enumerate(attrs) if SHARDING not in each]
    if missing:
        raise PlanError(
            f"@{symbol(function)}: arguments or results {missing} have no sharding",
            help="run shardc-plan-shardings first",
            code="SHARDC-201",
        )
    return tuple(from_attr(each[SHARDING]) for each in attrs)

"""Keeps the type of a function in step with its body."""

from collections.abc import Sequence

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func

from shardc.ir.walk import body, terminator


def return_values(function: ir.Operation, values: Sequence[ir.Value]) -> None:
    """Lets a function return these values; its type follows by `update_type`."""
    end = terminator(function)
    with ir.InsertionPoint(end), end.location:
        func.ReturnOp(list(values))
    end.erase()


def update_type(function: ir.Operation) -> None:
    """Gives a function the type that follows from its arguments and from what it returns."""
    takes = [argument.type for argument in body(function).arguments]
    gives = [value.type for value in terminator(function).operands]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(takes, gives))

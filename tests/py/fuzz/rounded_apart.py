"""Plans of which every function rounds in its own way.

What is computed twice, in two functions, is split and compiled twice and may have other last bits.
Here it surely has: each function's products and transcendentals are a little larger than they are,
or smaller, by its own factor. Whatever compares a value of one function with its copy of another
gives itself away.
"""

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.ir.tensor_types import dtype_of
from shardc.ir.walk import functions, ops_of, walk
from tests.py.fuzz.plans import Checked, Engines, Plan

STEP = 1e-12  # between the factors of two functions
ROUNDED = {
    f"stablehlo.{name}"
    for name in "dot_general convolution tanh sine cosine exponential log logistic".split()
}


def difference(checked: Checked, plan: Plan, sign: int) -> str:
    """How a plan of a step in float64 differs from the step; "" where it does not.

    Args:
        sign: 1 where later functions round upwards, -1 where they round downwards.
    """
    module = checked.stages(plan)
    with module.context, ir.Location.unknown():
        for n, function in enumerate(functions(module.operation)):
            for op in list(walk(function)):
                if op.name in ROUNDED and dtype_of(op.results[0]) == "float64":
                    _scale(op, 1 + sign * STEP * (1 + n))
    return checked.difference(module, Engines(frugal=False))


def _scale(op: ir.Operation, factor: float) -> None:
    result = op.results[0]
    type_ = ir.RankedTensorType(result.type)
    following = ops_of(op.block)
    with ir.InsertionPoint(following[following.index(op) + 1]):
        number = ir.FloatAttr.get(type_.element_type, factor)
        constant = stablehlo.constant(ir.DenseElementsAttr.get_splat(type_, number))
        scaled = stablehlo.MulOp(result, constant)
    result.replace_all_uses_except(scaled.result, scaled.operation)

"""Signed indices for StableHLO's interpreter, which reads unsigned ones as signed.

It reads the uint8 index 200 as -56, which a dynamic_slice clamps to 0; XLA and the specification
read row 200. So unsigned indices are converted to int64 before indexing ops, clipped to its range.
"""

import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.ir.tensor_types import dtype_name
from shardc.ir.walk import walk

# op: its first index operand, and one past its last; None: all remaining operands
_INDICES = {
    "stablehlo.dynamic_slice": (1, None),
    "stablehlo.dynamic_update_slice": (2, None),
    "stablehlo.gather": (1, 2),
    "stablehlo.dynamic_gather": (1, 2),
}


def sign_indices(function: ir.Operation) -> None:
    """Converts the unsigned indices of every indexing op to int64, in place."""
    for op in list(walk(function)):
        first, end = _scatter_indices(op) or _INDICES.get(op.name, (0, 0))
        for number in range(*slice(first, end).indices(len(op.operands))):
            value = op.operands[number]
            if dtype_name(ir.RankedTensorType(value.type).element_type).startswith("uint"):
                with ir.InsertionPoint(op):
                    op.operands[number] = _signed(value)


def _scatter_indices(op: ir.Operation) -> tuple[int, int] | None:
    if op.name != "stablehlo.scatter":
        return None
    inputs = (len(op.operands) - 1) // 2
    return inputs, inputs + 1


def _signed(value: ir.Value) -> ir.Value:
    type_ = ir.RankedTensorType(value.type)
    if dtype_name(type_.element_type) == "uint64":
        most = np.full(type_.shape, np.iinfo(np.int64).max, np.uint64)
        limit = ir.DenseElementsAttr.get(most, type=type_)
        value = stablehlo.MinOp(value, stablehlo.ConstantOp(limit).result).result
    signed = ir.RankedTensorType.get(type_.shape, ir.IntegerType.get_signless(64))
    return stablehlo.ConvertOp(signed, value).result

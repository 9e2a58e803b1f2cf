"""Running sums over some rows, and the carry from the rows before them."""

from collections.abc import Sequence

import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.ir.tensor_types import shape_of
from shardc.rewrite.local.local_ops import make_local
from shardc.rewrite.microbatches.ops import with_shape
from shardc.rules.reducers import reducer
from shardc.rules.running_sums import Running


def running_sum(op: ir.Operation, operands: Sequence[ir.Value], along: Running) -> ir.Value:
    """The running sum `op` over some rows only, at the current insertion point."""
    shape, dim = list(shape_of(operands[0])), along.dim
    local = make_local(op, operands, [with_shape(op.results[0], shape)])
    window = [shape[dim] if d == dim else 1 for d in range(len(shape))]
    padding = np.zeros((len(shape), 2), np.int64)
    padding[dim, int(along.reverse)] = shape[dim] - 1
    local.attributes["window_dimensions"] = ir.DenseI64ArrayAttr.get(window)
    local.attributes["padding"] = ir.DenseElementsAttr.get(padding)
    return local.results[0]


def added_to_rows(op: ir.Operation, edge: ir.Value, rows: ir.Value) -> ir.Value:
    """`rows`, with the carry `edge` combined into each by the reducer of `op`."""
    name = reducer(op)
    assert name is not None, "a running sum has a plain reducer"
    every = ir.DenseI64ArrayAttr.get(list(range(len(shape_of(rows)))))
    spread = stablehlo.BroadcastInDimOp(rows.type, edge, every).result
    operands = [spread, rows]
    return ir.Operation.create(f"stablehlo.{name}", results=[rows.type], operands=operands).result

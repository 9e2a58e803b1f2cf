"""Arithmetic and memory traffic of StableHLO ops, over whole (unsharded) tensors."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.analysis.program.counted_loop import trip_count
from shardc.analysis.program.op_classes import MOVES, PRODUCTS, WITHOUT_COST
from shardc.ir.attributes import ACCUMULATE, call_target
from shardc.ir.calls import CALL, facts_of
from shardc.ir.tensor_types import num_bytes, num_elements, shape_of
from shardc.ir.walk import walk


class OpCost(NamedTuple):
    """FLOPs (a multiply-add is 2), and bytes that an unfused op reads and writes."""

    flops: int
    bytes_read: int
    bytes_written: int

    def times(self, count: int) -> "OpCost":
        return OpCost(self.flops * count, self.bytes_read * count, self.bytes_written * count)

    def plus(self, other: "OpCost") -> "OpCost":
        return OpCost(*(a + b for a, b in zip(self, other, strict=True)))


ZERO = OpCost(0, 0, 0)

RUNNING_WINDOW = 16  # length of the windows into which XLA splits a running sum


def op_cost(op: ir.Operation) -> OpCost:
    """FLOPs and bytes of one op, its regions included.

    A loop costs its body times the trip count, or once if that is unknown; a case costs its most
    expensive branch. Constants and reshapes are free. An unknown custom call, and a call of a
    function without a summary, have no FLOPs.
    """
    op = op.operation
    if op.name == "stablehlo.while":
        count = trip_count(op)
        inside = [_inside(region) for region in op.regions]
        return inside[0].plus(inside[1]).times(1 if count is None else count)
    if op.name in ("stablehlo.case", "stablehlo.if"):
        return max((_inside(region) for region in op.regions), default=ZERO)
    if op.name in WITHOUT_COST:
        return ZERO
    if (facts := facts_of(op)) is not None:
        return OpCost(*facts.cost[:3])
    return OpCost(_flops(op), *_traffic(op))


def _inside(region: ir.Region) -> OpCost:
    total = ZERO
    for block in region.blocks:
        for op in block.operations:
            total = total.plus(op_cost(op.operation))
    return total


def is_heavy(op: ir.Operation) -> bool:
    """Whether `op` is or contains a matrix product or a convolution."""
    return any(
        each.name in PRODUCTS or (each.name == CALL and heavy_flops(each) > 0)
        for each in (op, *walk(op))
    )


def heavy_flops(op: ir.Operation) -> int:
    """FLOPs of the matrix products and convolutions alone, loops counted as in `op_cost`."""
    op = op.operation
    if op.name in PRODUCTS:
        return op_cost(op).flops
    if op.name == CALL:
        facts = facts_of(op)
        return facts.cost.heavy_flops if facts else 0
    inside = [
        sum(heavy_flops(inner.operation) for block in region.blocks for inner in block.operations)
        for region in op.regions
    ]
    if op.name == "stablehlo.while":
        count = trip_count(op)
        return sum(inside) * (1 if count is None else count)
    if op.name in ("stablehlo.case", "stablehlo.if"):
        return max(inside, default=0)
    return 0


def _flops(op: ir.Operation) -> int:
    if op.name in COUNTERS:
        return COUNTERS[op.name](op)
    if op.name in MOVES:
        return num_elements(op.results[0]) if call_target(op) == ACCUMULATE else 0
    return sum(num_elements(result) for result in op.results)  # elementwise


def _traffic(op: ir.Operation) -> tuple[int, int]:
    """Bytes read and written; partial updates are in place."""
    name = op.name
    results = sum(num_bytes(result) for result in op.results)
    operands = [num_bytes(operand) for operand in op.operands]
    if name in ("stablehlo.slice", "stablehlo.dynamic_slice"):
        return results, results
    if name == "stablehlo.gather":
        return results + operands[1], results
    if name == "stablehlo.dynamic_update_slice":
        return operands[1], operands[1]
    if name == "stablehlo.scatter":
        count = len(op.results)
        updates = sum(operands[count + 1 :])
        return 2 * updates + operands[count], updates
    if call_target(op) == ACCUMULATE:
        return results + operands[0], results
    return sum(operands), results


def _dot(op: ir.Operation) -> int:
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    lhs = shape_of(op.operands[0])
    contracted = math.prod(lhs[dim] for dim in numbers.lhs_contracting_dimensions)
    return 2 * num_elements(op.results[0]) * contracted


def _plain_dot(op: ir.Operation) -> int:
    return 2 * num_elements(op.results[0]) * shape_of(op.operands[0])[-1]


def _convolution(op: ir.Operation) -> int:
    """Counts products with input elements only, not with padding or dilation holes."""
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    lhs, rhs, out = (shape_of(v) for v in (op.operands[0], op.operands[1], op.results[0]))
    spatial = len(numbers.input_spatial_dimensions)
    strides = _ints(op, "window_strides", [1] * spatial)
    lhs_dilation = _ints(op, "lhs_dilation", [1] * spatial)
    rhs_dilation = _ints(op, "rhs_dilation", [1] * spatial)
    padding = np.zeros((spatial, 2), int)
    if "padding" in op.attributes:
        padding = np.array(ir.DenseIntElementsAttr(op.attributes["padding"])).reshape(spatial, 2)
    products = 1
    for i in range(spatial):
        size = lhs[numbers.input_spatial_dimensions[i]]
        window = np.arange(rhs[numbers.kernel_spatial_dimensions[i]]) * rhs_dilation[i]
        places = np.arange(out[numbers.output_spatial_dimensions[i]]) * strides[i] - padding[i, 0]
        touched = places[:, None] + window[None, :]
        real = (touched >= 0) & (touched <= (size - 1) * lhs_dilation[i])
        products *= int((real & (touched % lhs_dilation[i] == 0)).sum())
    out_batch = out[numbers.output_batch_dimension]
    out_features = out[numbers.output_feature_dimension]
    in_features = rhs[numbers.kernel_input_feature_dimension]
    return 2 * products * out_batch * out_features * in_features


def _ints(op: ir.Operation, name: str, default: list[int]) -> list[int]:
    if name not in op.attributes:
        return default
    return [int(i) for i in ir.DenseI64ArrayAttr(op.attributes[name])]


def _body_size(op: ir.Operation, region: int = 0) -> int:
    """FLOPs of a reducer."""
    block = op.regions[region].blocks[0]
    return sum(op_cost(inner.operation).flops for inner in block.operations)


def _reduce(op: ir.Operation) -> int:
    return num_elements(op.operands[0]) * _body_size(op)


def _reduce_window(op: ir.Operation) -> int:
    """As XLA runs it: a running sum is a tree of short windows (reduce-window-rewriter).

    Source: `xla_reduce_window_rewrite_base_length` in XLA's debug options.
    """
    window = _ints(op, "window_dimensions", [])
    padding = np.zeros((len(window), 2), int)
    if "padding" in op.attributes:
        padding = np.array(ir.DenseIntElementsAttr(op.attributes["padding"])).reshape(-1, 2)
    running = [
        size == shape and size - 1 in pads
        for size, shape, pads in zip(window, shape_of(op.operands[0]), padding, strict=True)
    ]
    steps = [
        min(size, RUNNING_WINDOW) if is_running else size
        for size, is_running in zip(window, running, strict=True)
    ]
    return num_elements(op.results[0]) * math.prod(steps) * _body_size(op)


def _select_and_scatter(op: ir.Operation) -> int:
    window = math.prod(_ints(op, "window_dimensions", []))
    return num_elements(op.operands[1]) * (window * _body_size(op, 0) + _body_size(op, 1))


def _scatter(op: ir.Operation) -> int:
    return num_elements(op.operands[len(op.results) + 1]) * _body_size(op)


def _map(op: ir.Operation) -> int:
    return num_elements(op.results[0]) * _body_size(op)


def _sort(op: ir.Operation) -> int:
    shape = shape_of(op.operands[0])
    dim = (
        int(ir.IntegerAttr(op.attributes["dimension"]).value)
        if "dimension" in op.attributes
        else -1
    )
    return num_elements(op.operands[0]) * math.ceil(math.log2(max(2, shape[dim])))


def _fft(op: ir.Operation) -> int:
    """5 n log2 n, the usual count for a complex transform."""
    length = math.prod(_ints(op, "fft_length", []))
    return 5 * num_elements(op.results[0]) * math.ceil(math.log2(max(2, length)))


def _cholesky(op: ir.Operation) -> int:
    return num_elements(op.operands[0]) * shape_of(op.operands[0])[-1] // 3


def _triangular_solve(op: ir.Operation) -> int:
    return num_elements(op.operands[1]) * shape_of(op.operands[0])[-1]


COUNTERS: dict[str, Callable[[ir.Operation], int]] = {
    "stablehlo.dot_general": _dot,
    "stablehlo.dot": _plain_dot,
    "stablehlo.convolution": _convolution,
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.select_and_scatter": _select_and_scatter,
    "stablehlo.scatter": _scatter,
    "stablehlo.map": _map,
    "stablehlo.sort": _sort,
    "stablehlo.fft": _fft,
    "stablehlo.cholesky": _cholesky,
    "stablehlo.triangular_solve": _triangular_solve,
}

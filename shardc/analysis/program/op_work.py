"""The work of an op on one device under each of its strategies, and its time if split evenly."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.analysis.program.counted_loop import trip_count
from shardc.analysis.program.flops import OpCost, op_cost
from shardc.analysis.program.fusion import Traffic, fused_traffic
from shardc.analysis.program.op_classes import PRODUCTS
from shardc.cost.model import CostModel
from shardc.ir.calls import CALL
from shardc.ir.tensor_types import dtype_of, shape_of
from shardc.ir.walk import CONTROL_FLOW, planned_ops
from shardc.plan.layout import Mesh, TensorSharding
from shardc.plan.priced_work import Work


class Split(Protocol):
    """The part of a strategy that determines work: number of shards, and shardings of values."""

    @property
    def num_shards(self) -> int: ...

    @property
    def operands(self) -> tuple[TensorSharding, ...]: ...

    @property
    def results(self) -> tuple[TensorSharding, ...]: ...


def op_works(
    op: ir.Operation,
    cost: OpCost,
    traffic: Traffic,
    strategies: Sequence[Split],
    mesh: Mesh,
) -> list[Work]:
    """The work of one run of `op` under each strategy; equal works are one object.

    Args:
        cost: of the whole op, unfused.
        traffic: its share of the memory traffic of its fused kernel.
    """
    dtype = dtype_of(op.operands[0]) if len(op.operands) else dtype_of(op.results[0])
    num_bytes: float = traffic.num_bytes
    if op.name == CALL:
        num_bytes = cost.bytes_read + cost.bytes_written
    if op.name not in ("stablehlo.dot_general", "stablehlo.convolution"):
        known = {
            n: Work(dtype, cost.flops / n, num_bytes / n, traffic.launches)
            for n in {s.num_shards for s in strategies}
        }
        return [known[s.num_shards] for s in strategies]
    sizes = _dot_sizes if op.name == "stablehlo.dot_general" else _convolution_sizes
    shapes = tuple(shape_of(value) for value in (*op.operands, op.results[0]))
    found: dict[tuple[int, tuple[int, ...]], Work] = {}
    works = []
    for s in strategies:
        local = [
            _local(shape, lies, mesh)
            for shape, lies in zip(shapes, (*s.operands, s.results[0]), strict=True)
        ]
        key = s.num_shards, sizes(op, *local)
        if key not in found:
            n, product = key
            read = sum(map(math.prod, local)) / max(sum(map(math.prod, shapes)), 1)
            found[key] = Work(dtype, cost.flops / n, num_bytes * read, 1.0, product)
        works.append(found[key])
    return works


def _local(shape: Sequence[int], lies: TensorSharding, mesh: Mesh) -> tuple[int, ...]:
    """The local shape on one device."""
    return tuple(size // mesh.num_shards(axes) for size, axes in zip(shape, lies.dims, strict=True))


def _dot_sizes(
    op: ir.Operation, lhs: Sequence[int], rhs: Sequence[int], result: Sequence[int]
) -> tuple[int, ...]:
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    batch = math.prod(lhs[dim] for dim in numbers.lhs_batching_dimensions)
    depth = math.prod(lhs[dim] for dim in numbers.lhs_contracting_dimensions)
    whole = max(batch * depth, 1)
    return batch, math.prod(lhs) // whole, math.prod(rhs) // whole, depth


def _convolution_sizes(
    op: ir.Operation, lhs: Sequence[int], rhs: Sequence[int], result: Sequence[int]
) -> tuple[int, ...]:
    """Sizes of the equivalent matrix product (im2col): output positions, features, window."""
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    columns = rhs[numbers.kernel_output_feature_dimension]
    rows = math.prod(result) // max(result[numbers.output_feature_dimension], 1)
    return 1, rows, columns, math.prod(rhs) // max(columns, 1)


class _Unsplit(NamedTuple):
    num_shards: int
    operands: tuple[TensorSharding, ...]
    results: tuple[TensorSharding, ...]


def unsplit(op: ir.Operation) -> _Unsplit:
    """Only the shardings of products matter; other ops may have values that are no tensors."""
    if op.name not in PRODUCTS:
        return _Unsplit(1, (), ())
    operands, results = (
        tuple(TensorSharding.replicated(len(shape_of(value))) for value in values)
        for values in (op.operands, op.results)
    )
    return _Unsplit(1, operands, results)


class Runs(NamedTuple):
    """An op of a function, or of the regions of its ops.

    Attributes:
        traffic: its share of the memory traffic of its fused kernel.
        outer: the op of the function's block that contains it, or itself.
        times: how often it runs in one call; loops with an open end count once.
    """

    op: ir.Operation
    traffic: Traffic
    outer: ir.Operation
    times: int


def runs_of_ops(function: ir.Operation) -> Iterator[Runs]:
    """All ops of a function but control flow, with those of its regions."""
    inside: dict[ir.Operation, tuple[ir.Operation, int]] = {}  # op of the body, runs of its regions
    for op, traffic in zip(planned_ops(function), fused_traffic(function), strict=True):
        assert op.parent is not None, "an op of a function has a parent"
        outer, count = inside.get(op.parent.operation, (op, 1))
        if op.name in CONTROL_FLOW:
            trips = trip_count(op) if op.name == "stablehlo.while" else 1
            inside[op] = outer, count * (trips or 1)
        else:
            yield Runs(op, traffic, outer, count)


def op_seconds(function: ir.Operation, model: CostModel, devices: int) -> dict[ir.Operation, float]:
    """Seconds of each op of a function, with the ops of its regions, split over some devices."""
    found: dict[ir.Operation, float] = {}
    for op, traffic, outer, times in runs_of_ops(function):
        cost = op_cost(op)
        if not cost.flops and not traffic.num_bytes:
            continue
        (whole,) = op_works(op, cost, traffic, [unsplit(op)], Mesh((), (0,)))
        work = msgspec.structs.replace(
            whole, flops=whole.flops / devices, num_bytes=whole.num_bytes / devices
        )
        found[outer] = found.get(outer, 0.0) + times * model.op_s(work)
    return found

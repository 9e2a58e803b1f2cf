"""Large values that every device of a stage computes and holds whole."""

from collections.abc import Iterator
from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.program.flops import is_heavy, op_cost
from shardc.ir.attributes import NUM_MICROBATCHES, STAGE, function_kind, get_int
from shardc.ir.shardings import meshes, result_shardings
from shardc.ir.tensor_types import dtype_of, num_bytes, shape_of
from shardc.ir.walk import CONTROL_FLOW, functions, planned_ops, terminator, where
from shardc.plan.function_kind import FunctionKind
from shardc.plan.priced_work import Work

_KINDS = (FunctionKind.FORWARD, FunctionKind.BACKWARD)


@dataclass(frozen=True)
class ReplicatedValue:
    """Equal results of ops from one source position.

    Attributes:
        count: how many there are in a call.
        num_bytes: of one.
        work: of making one.
        calls: of the function, per step.
    """

    op: str
    stage: int
    place: str
    shape: tuple[int, ...]
    dtype: str
    count: int
    num_bytes: int
    work: Work
    calls: int


def replicated_values(sharded: ir.Operation, least_bytes: int) -> Iterator[ReplicatedValue]:
    """Values of the forward and backward pass that no axis of a stage's mesh splits.

    Only those that are surely in memory: results of products and convolutions, and values that one
    function passes to another. Partial sums are not meant: each device holds another part.

    Args:
        sharded: stage functions with shardings.
        least_bytes: of a value.
    """
    placed = meshes(sharded)
    microbatches = get_int(sharded, NUM_MICROBATCHES) or 1
    for function in functions(sharded):
        kind, stage = function_kind(function), get_int(function, STAGE) or 0
        if kind not in _KINDS or len(placed[f"stage{stage}"].device_ids) == 1:
            continue
        passed = set(terminator(function).operands)
        found: dict[tuple[str, str, tuple[int, ...], str], list[ir.Operation]] = {}
        for op in planned_ops(function):
            if op.name in CONTROL_FLOW or len(op.results) != 1 or not len(op.operands):
                continue
            value, shardings = op.results[0], result_shardings(op)
            if not shardings or shardings[0].axes or shardings[0].unreduced:
                continue
            if num_bytes(value) < max(least_bytes, 1):
                continue
            if is_heavy(op) or value in passed:
                key = op.name, where(op), shape_of(value), dtype_of(value)
                found.setdefault(key, []).append(op)
        for (name, place, shape, dtype), own in found.items():
            cost = op_cost(own[0])
            yield ReplicatedValue(
                name,
                stage,
                place,
                shape,
                dtype,
                len(own),
                num_bytes(own[0].results[0]),
                Work(dtype, cost.flops, cost.bytes_read + cost.bytes_written, 1),
                microbatches if kind.per_microbatch else 1,
            )

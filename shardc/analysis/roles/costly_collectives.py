"""Collectives of stage programs with hidden costs: in loops, and after upcasts."""

from collections.abc import Iterator
from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.program.counted_loop import trip_count
from shardc.ir.attributes import NUM_MICROBATCHES, STAGE, function_kind, get_int
from shardc.ir.tensor_types import dtype_of, itemsize, num_bytes
from shardc.ir.walk import defining_op, functions, walk, where

COLLECTIVES = frozenset(
    "stablehlo.all_reduce stablehlo.all_gather stablehlo.all_to_all stablehlo.reduce_scatter"
    " stablehlo.collective_permute".split()
)
_MOVES = COLLECTIVES - {"stablehlo.all_reduce", "stablehlo.reduce_scatter"}  # sums may be wider


@dataclass(frozen=True)
class CostlyCollective:
    """One collective.

    Attributes:
        loops: runs per call, by the trip counts of enclosing loops; 1 outside of loops.
        narrow: element type before an upcast of its operand; "" without an upcast.
        wasted_bytes: avoidable bytes per step: those of all runs but the first, or the upcast's.
        times: runs per step.
    """

    op: str
    stage: int
    place: str
    loops: int
    narrow: str
    wasted_bytes: int
    times: int


def costly_collectives(local: ir.Operation) -> Iterator[CostlyCollective]:
    """The collectives of a local module that are in a loop or send an upcast value.

    In a loop all runs but the first count as waste; whether the collective can be hoisted is left
    to the reader.
    """
    count = get_int(local, NUM_MICROBATCHES) or 1
    for function in functions(local):
        kind = function_kind(function)
        calls = count if kind is not None and kind.per_microbatch else 1
        for op in walk(function):
            if op.name not in COLLECTIVES:
                continue
            loops = _runs(op, function)
            sent = sum(map(num_bytes, op.operands))
            stage = get_int(function, STAGE) or 0
            if loops > 1:
                wasted = sent * (loops - 1) * calls
                yield CostlyCollective(op.name, stage, where(op), loops, "", wasted, loops * calls)
            maker = defining_op(op.operands[0])
            if op.name in _MOVES and maker is not None and maker.name == "stablehlo.convert":
                narrow = dtype_of(maker.operands[0])
                less = itemsize(narrow) / itemsize(dtype_of(op.operands[0]))
                if less < 1:
                    wasted = int(sent * (1 - less)) * loops * calls
                    yield CostlyCollective(
                        op.name, stage, where(op), loops, narrow, wasted, loops * calls
                    )


def _runs(op: ir.Operation, function: ir.Operation) -> int:
    """Runs of an op per call; an enclosing loop with unknown trip count counts as 2."""
    runs, parent = 1, op.parent
    while parent is not None and parent.operation != function:
        if parent.operation.name == "stablehlo.while":
            runs *= trip_count(parent.operation) or 2
        parent = parent.operation.parent
    return runs

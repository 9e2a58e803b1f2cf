"""Unrolls loops around collectives for StableHLO's interpreter.

The interpreter caches the result of a collective by channel: the second run returns the first
result. So every collective must occur in the program once, on its own channel.
"""

from math import prod

from jax.extend.mlir import ir

from shardc.analysis.program.counted_loop import trip_count
from shardc.analysis.program.op_classes import COLLECTIVES
from shardc.ir.walk import walk
from shardc.rewrite.loops.unroll import unroll

MOST_COPIES = 64  # of a collective
_LOOP = "stablehlo.while"
_CHANNEL = "channel_handle"


def repeats_unknown(function: ir.Operation) -> bool:
    """Whether a collective is in loops that cannot be unrolled: too many iterations, or an
    unknown number."""
    return any(
        op.name in COLLECTIVES and not 1 <= _copies(op, function) <= MOST_COPIES
        for op in walk(function)
    )


def _copies(op: ir.Operation, function: ir.Operation) -> int:
    """How often an op runs; 0 if unknown."""
    counts = []
    above = op.parent
    while above is not None and above.operation != function:
        if above.operation.name == _LOOP:
            counts.append(trip_count(above.operation) or 0)
        above = above.operation.parent
    return prod(counts)


def write_out(function: ir.Operation) -> None:
    """Unrolls the loops around collectives, and gives each collective its own channel."""
    while (loop := _outermost(function)) is not None:
        count = trip_count(loop)
        assert count is not None, "repeats_unknown comes first"
        unroll(loop, count)
    channel = 0
    for op in walk(function):
        if op.name in COLLECTIVES:
            channel += 1
            op.attributes[_CHANNEL] = ir.Attribute.parse(
                f"#stablehlo.channel_handle<handle = {channel}, type = 1>"
            )


def _outermost(function: ir.Operation) -> ir.Operation | None:
    for op in walk(function):
        if op.name == _LOOP and any(inner.name in COLLECTIVES for inner in walk(op)):
            return op
    return None

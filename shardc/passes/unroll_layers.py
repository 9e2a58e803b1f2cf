"""Write the loops over layers of stage functions out, so that each layer is cut by itself."""

from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.program.counted_loop import trip_count
from shardc.analysis.slices.stage_values import StageValues
from shardc.analysis.slices.token_dims import recurrences
from shardc.ir.attributes import function_kind
from shardc.ir.pass_manager import Pass
from shardc.ir.walk import functions, ops, ops_of
from shardc.rewrite.loops.unroll import unroll

LOOP = "stablehlo.while"


@dataclass(frozen=True)
class UnrollLayers(Pass):
    """Replaces each loop of a function of a microbatch by copies of its body.

    For schedules with token slices: a slice's attention reads the keys and values that earlier
    slices made in the same layer, which inside a loop have no name. The numbers do not change. A
    loop without a constant trip count, or that would become too long, stays, and so does one over
    the tokens, of which a slice runs the iterations of its own. A second run changes nothing.

    Options:
        most: ops that a loop may become.
    """

    name = "shardc-unroll-layers"
    never_refuses = "a loop that cannot be written out is left alone"

    most: int = 20_000

    def apply(self, module: ir.Operation) -> None:
        kept = recurrences(StageValues(module))
        for function in functions(module):
            kind = function_kind(function)
            if kind is None or not kind.per_microbatch:
                continue
            while (found := self._next(function, kept)) is not None:
                unroll(*found)

    def _next(
        self, function: ir.Operation, kept: set[ir.Operation]
    ) -> tuple[ir.Operation, int] | None:
        """A loop that may be written out, and its trip count."""
        for op in ops(function):
            if op.name == LOOP and op not in kept and (trips := trip_count(op)) is not None:
                size = _size(op)
                if size is not None and size <= self.most:
                    return op, trips
        return None


def _size(op: ir.Operation) -> int | None:
    """How many ops an op is when the loops in it are written out; None where that is unknown."""
    if op.name != LOOP:
        return 1
    trips = trip_count(op)
    inner = [_size(each) for each in ops_of(op.regions[1].blocks[0])[:-1]]
    if trips is None or None in inner:
        return None
    return trips * sum(size for size in inner if size is not None)

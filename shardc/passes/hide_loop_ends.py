"""Keep XLA from miscounting loops."""

from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.program.counted_loop import trip_count
from shardc.ir.pass_manager import Pass
from shardc.ir.walk import all_functions, block_terminator, defining_op, walk
from shardc.rules.allowed_factors import BARRIER


@dataclass(frozen=True)
class HideLoopEnds(Pass):
    """Puts a barrier after the exit comparison of a loop whose counter is unsigned or wraps around.

    XLA (as of jaxlib 0.12.0) computes the trip count of a loop with collectives as if the counter
    were signed and never wrapped: `i > 0; i -= 1` over 8 unsigned bits, from 7, runs once, and
    `i >= 0; i += 1` not at all. It does not look through a barrier. Loops with signed counters that
    are known to reach their bound are left alone. A second run changes nothing.

        %more = stablehlo.compare GT, %i, %zero, UNSIGNED
        stablehlo.return %more
    becomes
        %more = stablehlo.compare GT, %i, %zero, UNSIGNED
        %end = stablehlo.optimization_barrier %more
        stablehlo.return %end
    """

    name = "shardc-hide-loop-ends"
    never_refuses = "a barrier is valid behind any comparison"

    def apply(self, module: ir.Operation) -> None:
        for function in all_functions(module):
            for op in list(walk(function)):
                if op.name == "stablehlo.while" and _may_be_miscounted(op):
                    end = block_terminator(op.regions[0].blocks[0])
                    with ir.InsertionPoint(end), end.location:
                        hidden = ir.Operation.create(
                            BARRIER,
                            results=[end.operands[0].type],
                            operands=[end.operands[0]],
                        )
                    end.operands[0] = hidden.results[0]


def _may_be_miscounted(loop: ir.Operation) -> bool:
    compare = defining_op(block_terminator(loop.regions[0].blocks[0]).operands[0])
    if compare is None or compare.name != "stablehlo.compare":
        return False
    element = ir.RankedTensorType(compare.operands[0].type).element_type
    if not isinstance(element, ir.IntegerType):
        return False
    return element.is_unsigned or trip_count(loop) is None

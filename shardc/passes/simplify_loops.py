"""Take out of loops what they carry around unchanged, or for nobody."""

from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.ir.pass_manager import Pass
from shardc.ir.walk import all_functions, walk
from shardc.rewrite.loops.carried_values import drop_unchanged, drop_unused


@dataclass(frozen=True)
class SimplifyLoops(Pass):
    """Removes what every round of a `stablehlo.while` hands on as it got it, and what is computed
    for nobody.

    The loop then uses the value from outside, of which later passes can tell more than of one that
    a loop carries: that it is a constant, an iota, or the same for all microbatches. Loops with
    shardings of their own stay as they are. A second run changes nothing.
    """

    name = "shardc-simplify-loops"
    never_refuses = "a loop that changes all that it carries is left alone"

    def apply(self, module: ir.Operation) -> None:
        for function in all_functions(module):
            for op in reversed(list(walk(function))):  # inner loops first
                if op.name == "stablehlo.while":
                    drop_unchanged(op)
            drop_unused(function)

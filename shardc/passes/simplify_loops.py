"""Remove loop-invariant and dead values from the values that loops carry."""

from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.ir.pass_manager import Pass
from shardc.ir.walk import all_functions, walk
from shardc.rewrite.loops.carried_values import drop_unchanged, drop_unused


@dataclass(frozen=True)
class SimplifyLoops(Pass):
    """Removes loop-invariant carried values of a `stablehlo.while`, and dead code.

    The loop then captures the value from outside, about which later passes know more than about a
    carried value: that it is a constant, an iota, or the same in every microbatch. Loops with
    shardings of their own are left alone. A second run changes nothing.
    """

    name = "shardc-simplify-loops"
    never_refuses = "a loop that changes all that it carries is left alone"

    def apply(self, module: ir.Operation) -> None:
        for function in all_functions(module):
            for op in reversed(list(walk(function))):  # inner loops first
                if op.name == "stablehlo.while":
                    drop_unchanged(op)
            drop_unused(function)

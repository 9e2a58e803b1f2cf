"""Split loops over layers at sums over the whole batch (loop fission)."""

from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.batch.batch_split import batch_analysis
from shardc.analysis.batch.waiting_sums import waiting_sums
from shardc.ir.attributes import FISSIONS, get_int, int_attr
from shardc.ir.pass_manager import Pass
from shardc.ir.walk import main_function, ops
from shardc.rewrite.loops.carried_values import drop_unused
from shardc.rewrite.loops.fission import fission

MOST_LOOPS = 16  # maximum number of loops to examine; each takes an analysis of the whole step


@dataclass(frozen=True)
class FissionLoops(Pass):
    """Splits a loop whose iterations need sums over the whole batch into two (loop fission).

    The load of a layer's experts is such a sum: a microbatch's partial sum cannot stay partial
    where it is multiplied by another. The first loop computes everything that does not depend on
    such sums and stashes them; the second computes the rest. Values that both need are
    rematerialized. `shardc-split-microbatches` can then accumulate the stashed sums between the two
    loops, or in an earlier sweep if heavy work waits for them.

    A step that can already be cut into microbatches is left alone, and so is a loop whose later
    iterations depend on these sums (batch normalisation in each layer).

    Attributes:
        batch_args: positions of the batch arguments; empty: found by analysis.
        batch_dims: the batch dim of each of `batch_args`; empty: found by analysis.
    """

    name = "shardc-fission-loops"
    never_refuses = "a loop whose iterations wait for each other is left alone"
    batch_args: tuple[int, ...] = ()
    batch_dims: tuple[int, ...] = ()

    def apply(self, module: ir.Operation) -> None:
        function = main_function(module)
        if not any(op.name == "stablehlo.while" for op in ops(function)):
            return
        done = get_int(module, FISSIONS) or 0
        for number in range(done + 1, MOST_LOOPS + 1):
            facts = batch_analysis(module, self.batch_args or None, self.batch_dims or None)
            if facts.flow is None or facts.obstacle is None:
                return
            found = waiting_sums(facts.flow)
            if found is None:
                return
            fission(found.loop.loop, found.loop.counted, found.sums, found.late)
            drop_unused(function)
            module.attributes[FISSIONS] = int_attr(number)

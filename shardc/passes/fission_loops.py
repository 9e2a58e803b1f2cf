"""Take out of loops over layers what waits for sums over the whole batch."""

from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.batch.batch_split import batch_analysis
from shardc.analysis.batch.waiting_sums import waiting_sums
from shardc.ir.attributes import FISSIONS, get_int, int_attr
from shardc.ir.pass_manager import Pass
from shardc.ir.walk import main_function, ops
from shardc.rewrite.loops.carried_values import drop_unused
from shardc.rewrite.loops.fission import fission

MOST_LOOPS = 16  # that are looked at; each takes an analysis of the whole step


@dataclass(frozen=True)
class FissionLoops(Pass):
    """Makes two loops of one whose iterations need sums over the whole batch (loop fission).

    The load of the experts of a layer is such a sum: a loop over layers cannot go on with a
    microbatch's share of it where it is multiplied by another. The first of the two loops makes
    all that does not wait for such sums, and a stack of them; the second, what does. What both
    need, both compute. Then microbatches can add the stack up between the two, or in an earlier
    run of them where heavy work waits for it, as `shardc-split-microbatches` does.

    A step that can be cut into microbatches as it is is left alone, and so is a loop whose sums
    decide what its next iterations get (batch normalisation in each layer).

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

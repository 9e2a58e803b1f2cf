"""Join the pieces into which a program's own loop takes the batch."""

from collections.abc import Iterator
from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.batch.batch_split import batch_analysis
from shardc.analysis.batch.microbatch import BatchFlow
from shardc.analysis.batch.strip_mining import StripMining
from shardc.ir.attributes import JOINED, ORIGIN, get_int, int_attr
from shardc.ir.pass_manager import Pass
from shardc.ir.walk import defining_op, main_function, ops
from shardc.rewrite.loops.carried_values import drop_unused
from shardc.rewrite.loops.join_pieces import join_pieces
from shardc.rewrite.loops.joined_pieces import JoinedPieces, joined_pieces

MOST_LOOPS = 16  # maximum number of loops to join; each takes an analysis of the whole step


@dataclass(frozen=True)
class JoinPieces(Pass):
    """Replaces loops over pieces of the batch by one run of their bodies on all rows.

    A step that accumulates gradients, or computes its loss block by block, takes the batch apart
    by itself, and the microbatches can only share out its iterations. Where their number does not
    divide these, the rows of all pieces are joined, and `shardc-split-microbatches` takes them
    apart again. What an iteration adds to a sum is then added by all rows at once: results differ
    by the order of additions only.

    A loop is left alone if its iterations are not linear in sums over their rows (a mean over the
    tokens that a mask leaves, batch normalisation), or use their number for more than finding their
    rows (random numbers of their own).

    Attributes:
        microbatches: loops whose iterations it divides are left alone; 0: none are.
        batch_args: positions of the batch arguments; empty: found by analysis.
        batch_dims: the batch dim of each of `batch_args`; empty: found by analysis.
    """

    name = "shardc-join-pieces"
    never_refuses = "a loop whose pieces cannot be joined is left alone"
    microbatches: int = 0
    batch_args: tuple[int, ...] = ()
    batch_dims: tuple[int, ...] = ()

    def apply(self, module: ir.Operation) -> None:
        function = main_function(module)
        if not any(op.name == "stablehlo.while" for op in ops(function)):
            return
        done = get_int(module, JOINED) or 0
        for number in range(done + 1, MOST_LOOPS + 1):
            facts = batch_analysis(module, self.batch_args or None, self.batch_dims or None)
            if facts.flow is None or facts.obstacle is not None:
                return
            found = next(_joinable(facts.flow, self.microbatches), None)
            if found is None:
                return
            _join(found, function)
            drop_unused(function)
            module.attributes[JOINED] = int_attr(number)


def has_joined(module: ir.Operation) -> bool:
    """Whether the pass has joined the pieces of a loop."""
    return JOINED in module.attributes


def _join(found: JoinedPieces, function: ir.Operation) -> None:
    """Joins the pieces; the first op in place of a loop that has an origin takes it over."""
    if ORIGIN not in found.loop.attributes:
        join_pieces(found)
        return
    origin, position = found.loop.attributes[ORIGIN], ops(function).index(found.loop)
    join_pieces(found)
    ops(function)[position].attributes[ORIGIN] = origin


def _joinable(flow: BatchFlow, microbatches: int) -> Iterator[JoinedPieces]:
    """The loops that these microbatches cannot share out, and whose pieces can be joined."""
    for loop, mining in _strip_mined(flow):
        if not microbatches or mining.counted.trips % microbatches:
            found = joined_pieces(loop, mining, flow.program.inner_rules)
            if found is not None:
                yield found


def _strip_mined(flow: BatchFlow) -> Iterator[tuple[ir.Operation, StripMining]]:
    for inside in flow.loops.values():
        for result, mining in inside.strip_mined.items():
            loop = defining_op(result)
            assert loop is not None, "a loop has results"
            yield loop, mining

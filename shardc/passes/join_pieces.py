"""Join the pieces in which a program's own loop processes the batch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.batch.batch_split import batch_analysis
from shardc.analysis.batch.microbatch import BatchFlow
from shardc.analysis.batch.strip_mining import StripMining
from shardc.analysis.program.arguments import first_batch, first_batch_parts
from shardc.analysis.program.counted_loop import trip_count
from shardc.ir.attributes import JOINED, ORIGIN, get_int, int_attr
from shardc.ir.pass_manager import Pass
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import body, defining_op, main_function, ops, ops_of
from shardc.rewrite.loops.carried_values import drop_unused
from shardc.rewrite.loops.divide_pieces import divide_pieces, most_parts
from shardc.rewrite.loops.join_pieces import join_pieces
from shardc.rewrite.loops.joined_pieces import joined_pieces

MOST_LOOPS = 16  # maximum number of loops to join; each takes an analysis of the whole step


@dataclass(frozen=True)
class JoinPieces(Pass):
    """Replaces loops over pieces of the batch by one run of their bodies on all rows.

    A step that accumulates gradients, or computes its loss block by block, takes the batch apart
    by itself, and the microbatches can only share out its iterations. Where their number does not
    divide these, the rows of all pieces are joined, and `shardc-split-microbatches` takes them
    apart again. What an iteration adds to a sum is then added by all rows at once: results differ
    by the order of additions only.

    Inside another loop, the pieces are divided instead: the loop gets as many iterations as there
    are microbatches.

    A loop is left alone if its iterations are not linear in sums over their rows (a mean over the
    tokens that a mask leaves, batch normalisation), or use their number for more than finding their
    rows (random numbers of their own).

    A pipeline has the pieces of a loop joined that accumulates gradients: its stages are parts of
    the body.

    Attributes:
        microbatches: loops whose iterations it divides are left alone; 0: none are.
        batch_args: positions of the batch arguments; empty: found by analysis.
        batch_dims: the batch dim of each of `batch_args`; empty: found by analysis.
        heaviest: only a loop with most of the work, on pieces of the batch as the step receives it.
    """

    name = "shardc-join-pieces"
    never_refuses = "a loop whose pieces cannot be joined is left alone"
    microbatches: int = 0
    batch_args: tuple[int, ...] = ()
    batch_dims: tuple[int, ...] = ()
    heaviest: bool = False

    def apply(self, module: ir.Operation) -> None:
        function = main_function(module)
        if _all_rows(function, [op for op in ops(function) if op.name == "stablehlo.while"]):
            return
        done = get_int(module, JOINED) or 0
        for number in range(done + 1, MOST_LOOPS + 1):
            facts = batch_analysis(module, self.batch_args or None, self.batch_dims or None)
            if facts.flow is None or facts.obstacle is not None:
                return
            flow = facts.flow
            loops = _heaviest(flow) if self.heaviest else _loops(flow)
            if not any(_mend(*each, flow, self.microbatches) for each in loops):
                return
            drop_unused(function)
            module.attributes[JOINED] = int_attr(number)


def has_joined(module: ir.Operation) -> bool:
    """Whether the pass has joined the pieces of a loop."""
    return JOINED in module.attributes


def _all_rows(function: ir.Operation, loops: Sequence[ir.Operation]) -> bool:
    """Whether none of these loops processes the batch in pieces, according to its marks."""
    arguments, parts = body(function).arguments, first_batch_parts(function)
    whole = [shape_of(arguments[a])[d] == parts for a, d in first_batch(function).items()]
    return not loops or (any(whole) and all(trip_count(loop) != parts for loop in loops))


def _mend(loop: ir.Operation, mining: StripMining, flow: BatchFlow, microbatches: int) -> bool:
    """Joins or divides the pieces of a loop whose iterations these microbatches cannot distribute,
    if possible; returns whether it did."""
    trips = mining.counted.trips
    if microbatches and trips % microbatches == 0:
        return False
    found = joined_pieces(loop, mining, flow.program.inner_rules)
    if found is None:
        return False
    if loop.parent is not None and loop.parent.name != "func.func":
        # Another loop would round its sum, and then has to wait for it.
        most = most_parts(found)
        parts = microbatches // trips if microbatches else most
        fits = parts > 1 and most % parts == 0 and microbatches in (0, trips * parts)
        if fits:
            divide_pieces(found, parts)
        return fits
    origin, block = loop.attributes.get(ORIGIN, None), loop.block
    position = ops_of(block).index(loop)
    join_pieces(found)
    if origin is not None:  # the first op that replaces the loop inherits it
        ops_of(block)[position].attributes[ORIGIN] = origin
    return True


def _loops(flow: BatchFlow) -> Iterator[tuple[ir.Operation, StripMining]]:
    """The loops over pieces of the batch, nested ones included."""
    for inside in flow.loops.values():
        for result, mining in inside.strip_mined.items():
            loop = defining_op(result)
            assert loop is not None, "a loop has results"
            yield loop, mining


def _heaviest(flow: BatchFlow) -> Iterator[tuple[ir.Operation, StripMining]]:
    """The loop over pieces of the batch with over half of the FLOPs and no heavy work before it."""
    graph, heavy = flow.program.graph, flow.program.heavy_flops
    for i, inside in flow.loops.items():
        mining = inside.strip_mining_of(graph.ops[i])
        fresh = not any(flow.behind_heavy[u] for u in graph.uses[i] if flow.states[u].varies)
        if mining and fresh and 2 * heavy[i] > sum(heavy):
            yield graph.ops[i], mining

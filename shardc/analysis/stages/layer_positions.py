"""The layers that pipeline stages consist of."""

from collections.abc import Sequence

from jax.extend.mlir import ir

from shardc.analysis.loops.whole_loops import whole_loops
from shardc.analysis.program.arguments import state_aliases
from shardc.analysis.program.def_use import dataflow, step_facts
from shardc.analysis.stages.cloned_ops import cloneable_ops
from shardc.analysis.stages.forward_backward import forward_ops
from shardc.analysis.stages.stage_cuts import (
    balanced_cuts,
    count_heavy_ops,
    crossing_values,
    layer_starts,
)
from shardc.analysis.stages.stage_refusal import StageRefusal, nothing_to_cut, too_few_layers
from shardc.analysis.stages.stage_work import work_of_forward_ops
from shardc.ir.attributes import NUM_MICROBATCHES, get_int
from shardc.ir.walk import main_function

MOST_LAYERS = 64  # maximum number of layers between loops
FEW_LAYERS = 8  # number of layers to aim for at least; Alpa used 6 to 16
HEAVY_PER_LAYER = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # products, tried in this order


def layer_positions(
    split_module: ir.Operation, *, exactly: int | None = None, at_least: int = 1
) -> tuple[int, ...] | StageRefusal:
    """Position of the first forward op of each layer in a split @main, or why it has too few.

    Args:
        exactly: number of layers, of equal FLOPs; None: as many as possible (up to `MOST_LAYERS`)
            without more bytes crossing any cut than with `FEW_LAYERS`.
        at_least: minimum number of layers.
    """
    main = main_function(split_module)
    flow = dataflow(main)
    facts = step_facts(main, flow)
    aliases = state_aliases(main)
    forward = forward_ops(flow, facts, set(aliases.values()))
    if forward is None:
        return nothing_to_cut(
            "no result tells where the forward pass ends, so there is nothing to cut into stages",
            "return the loss from the step, or use stages=1",
        )
    order = sorted(forward - cloneable_ops(flow, facts, set(aliases)))
    if not order and count_heavy_ops(flow, range(len(flow.ops))):
        return nothing_to_cut(
            "the step computes gradients and no value of the forward pass, so there is nothing to"
            " cut into stages",
            "return the loss, too (jax.value_and_grad), or use stages=1",
        )
    if not order:
        return nothing_to_cut(
            "the program computes nothing that could be cut into stages", "use stages=1"
        )
    if exactly is not None:
        count = get_int(split_module, NUM_MICROBATCHES) or 1
        work = work_of_forward_ops(flow, facts, forward, aliases, order, count)
        cuts = balanced_cuts(flow, order, exactly, work)
        return cuts if isinstance(cuts, StageRefusal) else (order[0], *cuts)
    heavy = count_heavy_ops(flow, order)
    if at_least > max(heavy, 1):
        return too_few_layers(at_least, heavy, whole_loops(flow.ops, order))
    few = layer_starts(flow, order, max(FEW_LAYERS, at_least))
    place = {op: index for index, op in enumerate(order)}
    crossing = [0] * (len(order) + 1)  # bytes that cross a cut before each op
    for value in crossing_values(flow, order):
        crossing[value.producer + 1] += value.num_bytes
        crossing[max(value.consumers) + 1] -= value.num_bytes
    for index in range(1, len(crossing)):
        crossing[index] += crossing[index - 1]

    def most_bytes(starts: Sequence[int]) -> int:
        return max((crossing[place[start]] for start in starts[1:]), default=0)

    for share in HEAVY_PER_LAYER:
        if len(few) < heavy // share <= MOST_LAYERS:
            many = layer_starts(flow, order, heavy // share)
            if most_bytes(many) <= most_bytes(few):
                return tuple(many)
    return tuple(few)

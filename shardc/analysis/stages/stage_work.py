"""The work of forward ops, their backward ops and updates included."""

from bisect import bisect_right
from collections.abc import Sequence

from shardc.analysis.program.def_use import Dataflow, StepFacts
from shardc.analysis.program.flops import op_cost
from shardc.analysis.stages.stage_assignment import assign_stages
from shardc.analysis.stages.stage_cuts import count_heavy_ops, layer_starts
from shardc.plan.function_kind import Phase

MOST_PARTS = 64  # maximum number of parts, as many as a pipeline may need


def work_of_forward_ops(
    flow: Dataflow,
    facts: StepFacts,
    forward: set[int],
    aliases: dict[int, int],
    order: Sequence[int],
    num_microbatches: int,
) -> list[float]:
    """FLOPs per step of each op of `order`, with its share of the ops that follow it to its stage.

    The backward ops and updates of a layer are attributed to its forward ops, in proportion to
    their FLOPs. So a layer that the backward pass recomputes counts more, and so does a large table
    with few used rows, because all rows are updated.

    Args:
        order: positions of the forward ops that are not cloned, ascending.
    """
    repeats = [num_microbatches if phase is Phase.BODY else 1 for phase in facts.phase]
    flops = [op_cost(op).flops * n for op, n in zip(flow.ops, repeats, strict=True)]
    if not count_heavy_ops(flow, order):
        return [float(flops[i]) for i in order]
    starts = layer_starts(flow, order, MOST_PARTS)
    assigned = assign_stages(flow, facts, forward, aliases, starts[1:])
    layer = {i: bisect_right(starts, i) - 1 for i in order}
    own, all_work = [0.0] * len(starts), [0.0] * len(starts)
    for i in order:
        own[layer[i]] += flops[i]
    for i, stage in enumerate(assigned.stage):
        if stage >= 0:
            all_work[stage] += flops[i]
    return [flops[i] * all_work[layer[i]] / max(own[layer[i]], 1.0) for i in order]

"""Which partial sums of a step are accumulated over the microbatches, and where."""

from shardc.analysis.batch.batch_state import LATE
from shardc.analysis.batch.microbatch import BatchFlow, Obstacle
from shardc.analysis.batch.step_program import Program
from shardc.analysis.program.value_graph import ARGUMENT, ValueGraph

# Microbatches that need more sweeps, or more than this multiple of the step's FLOPs, are refused.
MAX_SWEEPS, MAX_WORK = 5, 4


def analyse(program: Program, batch_args: dict[int, int]) -> BatchFlow:
    """Finds what must be accumulated if the given dims of the given arguments are the batch.

    Heavy ops may wait for sums that light ops compute from the batch (of a mask, say), before the
    microbatches. They may also wait for sums that heavy ops compute; an earlier sweep over the
    microbatches accumulates these, and may itself wait for a sweep before it.
    """
    flow = BatchFlow(program, batch_args)
    _settle(flow)
    while flow.blocked:
        waited_for = set(_frontier(flow, flow.blocked)) - flow.awaited
        early = {v for v in waited_for if not flow.behind_heavy[v]}
        if not early:
            boundary = flow.boundary or _blame(flow)
            _move_sums(flow)
            if not flow.blocked:  # the blocking values depend only on sums that exist already
                break
            early = set(_frontier(flow, flow.blocked)) - flow.awaited
            if not early or not early <= flow.sums.keys() or _too_much(flow, early):
                flow.obstacle = boundary
                return flow
            flow.boundary = boundary
        flow.awaited |= early
        flow.completed &= flow.awaited
        _settle(flow)
    _move_sums(flow)
    return flow


def _move_sums(flow: BatchFlow) -> None:
    """Keeps only the necessary accumulations, and moves them closer to the sums' definitions."""
    flow.completed &= flow.sums.keys()
    flow.completed |= _earlier(flow)
    _settle(flow)


def _too_much(flow: BatchFlow, more: set[int]) -> bool:
    """Whether there are too many sweeps if some accumulate the sums `more`, or too many FLOPs."""
    total = sum(flow.program.heavy_flops)
    between = {v for v in flow.awaited & flow.sums.keys() if flow.behind_heavy[v]} | more
    if 2 + max(flow.sums[v] for v in between) > MAX_SWEEPS:
        return True
    return _repeated_flops(flow, between) + total > MAX_WORK * total


def _repeated_flops(flow: BatchFlow, between: set[int]) -> int:
    """FLOPs of matrix products in all sweeps but the last, which accumulate the sums `between`."""
    graph, flops = flow.program.graph, flow.program.heavy_flops
    known = flow.awaited - between
    total = 0
    for sweep in range(1 + max(flow.sums[v] for v in between)):
        made = {v for v in between if flow.sums[v] == sweep}
        ops = {graph.producer[v] for v in graph.ancestors(sorted(made), known) - known}
        total += sum(flops[i] for i in ops - {ARGUMENT})
        known |= made
    return total


def _settle(flow: BatchFlow) -> None:
    """Repeats the dataflow until no more sums have to be accumulated."""
    while needed := flow.run():
        flow.completed |= needed


def _frontier(flow: BatchFlow, blocked: list[int]) -> dict[int, int]:
    """Accumulated or gathered values that `blocked` ops wait for, each with its first user."""
    graph = flow.program.graph
    whole_uses = set(flow.wholes)
    found: dict[int, int] = {}
    seen = set(blocked)
    stack = list(blocked)
    while stack:
        i = stack.pop()
        for u in graph.uses[i]:
            if (i, u) in whole_uses or (u in flow.sums and flow.states[u].sweep == LATE):
                found[u] = min(i, found.get(u, i))
            if flow.is_late(u):
                j = graph.producer[u]
                if j not in seen:
                    seen.add(j)
                    stack.append(j)
    return found


def _blame(flow: BatchFlow) -> Obstacle:
    """The first op that needs the whole batch, and the first blocked op that depends on it."""
    frontier = {v: i for v, i in _frontier(flow, flow.blocked).items() if v not in flow.awaited}
    first = min(frontier, key=lambda v: frontier[v], default=None)
    if first is None:
        return Obstacle(flow.blocked[0], flow.blocked[0], "whole")
    waiting = [b for b in flow.blocked if first in _frontier(flow, [b])]
    return Obstacle(waiting[0], frontier[first], "sum" if first in flow.sums else "whole")


def nothing_shared(flow: BatchFlow) -> Obstacle | None:
    """Why the cut divides no heavy work on the batch: all of it depends on the gathered batch or on
    a sum over the batch. None if the cut divides some, or if there is no such work.
    """
    program, uses = flow.program, flow.program.graph.uses
    waiting = [
        i for i, used in enumerate(uses) if program.heavy[i] and any(flow.depends[u] for u in used)
    ]
    if not waiting or any(i in flow.cuts or i in flow.loops for i in waiting):
        return None
    sums = flow.awaited & flow.sums.keys()
    causes = {i for i, _ in flow.wholes} | {i for v in sums for i in flow.program.graph.users[v]}
    cause = min(causes, default=waiting[0])
    return Obstacle(waiting[0], cause, "sum" if sums.intersection(uses[cause]) else "whole")


def _earlier(flow: BatchFlow) -> set[int]:
    """Sums to accumulate closer to their definitions.

    The ops in between (a transpose, a scaling) then run once per step instead of once per
    microbatch. Additions, reductions and upcasts stay before the accumulation: they make the
    accumulators fewer, smaller and more exact.
    """
    graph = flow.program.graph
    returned = {flow.program.before_barriers(v) for v in graph.returned}
    sums = {v for v in flow.sums if v not in flow.awaited or not flow.behind_heavy[v]}
    found: set[int] = set()
    for v in sorted(sums, reverse=True):
        while v in sums and (source := _movable(flow, v)) is not None:
            # All values computed from the source must be accumulated, and be early iff v is.
            others = [r for r in flow.program.made_from(source) if r != v]
            if source in returned or not all(
                r in sums
                and _movable(flow, r) == source
                and (r in flow.awaited) == (v in flow.awaited)
                for r in others
            ):
                break
            sums -= {v, *others}
            sums.add(source)
            if v in flow.awaited:
                flow.awaited = flow.awaited - {v, *others} | {source}
            found = found - {v} | {source}
            v = source
    return found


def _movable(flow: BatchFlow, v: int) -> int | None:
    """The only partial operand of v's defining op, if accumulating it instead costs no more."""
    graph = flow.program.graph
    i = graph.producer[v]
    op = graph.ops[i]
    if op.name in ("stablehlo.convert", "stablehlo.reduce") or flow.program.heavy[i]:
        return None
    partial = [u for u in graph.uses[i] if flow.states[u].is_partial]
    if len(partial) != 1 or len(graph.results[i]) != 1:
        return None
    small, large = _size(graph, partial[0]), _size(graph, v)
    return flow.program.before_barriers(partial[0]) if small <= large else None


def _size(graph: ValueGraph, v: int) -> int:
    count = 1
    for size in graph.shapes[v] or ():
        count *= size
    return count

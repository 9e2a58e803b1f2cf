"""Which batch axes the microbatches cut: the likeliest ones that divide the work."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from shardc.analysis.batch.accumulations import analyse
from shardc.analysis.batch.axes import BatchAxis, batch_axes
from shardc.analysis.batch.microbatch import BatchFlow
from shardc.analysis.batch.step_program import Program

# A cut that divides less than this share of all FLOPs is a poor one.
LEAST_SHARE = 0.25
# The first cut that divides this share is taken; no other is tried.
GOOD_SHARE = 0.9


@dataclass(frozen=True)
class BatchPartition:
    """The batches of a step.

    Attributes:
        flow: what each microbatch holds of every value if the first batch is cut.
        others: batches that meet the first one only in sums: argument -> dim, and the number that
            the number of microbatches must divide for this batch to be cut too.
    """

    flow: BatchFlow
    others: tuple[tuple[Mapping[int, int], int], ...] = ()

    def cut_into(self, count: int) -> BatchFlow:
        """The flow that cuts every batch that divides into `count` microbatches."""
        more = [dims for dims, parts in self.others if parts % count == 0]
        if count == 1 or not more:
            return self.flow
        dims = dict(self.flow.batch_args)
        for each in more:
            dims.update(each)
        flow = analyse(self.flow.program, dims)
        return flow if flow.obstacle is None and flow.parts % count == 0 else self.flow


def find_partition(
    program: Program, state: Collection[int], donated: Collection[int]
) -> BatchPartition | None:
    """The batches of a step, outside its state if possible; None if there are none.

    Args:
        state: arguments that are state.
        donated: arguments that the caller donates. Without any, `state` is a guess.
    """
    args = range(program.graph.num_args)
    axes = batch_axes(program, [a for a in args if a not in state], state)
    best = _best(program, [(axis.outside(state), axis) for axis in axes])
    if best is None or not shares_work(best):
        everywhere = batch_axes(program, args, state)
        if not donated:  # an argument may match the type of a result by chance
            rows = [axis for axis in everywhere if axis.outside(state) or _outermost(program, axis)]
            other = _best(program, [(axis.dims, axis) for axis in rows])
            if other is not None and _beats(other, best):
                best, axes, state = other, everywhere, ()
        best = _rows_of_state(program, everywhere, state) or best
    return None if best is None else _with_others(best, axes, state)


def named_partition(program: Program, args: Sequence[int]) -> BatchPartition | None:
    """The batch of a step with known batch arguments but unknown batch dims; None if the arguments
    have no dim of the same size."""
    shapes = program.graph.shapes
    covers: list[dict[int, int]] = []
    for axis in batch_axes(program, args, ()):
        dims = {a: axis.dims[a] for a in args if a in axis.dims}
        first = min(dims.values(), default=0)
        for a in args:
            shape = shapes[a] or ()
            same = [d for d, size in enumerate(shape) if size == axis.size]
            if a not in dims and same:
                dims[a] = first if first in same else same[0]
        if len(dims) == len(args):
            covers.append(dims)
    flows: list[BatchFlow] = []
    for dims in covers:
        flows.append(analyse(program, dims))
        if shares_work(flows[-1]):
            return BatchPartition(flows[-1])
    best = max(flows, key=_score, default=None)
    return None if best is None else BatchPartition(best)


def shares_work(flow: BatchFlow) -> bool:
    """Whether one sweep of the microbatches divides nearly all the work that precedes the sums."""
    if flow.obstacle is not None or flow.num_sweeps > 1:
        return False
    return flow.cut_flops >= GOOD_SHARE * (sum(flow.program.heavy_flops) - flow.late_flops) > 0


def _outermost(program: Program, axis: BatchAxis) -> bool:
    """Whether only dims of size 1 precede its dims: it is not columns of weights."""
    shapes = program.graph.shapes
    return all(math.prod((shapes[a] or ())[:dim]) == 1 for a, dim in axis.dims.items())


def _beats(other: BatchFlow, best: BatchFlow | None) -> bool:
    """Whether a batch in possible state is likelier than `best`, which divides little work."""
    if best is None or shares_work(other):
        return True
    return best.obstacle is not None and not other.obstacle and other.num_sweeps == 1


def _best(
    program: Program, cuts: Sequence[tuple[Mapping[int, int], BatchAxis]]
) -> BatchFlow | None:
    """The flow of the first cut that divides the work, or else of the best one. If no cut divides
    much of the work, that of the outermost one: its obstacle says why.

    The optimizer's own products may outweigh those of a small batch (Muon, Shampoo). Features of
    the parameters then look likelier than the batch, but the microbatches cannot be cut along them.
    """
    least = LEAST_SHARE * sum(program.heavy_flops)
    likely = [(dims, axis) for dims, axis in cuts if axis.parallel_flops >= least]
    others = [(dims, axis) for dims, axis in cuts if axis.parallel_flops < least]
    outermost = [
        (dims, axis) for dims, axis in others if max(dims.values()) == 0 and not axis.holds_features
    ]
    best = _first_good(program, likely)
    if best is None:
        return _first_good(program, outermost)
    if best.obstacle is not None:
        small = [(dims, axis) for dims, axis in outermost if axis.contracted < axis.parallel_flops]
        other = _first_good(program, small)
        if other is not None and shares_work(other):
            return other
    return best


def _first_good(
    program: Program, cuts: Iterable[tuple[Mapping[int, int], BatchAxis]]
) -> BatchFlow | None:
    found: list[BatchFlow] = []
    for dims, axis in cuts:
        flow = analyse(program, dict(dims))
        if sum(program.heavy_flops) and (not flow.work_on_batch or _is_features(flow, axis)):
            continue
        found.append(flow)
        if shares_work(flow):
            break
    return max(found, key=_score, default=None)


def _is_features(flow: BatchFlow, axis: BatchAxis) -> bool:
    """Whether an axis holds features, not examples: it needs several sweeps, and products only
    contract it or it is an inner dim."""
    contracts = 0 < axis.parallel_flops == axis.contracted and not flow.loops
    return flow.num_sweeps > 1 and (contracts or max(flow.batch_args.values()) > 0)


def _rows_of_state(
    program: Program, axes: Iterable[BatchAxis], state: Collection[int]
) -> BatchFlow | None:
    """The flow of an axis that is never reduced and that divides nearly all the work: rows of
    caches and last tokens in a decoding step."""
    graph, total = program.graph, sum(program.heavy_flops)
    behind_heavy = BatchFlow(program, {}, seeds=frozenset(range(graph.num_args))).behind_heavy
    if any(graph.shapes[v] == () and behind_heavy[v] for v in graph.returned):
        return None  # a loss
    for axis in axes:
        rows = bool(axis.outside(state)) or max(axis.dims.values()) == 0  # no columns of weights
        apart = axis.contracted == axis.crossed == 0
        if rows and apart and axis.parallel_flops >= GOOD_SHARE * total:
            flow = analyse(program, dict(axis.dims))
            if shares_work(flow) and not (flow.sums or flow.wholes):
                return flow
    return None


def _with_others(
    best: BatchFlow, axes: Iterable[BatchAxis], state: Collection[int]
) -> BatchPartition:
    """`best` with the other batches: axes of its size that can be cut with it, and axes that divide
    the rest of the work (labelled and unlabelled examples, say)."""
    program, shapes = best.program, best.program.graph.shapes
    a, dim = next(iter(best.batch_args.items()))
    size = (shapes[a] or ())[dim]
    others: list[tuple[Mapping[int, int], int]] = []
    whole = best
    for axis in axes:
        dims = {a: d for a, d in axis.dims.items() if a not in state and a not in whole.batch_args}
        if not dims or (axis.size != size and not _works_alone(whole, dims)):
            continue
        flow = analyse(program, {**whole.batch_args, **dims})
        if axis.size == size and flow.obstacle is not None and _works_alone(whole, dims):
            return BatchPartition(flow)  # two halves of one batch that interact
        more, same = flow.cut_flops > whole.cut_flops, flow.cut_flops == whole.cut_flops
        if (
            len(flow.wholes) > len(whole.wholes)
            or flow.num_sweeps > whole.num_sweeps
            or (flow.obstacle is not None and best.obstacle is None)
        ):
            continue
        if axis.size == size and (more or same):
            best = whole = flow
        elif more and best.obstacle is None:
            others.append((dims, analyse(program, dims).parts))
            whole = flow
    return BatchPartition(best, tuple(others))


def _works_alone(best: BatchFlow, dims: Mapping[int, int]) -> bool:
    """Whether some heavy op depends on the arguments `dims` and on no argument that `best` cuts."""
    alone = BatchFlow(best.program, dict(dims))
    return any(
        heavy and any(alone.depends[u] for u in used) and not any(best.depends[u] for u in used)
        for heavy, used in zip(best.program.heavy, best.program.graph.uses, strict=True)
    )


def _rank(flow: BatchFlow) -> int:
    """3: one sweep divides the work; 2: several sweeps do; 1: there is an obstacle; 0: the cut
    divides little of it."""
    if flow.obstacle is not None:
        return 1
    if flow.cut_flops < LEAST_SHARE * sum(flow.program.heavy_flops):
        return 0
    return 2 if flow.num_sweeps > 1 else 3


def _score(flow: BatchFlow) -> tuple[int, int, int, int, int, int]:
    return (
        _rank(flow),
        flow.cut_flops,
        -max(flow.batch_args.values()),
        -len(flow.wholes),
        len(flow.batch_args),
        max(flow.batch_args),
    )

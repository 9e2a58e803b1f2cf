"""Cuts a program for a given pipeline shape: into microbatches, then into stage functions.

    find_batch     the batches marked                                       once per program
    split          a body per microbatch, for callers without an alternative
    with_stages    the stage of each op, given the cuts
    outline_shape  the stage functions of a shape
    cut            the same on the meshes of their stages

Each works on a copy of its module; the planner asks for many shapes of one program.
"""

from collections.abc import Sequence
from dataclasses import replace

from shardc.analysis.batch.microbatch_refusal import MicrobatchRefusal, RefusalReason, uneven_parts
from shardc.analysis.stages.stage_cuts import Origin, origins_at, positions_of
from shardc.cluster import Cluster
from shardc.ir.attributes import FISSIONS, ROUND, function_kind, get_int
from shardc.ir.context import Module
from shardc.ir.copy import run_on_copy
from shardc.ir.pass_manager import Pass, run_passes
from shardc.ir.walk import functions, main_function
from shardc.passes.accumulate_in_loops import AccumulateInLoops
from shardc.passes.assign_meshes import AssignMeshes
from shardc.passes.cast_parameters_once import CastParametersOnce
from shardc.passes.cut_loops import CutLoops
from shardc.passes.find_batch import FindBatch
from shardc.passes.fission_loops import FissionLoops
from shardc.passes.gather_parameters import GatherParameters
from shardc.passes.join_pieces import JoinPieces, has_joined
from shardc.passes.keep_forward_values import KeepForwardValues
from shardc.passes.outline_stages import OutlineStages
from shardc.passes.pipeline import in_order
from shardc.passes.plan_residency import PlanResidency
from shardc.passes.plan_stages import PlanStages
from shardc.passes.replicate_stages import ReplicateStages
from shardc.passes.share_reshards import ShareReshards
from shardc.passes.slice_tokens import SliceTokens
from shardc.passes.split_backward import SplitBackward
from shardc.passes.split_backward_loops import SplitBackwardLoops
from shardc.passes.split_microbatches import SplitMicrobatches
from shardc.passes.unroll_layers import UnrollLayers
from shardc.plan.function_kind import FunctionKind
from shardc.plan.shape import PipelineShape, Residency, Reuse
from shardc.schedule.registry import schedule_named
from shardc.schedule.work import Work

DEFAULT = SplitBackward.cluster  # prices what passes weigh if the module has no cluster
AGAIN = Reuse()  # every microbatch computes what it needs

_SHARED: tuple[Pass, ...] = (AccumulateInLoops(), ShareReshards())


def find_batch(
    module: Module,
    batch_args: Sequence[int],
    batch_dims: Sequence[int],
    stages: int = 1,
    cast_once: bool = False,
) -> Module:
    """A copy of a prepared module with its batches marked, for any number of microbatches.

    With `cast_once`, casts of parameters are marked, and made once for all microbatches.

    Several stages share the layers inside a loop that accumulates gradients: its pieces are joined.

    Raises:
        MicrobatchError: SHARDC-141, `batch_args` names an argument that does not exist.
    """
    batch = tuple(batch_args), tuple(batch_dims)
    joined = [JoinPieces(0, *batch, heaviest=True)] * (stages > 1)
    casts = [CastParametersOnce()] * cast_once
    return run_on_copy(module, [FindBatch(*batch), *casts, *joined])


def try_split(
    module: Module,
    num_microbatches: int,
    batch_args: Sequence[int] | None,
    batch_dims: Sequence[int] = (),
    loop_cuts: Sequence[int] = (),
    reuse: Reuse = AGAIN,
) -> Module | MicrobatchRefusal:
    """A copy of a prepared module split into microbatches; without batch dims, they are searched.

    The batch is found before loops are cut, because a plan names it by the user's arguments. If
    its size does not divide into the pieces of a loop, the pieces are joined; if a loop needs sums
    over it on its way, the loop is fissioned; then the split is tried once more.

    Args:
        batch_args: flat positions of the batch arguments; none: they are searched, too.
        batch_dims: the batch dim of each of them.
        loop_cuts: where loops over layers are cut first, as in `PipelineShape`.
        reuse: casts are marked already.
    Returns:
        The split module, or why the program as it was written cannot be split.
    Raises:
        MicrobatchError: SHARDC-141, `batch_args` names an argument that does not exist.
    """
    batch = tuple(batch_args or ()), tuple(batch_dims)
    found = find_batch(module, *batch)
    cut_loops = CutLoops(tuple(loop_cuts))
    on = reuse.cluster or DEFAULT
    split_batch = SplitMicrobatches(num_microbatches, *batch, reuse.keep_price, on)
    answer = _split_at(run_on_copy(found, [cut_loops]), split_batch)
    if isinstance(answer, Module) or answer.hindrance is RefusalReason.NO_BATCH:
        return answer
    if answer.hindrance is RefusalReason.INDIVISIBLE:
        joined = run_on_copy(found, [cut_loops, JoinPieces(num_microbatches, *batch)])
        return _split_at(joined, split_batch) if has_joined(joined.operation) else answer
    apart = run_on_copy(found, [FissionLoops(*batch)])
    if FISSIONS not in apart.operation.attributes:
        return answer
    again = _split_at(run_on_copy(apart, [cut_loops]), split_batch)
    return again if isinstance(again, Module) else answer  # of the program as it was written


def split(
    module: Module,
    num_microbatches: int,
    batch_args: Sequence[int] | None,
    batch_dims: Sequence[int] = (),
    loop_cuts: Sequence[int] = (),
    stages: int = 1,
    reuse: Reuse = AGAIN,
) -> Module:
    """Like `try_split` of a step with its batch found, for callers without an alternative.

    Raises:
        MicrobatchError: SHARDC-140, SHARDC-141, SHARDC-142, the batch cannot be split this way.
    """
    marked = find_batch(module, batch_args or (), batch_dims, stages, reuse.cast_once)
    found = try_split(marked, num_microbatches, batch_args, batch_dims, loop_cuts, reuse)
    if isinstance(found, MicrobatchRefusal):
        raise found.error()
    return found


def _split_at(module: Module, split_batch: SplitMicrobatches) -> Module | MicrobatchRefusal:
    """Splits the batch of a module, in place, if possible."""
    with module.context:
        step = split_batch.ask(module.operation)
    if isinstance(step, MicrobatchRefusal):
        return step
    numbers = step.flow.numbers
    run_passes(module, [replace(split_batch, step=step)])
    with module.context:
        return uneven_parts(module.operation, numbers) or module


def origins(split_module: Module, cuts: Sequence[int]) -> list[Origin | None]:
    """The origins of the ops at positions `cuts`; None where no layer of a microbatch begins."""
    with split_module.context:
        return origins_at(main_function(split_module.operation), cuts)


def find(split_module: Module, origins: Sequence[Origin]) -> tuple[int, ...] | None:
    """The positions of `origins` in another split module; None if one does not exist."""
    with split_module.context:
        return positions_of(main_function(split_module.operation), origins)


def outline(
    split_module: Module,
    cuts: Sequence[int],
    residency: Sequence[Residency] = (),
    cluster: Cluster | None = None,
) -> Module:
    """Stage functions without meshes, from the result of `split`; arguments as in
    `PipelineShape`."""
    passes = [_planned(cuts), *_residency_passes(residency, cluster), OutlineStages(), *_SHARED]
    return run_on_copy(split_module, passes)


def with_stages(split_module: Module, cuts: Sequence[int]) -> Module:
    """A copy of the result of `split` whose ops have stages; `cuts` as in `PipelineShape`."""
    return run_on_copy(split_module, [_planned(cuts)])


def outline_shape(staged_module: Module, shape: PipelineShape, cluster: Cluster | None) -> Module:
    """The stage functions that a shape's schedule runs, without meshes.

    Args:
        staged_module: the result of `with_stages`, for the cuts of the shape.
        cluster: its device prices what a split backward computes twice.
    Raises:
        StageError: SHARDC-163 to 165, the stages cannot be cut for the schedule.
    """
    sliced = shape.num_slices > 1
    passes = [*stage_passes(shape, cluster, sliced or bool(shape.gather)), *_SHARED]
    if sliced:
        passes += [UnrollLayers(), SliceTokens(shape.num_slices)]
    if schedule_named(shape.schedule).split_backward:
        passes += [SplitBackwardLoops(cluster or DEFAULT), SplitBackward(cluster or DEFAULT)]
    if shape.num_replicas > 1:
        passes.append(ReplicateStages())
    if shape.gather:
        parts = tuple(dict(mesh.axes).get(shape.gather, 1) for mesh in shape.meshes)
        passes.append(GatherParameters(shape.gather, parts))
    return run_on_copy(staged_module, in_order(passes))


def stage_passes(shape: PipelineShape, cluster: Cluster | None, accumulate: bool) -> list[Pass]:
    """The passes that make one function per stage and kind of the result of `with_stages`."""
    return [*_residency_passes(shape.residency, cluster), OutlineStages(accumulate)]


def _residency_passes(residency: Sequence[Residency], cluster: Cluster | None) -> list[Pass]:
    """The passes that keep and recompute forward values."""
    kept = tuple((stage, value) for stage, each in enumerate(residency) for value in each.kept)
    prices = tuple(each.keep_price for each in residency)
    in_flight = tuple(each.in_flight for each in residency)
    return [KeepForwardValues(prices, kept, cluster or DEFAULT), PlanResidency(in_flight)]


def _planned(cuts: Sequence[int]) -> PlanStages:
    return PlanStages(stages=len(cuts) + 1, cuts=tuple(cuts))


def work_of(module: Module, shape: PipelineShape) -> Work:
    """The work of one step of a shape's stage functions."""
    own = list(functions(module.operation))
    kinds = {function_kind(f) for f in own}
    updates = [f for f in own if function_kind(f) is FunctionKind.UPDATE]
    return Work(
        num_groups=shape.num_stages // shape.num_chunks,
        num_microbatches=shape.num_microbatches,
        chunks=shape.num_chunks,
        replicas=shape.num_replicas,
        slices=shape.num_slices,
        backward=FunctionKind.BACKWARD in kinds or FunctionKind.WEIGHT in kinds,
        prologue=FunctionKind.BEFORE in kinds,
        gathers=not kinds.isdisjoint((FunctionKind.GATHER, FunctionKind.REDUCE)),
        update_rounds=max(((get_int(f, ROUND) or 0) + 1 for f in updates), default=0),
    )


def cut(split_module: Module, shape: PipelineShape, cluster: Cluster | None = None) -> Module:
    """The functions of `outline_shape` on their meshes, from the result of `split`."""
    outlined = outline_shape(with_stages(split_module, shape.cuts), shape, cluster)
    return run_on_copy(outlined, [AssignMeshes(shape.meshes)])

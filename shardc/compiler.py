"""The complete compilation, from a module to what the runtime runs, top to bottom.

    prepare    calls inlined, CHLO legalised                       once per program
    cut        microbatch body, stages, stage functions, meshes    for a given shape of the pipeline
    shard      a sharding strategy for every op                    the solver, or a saved plan
    lower      per-device programs with explicit collectives       for the backend

The planner calls cut and shard for the shapes it considers; a saved plan is replayed, not solved.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from shardc.analysis.batch.refusal import MicrobatchRefusal, RefusalReason, uneven_parts
from shardc.analysis.program.stage_table import result_values
from shardc.analysis.roles.planned_shardings import function_sharding
from shardc.analysis.stages.stage_cuts import Origin, origins_at, positions_of
from shardc.backend.extract import argument_specs, function_values, result_specs, stage_programs
from shardc.cluster import Cluster
from shardc.errors import MicrobatchError, PlanError, StageError
from shardc.ir.attributes import FISSIONS, ROUND, STAGE_REPORTS, data_of, function_kind, get_int
from shardc.ir.context import Module
from shardc.ir.copy import copy_module
from shardc.ir.pass_manager import Pass, run_passes
from shardc.ir.shardings import meshes
from shardc.ir.walk import functions, main_function, symbol
from shardc.passes.accumulate_in_loops import AccumulateInLoops
from shardc.passes.apply_shardings import ApplyShardings
from shardc.passes.ask_shardings import AskShardings
from shardc.passes.assign_meshes import AssignMeshes, print_meshes
from shardc.passes.cut_loops import CutLoops
from shardc.passes.find_batch import FindBatch
from shardc.passes.fission_loops import FissionLoops
from shardc.passes.join_pieces import JoinPieces, has_joined
from shardc.passes.outline_stages import OutlineStages
from shardc.passes.pipeline import LOCAL_LOWERING, NORMALIZE, XLA_LOWERING
from shardc.passes.plan_residency import PlanResidency
from shardc.passes.plan_shardings import PlanShardings
from shardc.passes.plan_stages import PlanStages
from shardc.passes.replicate_stages import ReplicateStages
from shardc.passes.share_reshards import ShareReshards
from shardc.passes.slice_tokens import SliceTokens
from shardc.passes.split_backward import SplitBackward
from shardc.passes.split_backward_loops import SplitBackwardLoops
from shardc.passes.split_microbatches import SplitMicrobatches
from shardc.passes.unroll_layers import UnrollLayers
from shardc.plan.decisions import FunctionSharding, Plan
from shardc.plan.executable import Executable
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import Mesh
from shardc.plan.predicted import StageReport
from shardc.plan.program_graph import program_graph
from shardc.plan.shape import PipelineShape
from shardc.plan.stages_spec import StageSpec
from shardc.schedule.check import check
from shardc.schedule.registry import schedule_named
from shardc.schedule.tasks import Schedule, parse_lanes, print_lanes
from shardc.schedule.work import Work

Dump = Callable[[str, Module], None]
_SHARED: tuple[Pass, ...] = (AccumulateInLoops(), ShareReshards())


def prepare(module: Module) -> None:
    """Brings an imported module into the form that all later steps work on, in place."""
    run_passes(module, NORMALIZE)


def find_batch(
    module: Module, batch_args: Sequence[int], batch_dims: Sequence[int], stages: int = 1
) -> Module:
    """A copy of a prepared module with its batches marked, for any number of microbatches.

    Several stages share the layers inside a loop that accumulates gradients: its pieces are joined.

    Raises:
        MicrobatchError: SHARDC-141, `batch_args` names an argument that does not exist.
    """
    batch = tuple(batch_args), tuple(batch_dims)
    joined = [JoinPieces(0, *batch, heaviest=True)] * (stages > 1)
    return _after(module, [FindBatch(*batch), *joined])


def try_split(
    module: Module,
    num_microbatches: int,
    batch_args: Sequence[int] | None,
    batch_dims: Sequence[int] = (),
    loop_cuts: Sequence[int] = (),
) -> Module | MicrobatchRefusal:
    """A copy of a prepared module split into microbatches; without batch dims, they are searched.

    The batch is found before loops are cut, because a plan names it by the user's arguments.

    Args:
        loop_cuts: where loops over layers are cut first, as in `PipelineShape`.
    Raises:
        MicrobatchError: SHARDC-141, `batch_args` names an argument that does not exist.
    """
    batch = tuple(batch_args or ()), tuple(batch_dims)
    found = find_batch(module, *batch)
    cut_loops = CutLoops(tuple(loop_cuts))
    split_batch = SplitMicrobatches(num_microbatches, *batch)
    answer = _split_at(_after(found, [cut_loops]), split_batch)
    if isinstance(answer, Module) or answer.hindrance is RefusalReason.NO_BATCH:
        return answer
    if answer.hindrance is RefusalReason.INDIVISIBLE:
        joined = _after(found, [cut_loops, JoinPieces(num_microbatches, *batch)])
        return _split_at(joined, split_batch) if has_joined(joined.operation) else answer
    apart = _after(found, [FissionLoops(*batch)])
    if FISSIONS not in apart.operation.attributes:
        return answer
    again = _split_at(_after(apart, [cut_loops]), split_batch)
    return again if isinstance(again, Module) else answer  # of the program as it was written


def split(
    module: Module,
    num_microbatches: int,
    batch_args: Sequence[int] | None,
    batch_dims: Sequence[int] = (),
    loop_cuts: Sequence[int] = (),
    stages: int = 1,
) -> Module:
    """Like `try_split` of a step with its batch found, for callers without an alternative.

    Raises:
        MicrobatchError: SHARDC-140, SHARDC-141, SHARDC-142, the batch cannot be split this way.
    """
    marked = find_batch(module, batch_args or (), batch_dims, stages)
    found = try_split(marked, num_microbatches, batch_args, batch_dims, loop_cuts)
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


def outline(split_module: Module, cuts: Sequence[int], recompute: Sequence[int] = ()) -> Module:
    """Stage functions without meshes, from the result of `split`; see `PipelineShape`."""
    return _after(split_module, [*_stages(cuts, recompute), *_SHARED])


def outline_shape(split_module: Module, shape: PipelineShape, cluster: Cluster | None) -> Module:
    """The stage functions that a shape's schedule runs, without meshes.

    Args:
        cluster: its device prices what a split backward computes twice.
    Raises:
        StageError: SHARDC-163 to 165, the stages cannot be cut for the schedule.
    """
    sliced = shape.num_slices > 1
    passes = _stages(shape.cuts, shape.recompute, sliced) + [UnrollLayers()] * sliced
    if schedule_named(shape.schedule).split_backward:
        text = SplitBackward.cluster if cluster is None else msgspec.json.encode(cluster).decode()
        passes += [SplitBackwardLoops(text), SplitBackward(text)]
    if shape.num_replicas > 1:
        passes.append(ReplicateStages())
    passes += [SliceTokens(shape.num_slices)] * sliced
    return _after(split_module, [*passes, *_SHARED])


def _stages(cuts: Sequence[int], recompute: Sequence[int], accumulate: bool = False) -> list[Pass]:
    return [
        PlanStages(stages=len(cuts) + 1, cuts=tuple(cuts)),
        PlanResidency(tuple(recompute)),
        OutlineStages(accumulate),
    ]


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
        update_rounds=max(((get_int(f, ROUND) or 0) + 1 for f in updates), default=0),
    )


def cut(split_module: Module, shape: PipelineShape, cluster: Cluster | None = None) -> Module:
    """Stage functions on their meshes, from the result of `split`; like `outline_shape`."""
    outlined = outline_shape(split_module, shape, cluster)
    return _after(outlined, [AssignMeshes(print_meshes(shape.meshes))])


def shard(
    outlined: Module,
    wanted: Sequence[Mesh],
    cluster: Cluster,
    *,
    stashes: Sequence[int],
    memory_limit_bytes: int | None,
    time_limit_s: float,
    effort_s: float,
    seed: int,
    gap: float,
    equal_layers: str = "free",
    cutoff_s: float = math.inf,
    ignored: Sequence[str] = (),
    asked: Sequence[StageSpec] = (),
    late_sums: Sequence[str] = (),
) -> tuple[Module, tuple[StageReport, ...]]:
    """Assigns each stage function of `outline` its mesh, and solves their shardings.

    Returns:
        A copy of the module with the shardings written in, and the reports of the stages.

    The time limit is for all stages together, the effort (`shardc.solver.solve`) for each;
    requested shardings with names in `ignored` are ignored; `asked` has the patterns of
    a hand-written plan.
    """
    planned = _after(
        outlined,
        [
            AssignMeshes(print_meshes(tuple(wanted))),
            AskShardings(msgspec.json.encode(asked).decode()),
            PlanShardings(
                cluster=msgspec.json.encode(cluster).decode(),
                memory_limit=memory_limit_bytes or 0,
                stashes=tuple(stashes),
                time_limit=time_limit_s,
                effort=effort_s,
                seed=seed,
                gap=gap,
                equal_layers=equal_layers,
                cutoff=cutoff_s,
                ignored=tuple(ignored),
                late_sums=tuple(late_sums),
            ),
        ],
    )
    with planned.context:
        reports = planned.operation.attributes[STAGE_REPORTS]
        return planned, data_of(reports, tuple[StageReport, ...])


def shardings_of(sharded: Module) -> dict[str, FunctionSharding]:
    """The decisions of `shard`, as data for a plan."""
    return {symbol(f): function_sharding(f) for f in functions(sharded.operation)}


def replay(module: Module, plan: Plan, dump: Dump | None = None) -> Module:
    """The sharded module of a plan, from the prepared module it was made for, without solving.

    Raises:
        PlanError: SHARDC-200, the plan was made for another program.
    """
    try:
        shape, batch = PipelineShape.of(plan), (plan.batch_arguments, plan.batch_dims)
        count, stages = shape.num_microbatches, shape.num_stages
        split_module = split(module, count, *batch, shape.loop_cuts, stages)
        cut_module = cut(split_module, shape, plan.cluster)
    except (MicrobatchError, StageError) as error:
        raise PlanError(
            f"this plan was made for another program: it cuts the batch and the stages in ways that"
            f" this one does not allow ({error.message})",
            where=error.where,
            help="plan again for this program",
        ) from error
    text = msgspec.json.encode(plan.shardings).decode()
    cluster = "" if plan.cluster is None else msgspec.json.encode(plan.cluster).decode()
    sharded = _after(cut_module, [ApplyShardings(text, cluster)])
    if dump is not None:
        dump("split-microbatches", split_module)
        dump("outline-stages", cut_module)
        dump("apply-shardings", sharded)
    return sharded


def lower(
    sharded: Module,
    plan: Plan,
    *,
    lowering: str = "local",
    dump: Dump | None = None,
) -> Executable:
    """Stage programs and their order of execution.

    Args:
        lowering: "local": per-device programs with explicit collectives; "xla": annotated global
            programs that XLA partitions.
        dump: called with a name and the module after each pass.
    """
    family = schedule_named(plan.schedule)
    work = family.work(work_of(sharded, PipelineShape.of(plan)), plan.num_chunks, plan.num_slices)
    lanes = Schedule(parse_lanes(plan.lanes)) if plan.lanes else family.generate(work)
    graph = program_graph(
        function_values(sharded.operation),
        lanes,
        family.graph(work, lanes),
        [stage.mesh for stage in plan.stages],
        result_values(sharded.operation),
    )
    check(lanes, graph)
    module = copy_module(sharded)
    for each in LOCAL_LOWERING if lowering == "local" else XLA_LOWERING:
        run_passes(module, [each])
        if dump is not None:
            dump(each.name, module)
    with module.context:
        placed = meshes(module.operation)
        return Executable(
            meshes=tuple(placed[f"stage{s}"] for s in range(len(plan.stages))),
            programs=stage_programs(module.operation, local=lowering == "local"),
            arguments=argument_specs(module.operation),
            results=result_specs(module.operation),
            num_microbatches=plan.num_microbatches,
            actions=print_lanes(lanes),
            num_replicas=plan.num_replicas,
        )


def _after(module: Module, passes: Sequence[Pass]) -> Module:
    copy = copy_module(module)
    run_passes(copy, passes)
    return copy

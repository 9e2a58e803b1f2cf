"""The whole way from a module to what the runtime runs, top to bottom.

    prepare    calls inlined, CHLO legalised                       once per program
    cut        microbatch body, stages, stage functions, meshes    for a given shape of the pipeline
    shard      a sharding strategy for every op                    the solver, or a saved plan
    lower      per-device programs with explicit collectives       for the backend

The planner (`shardc.planner.search`) calls cut and shard for the shapes it considers; a saved plan
replays its decisions without solving.
"""

import math
from collections.abc import Callable, Sequence

import msgspec

from shardc.analysis.loops.stacked_layers import even_cuts, row_flow
from shardc.analysis.program.arguments import cut_dims, cuts_all_rows, state_arguments
from shardc.analysis.program.flops import op_cost
from shardc.analysis.shardings.counterfactuals import Choice, Matches, explain_choices
from shardc.analysis.shardings.planned_shardings import function_sharding
from shardc.analysis.stages.stage_cuts import Origin, origins_at, positions_of
from shardc.backend.extract import argument_specs, result_specs, stage_programs
from shardc.cluster import Cluster
from shardc.errors import MicrobatchError, PlanError, StageError
from shardc.ir.attributes import FISSIONS, KIND, PHASE, STAGE, get_int, get_str
from shardc.ir.context import Module
from shardc.ir.copy import copy_module
from shardc.ir.pass_manager import Pass, run_passes
from shardc.ir.shardings import meshes
from shardc.ir.walk import functions, main_function, ops, symbol
from shardc.passes.accumulate_in_loops import AccumulateInLoops
from shardc.passes.apply_shardings import ApplyShardings
from shardc.passes.assign_meshes import AssignMeshes, print_meshes
from shardc.passes.cut_loops import CutLoops
from shardc.passes.fission_loops import FissionLoops
from shardc.passes.outline_stages import OutlineStages
from shardc.passes.pipeline import LOCAL_LOWERING, NORMALIZE, XLA_LOWERING
from shardc.passes.plan_shardings import REPORTS as STAGE_REPORTS
from shardc.passes.plan_shardings import PlanShardings
from shardc.passes.plan_stages import PlanStages
from shardc.passes.share_reshards import ShareReshards
from shardc.passes.split_microbatches import SplitMicrobatches
from shardc.plan.decisions import FunctionSharding, Plan
from shardc.plan.executable import Executable
from shardc.plan.layout import Mesh
from shardc.plan.predicted import StageReport
from shardc.schedule.check import check
from shardc.schedule.registry import executable_schedule
from shardc.schedule.tasks import print_lanes
from shardc.schedule.work import Work

Dump = Callable[[str, Module], None]


class Shape(msgspec.Struct, frozen=True):
    """The shape of a pipeline: everything but the shardings.

    Attributes:
        num_microbatches: parts of the batch.
        cuts: for each stage but the first, position of its first forward op in the split @main.
        meshes: one per stage.
        schedule: name of the schedule.
        batch_args: flat arguments that are cut; None: found by analysis.
        loop_cuts: where loops over layers are cut, as `shardc-cut-loops` takes them; `cuts` are
            positions after that.
    """

    num_microbatches: int
    cuts: tuple[int, ...]
    meshes: tuple[Mesh, ...]
    schedule: str
    batch_args: tuple[int, ...] | None = None
    loop_cuts: tuple[int, ...] = ()


def prepare(module: Module) -> None:
    """Brings an imported module to the form that every later step works on, in place."""
    run_passes(module, NORMALIZE)


def split(
    module: Module,
    num_microbatches: int,
    batch_args: Sequence[int] | None,
    batch_dims: Sequence[int] = (),
    loop_cuts: Sequence[int] = (),
) -> Module:
    """A copy of a prepared module cut into microbatches; without dims, they are found.

    A plan names the batch by the user's arguments. Where cut loops have made several of one, and
    not all of these were found to be batch, the split is the one that a plan can name: of all.

    Args:
        loop_cuts: where loops over layers are cut first, as in `Shape`.
    Raises:
        MicrobatchError: as `shardc.analysis.batch.batch_split.split_step`.
    """
    found = _split(module, num_microbatches, batch_args, batch_dims, loop_cuts)
    with found.context:
        named = cut_dims(found.operation)
        if cuts_all_rows(found.operation):
            return found
    return _split(module, num_microbatches, tuple(named), tuple(named.values()), loop_cuts)


def _split(
    module: Module,
    num_microbatches: int,
    batch_args: Sequence[int] | None,
    batch_dims: Sequence[int],
    loop_cuts: Sequence[int],
) -> Module:
    batch = tuple(batch_args or ()), tuple(batch_dims)
    cut_loops, split_batch = CutLoops(tuple(loop_cuts)), SplitMicrobatches(num_microbatches, *batch)
    try:
        return _after(module, [cut_loops, split_batch])
    except MicrobatchError as refusal:
        if refusal.code != MicrobatchError.code:  # no batch, or one that does not divide
            raise
        apart = _after(module, [FissionLoops(*batch)])
        if FISSIONS not in apart.operation.attributes:
            raise
        try:
            return _after(apart, [cut_loops, split_batch])
        except MicrobatchError:
            raise refusal from None  # it speaks of the program as it was written


def step_flops(split_module: Module, num_microbatches: int) -> int:
    """FLOPs of a step whose module `split` gave."""
    with split_module.context:
        return sum(
            op_cost(op).flops * (num_microbatches if get_str(op, PHASE) == "body" else 1)
            for op in ops(main_function(split_module.operation))
        )


def even_loop_cuts(module: Module, pieces: int) -> tuple[int, ...]:
    """Where to cut the loops over layers of a prepared module into parts of even work."""
    with module.context:
        return even_cuts(
            row_flow(module.operation, state_arguments(main_function(module.operation))), pieces
        )


def layer_loops(module: Module, least_share: float) -> list[tuple[int, int]]:
    """(first iteration, iterations) of the loops over layers of a prepared module, of three or more
    iterations, that make up at least a share of the FLOPs; counted over all such loops."""
    with module.context:
        flow = row_flow(module.operation, state_arguments(main_function(module.operation)))
    return [
        (group.first, group.trips)
        for group in flow.groups
        if group.trips > 2
        and not group.independent
        and group.flops >= least_share * max(flow.flops, 1)
    ]


def origins(split_module: Module, cuts: Sequence[int]) -> list[Origin | None]:
    """What begins at the positions `cuts`; None where no layer of a microbatch does."""
    with split_module.context:
        return origins_at(main_function(split_module.operation), cuts)


def find(split_module: Module, origins: Sequence[Origin]) -> tuple[int, ...] | None:
    """The positions in another split module of what `origins` gave; None if they are not there."""
    with split_module.context:
        return positions_of(main_function(split_module.operation), origins)


def outline(split_module: Module, cuts: Sequence[int]) -> Module:
    """Stage functions without meshes, from a module that `split` gave; `cuts` as in `Shape`."""
    return _after(
        split_module,
        [
            PlanStages(stages=len(cuts) + 1, cuts=tuple(cuts)),
            OutlineStages(),
            AccumulateInLoops(),
            ShareReshards(),
        ],
    )


def work_of(module: Module, num_microbatches: int) -> Work:
    """What one step of outlined stage functions has to do."""
    kinds = {get_str(f, KIND) for f in functions(module.operation)}
    stages = {get_int(f, STAGE) or 0 for f in functions(module.operation)}
    return Work(
        num_groups=max(stages, default=0) + 1,
        num_microbatches=num_microbatches,
        backward="backward" in kinds,
        prologue="before" in kinds,
        update_rounds=int("update" in kinds),
    )


def cut(split_module: Module, shape: Shape) -> Module:
    """Stage functions on their meshes, from a module that `split` gave."""
    outlined = outline(split_module, shape.cuts)
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
) -> tuple[Module, tuple[StageReport, ...]]:
    """Puts the stage functions that `outline` gave on a mesh each, and solves their shardings.

    Returns:
        A copy of the module with the shardings written in, and the reports of the stages.

    Limits and efforts are those of `shardc.solver.solve`, for each stage. Shardings that the user
    asks for under the names `ignored` do not hold.
    """
    planned = _after(
        outlined,
        [
            AssignMeshes(print_meshes(tuple(wanted))),
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
            ),
        ],
    )
    with planned.context:
        text = get_str(planned.operation, STAGE_REPORTS) or "[]"
    return planned, msgspec.json.decode(text, type=tuple[StageReport, ...])


def shardings_of(sharded: Module) -> dict[str, FunctionSharding]:
    """What `shard` decided, as data for a plan."""
    return {symbol(f): function_sharding(f) for f in functions(sharded.operation)}


def replay(module: Module, plan: Plan, dump: Dump | None = None) -> Module:
    """The sharded module of a plan, from the prepared module it was made for; no solving.

    Args:
        dump: called with a name and the module after each step.
    Raises:
        PlanError: SHARDC-200, the plan was made for another program.
    """
    shape = Shape(
        plan.num_microbatches,
        tuple(stage.cut for stage in plan.stages[1:]),
        tuple(stage.mesh for stage in plan.stages),
        plan.schedule,
        plan.batch_arguments,
        plan.loop_cuts,
    )
    try:
        split_module = split(
            module, plan.num_microbatches, plan.batch_arguments, plan.batch_dims, plan.loop_cuts
        )
        cut_module = cut(split_module, shape)
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


def choices(module: Module, plan: Plan, cluster: Cluster, matches: Matches) -> list[Choice]:
    """The choices of a plan whose names match, from the prepared module that it was made for."""
    sharded = replay(module, plan)
    family = executable_schedule(plan.schedule)
    stashes = family.in_flight(family.work(work_of(sharded, plan.num_microbatches)))
    with sharded.context:
        return explain_choices(
            sharded.operation, plan.shardings, plan.cluster or cluster, stashes, matches
        )


def lower(
    sharded: Module,
    num_microbatches: int,
    schedule: str,
    *,
    lowering: str = "local",
    dump: Dump | None = None,
) -> Executable:
    """Stage programs and their order of execution.

    Args:
        lowering: "local": per-device programs with explicit collectives; "xla": annotated global
            programs that XLA partitions itself.
        dump: called with a name and the module after each pass.
    """
    family = executable_schedule(schedule)
    work = family.work(work_of(sharded, num_microbatches))
    lanes = family.generate(work)
    check(lanes, family.graph(work, lanes))
    module = copy_module(sharded)
    for each in LOCAL_LOWERING if lowering == "local" else XLA_LOWERING:
        run_passes(module, [each])
        if dump is not None:
            dump(each.name, module)
    with module.context:
        placed = meshes(module.operation)
        return Executable(
            meshes=tuple(placed[f"stage{s}"] for s in range(work.num_stages)),
            programs=stage_programs(module.operation, local=lowering == "local"),
            arguments=argument_specs(module.operation),
            results=result_specs(module.operation),
            num_microbatches=num_microbatches,
            actions=print_lanes(lanes),
        )


def _after(module: Module, passes: Sequence[Pass]) -> Module:
    copy = copy_module(module)
    run_passes(copy, passes)
    return copy

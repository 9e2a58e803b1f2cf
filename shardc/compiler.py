"""The complete compilation, from a module to what the runtime runs, top to bottom.

    prepare    calls inlined, CHLO legalised                       once per program
    cut        microbatch body, stages, stage functions, meshes    for a given shape of the pipeline
    shard      a sharding strategy for every op                    the solver, or a saved plan
    lower      per-device programs with explicit collectives       for the backend

The planner calls cut and shard for the shapes it considers; a saved plan is replayed, not solved.
"""

import math
from collections.abc import Callable, Sequence

from shardc.analysis.program.stage_table import result_values
from shardc.analysis.roles.read_shardings import function_sharding
from shardc.backend.extract import argument_specs, function_values, result_specs, stage_programs
from shardc.cluster import Cluster
from shardc.cutting import cut, split, work_of
from shardc.errors import MicrobatchError, PlanError, StageError
from shardc.ir.attributes import STAGE_REPORTS, data_of
from shardc.ir.context import Module
from shardc.ir.copy import copy_module, run_on_copy
from shardc.ir.pass_manager import run_passes
from shardc.ir.shardings import meshes
from shardc.ir.walk import functions, symbol
from shardc.passes.apply_shardings import ApplyShardings
from shardc.passes.ask_shardings import AskShardings
from shardc.passes.assign_meshes import AssignMeshes
from shardc.passes.pipeline import LOCAL_LOWERING, NORMALIZE, XLA_LOWERING
from shardc.passes.plan_shardings import PlanShardings
from shardc.plan.decisions import FunctionSharding, Plan
from shardc.plan.executable import Executable
from shardc.plan.layout import Mesh
from shardc.plan.predicted import StageReport
from shardc.plan.program_graph import program_graph
from shardc.plan.shape import PipelineShape, Reuse
from shardc.plan.stages_spec import StageSpec
from shardc.progress import shown_progress
from shardc.schedule.check import check, check_complete
from shardc.schedule.registry import schedule_named
from shardc.schedule.tasks import Schedule, parse_lanes, print_lanes

Dump = Callable[[str, Module], None]


def prepare(module: Module) -> None:
    """Brings an imported module into the form that all later steps work on, in place."""
    with shown_progress("preparing the program"):
        run_passes(module, NORMALIZE)


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
    planned = run_on_copy(
        outlined,
        [
            AssignMeshes(tuple(wanted)),
            AskShardings(tuple(asked)),
            PlanShardings(
                cluster=cluster,
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

    Args:
        dump: called with a name and the module after each step.
    Raises:
        PlanError: SHARDC-200, the plan was made for another program.
    """
    try:
        shape, batch = PipelineShape.of(plan), (plan.batch_arguments, plan.batch_dims)
        count, stages = shape.num_microbatches, shape.num_stages
        split_module = split(module, count, *batch, shape.loop_cuts, stages, Reuse.of(plan))
        cut_module = cut(split_module, shape, plan.cluster)
    except (MicrobatchError, StageError) as error:
        raise PlanError(
            f"this plan was made for another program: it cuts the batch and the stages in ways that"
            f" this one does not allow ({error.message})",
            where=error.where,
            help="plan again for this program",
        ) from error
    sharded = run_on_copy(cut_module, [ApplyShardings(plan.shardings, plan.cluster)])
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
    early_updates: bool = False,
    dump: Dump | None = None,
) -> Executable:
    """Stage programs and their order of execution.

    Args:
        lowering: "local": per-device programs with explicit collectives; "xla": annotated global
            programs that XLA partitions.
        early_updates: as in `Executable`.
        dump: called with a name and the module after each pass.
    """
    family = schedule_named(plan.schedule)
    work = family.work(work_of(sharded, PipelineShape.of(plan)), plan.num_chunks, plan.num_slices)
    lanes = Schedule(parse_lanes(plan.lanes)) if plan.lanes else family.generate(work)
    tasks = family.graph(work, lanes)
    check_complete(lanes, tasks)
    graph = program_graph(
        function_values(sharded),
        lanes,
        tasks,
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
            early_updates=early_updates,
        )

"""Plans a hand-written pipeline: follows the spec and plans the rest."""

import time
from collections.abc import Iterable

from shardc.cluster import Cluster
from shardc.cutting import outline_shape
from shardc.errors import InfeasibleError, InputError
from shardc.ir.context import Module
from shardc.options import PlanOptions
from shardc.plan.decisions import Plan
from shardc.plan.layout import Mesh
from shardc.plan.notes import Data, Note, NoteCode
from shardc.plan.shape import PipelineShape
from shardc.plan.stages_spec import StagesSpec
from shardc.planner.budget import BUDGET
from shardc.planner.candidate import Candidate, plan_exactly, says_more
from shardc.planner.hand.stage_begins import cut_shape, stages_of
from shardc.planner.hand.stage_meshes import meshes_of
from shardc.planner.proposal import Proposal, held_under, with_copies
from shardc.planner.record.recorded_plan import recorded
from shardc.planner.split_cache import Splits
from shardc.schedule.registry import schedule_to_run
from shardc.solver.solve import LimitError


def _planned(
    module: Module, cluster: Cluster, options: PlanOptions, spec: StagesSpec, splits: Splits
) -> Candidate:
    """The fastest on the meshes that the spec allows; raises like `hand_plan`."""
    schedule_to_run(spec.schedule, gathers=bool(spec.gather))
    best: Candidate | None = None
    refusal: InfeasibleError | None = None
    begins, layers = stages_of(module, splits, spec)
    rules = [stage.recompute for stage in spec.stages]
    for meshes in _gathering(spec.gather, meshes_of(spec, cluster)):
        shape = PipelineShape(
            spec.microbatches,
            (),
            meshes,
            spec.schedule,
            options.batch_args,
            num_chunks=spec.chunks,
            gather=spec.gather,
        )
        shape = shape.recomputing(rules, held_under(rules, shape))
        shape = with_copies(cut_shape(splits, shape, begins))
        try:
            found = plan_exactly(
                outline_shape(splits.staged(shape), shape, cluster),
                Proposal(shape, 0.0, layers),
                cluster,
                options,
                time_limit_s=options.time_limit_s,
                effort_s=BUDGET.by_hand.effort_s,
                gap=BUDGET.by_hand.gap,
                asked=[spec.of_stage(n) for n in range(len(spec.stages))] * shape.num_replicas,
            )
        except InfeasibleError as error:
            refusal = error if refusal is None or says_more(error, refusal) else refusal
            continue
        if best is None or found.seconds < best.seconds:
            best = found
    if best is None:
        assert refusal is not None
        if isinstance(refusal, LimitError):
            refusal.help = _ways_out(spec)
        raise refusal
    return best


def _ways_out(spec: StagesSpec) -> str:
    """Advice if a spec does not fit into memory."""
    more = "use more stages, devices or microbatches, or raise the memory limit"
    if all(stage.recompute == "full" for stage in spec.stages):
        return more
    return f'recompute in the backward pass ("recompute": "full" of a stage), {more}'


def _gathering(axis: str, views: Iterable[tuple[Mesh, ...]]) -> list[tuple[Mesh, ...]]:
    """The meshes of stages that have the axis over which parameters are to be gathered."""
    found = list(views)
    fit = [each for each in found if not axis or any(axis in dict(m.axes) for m in each)]
    if not fit:
        names = sorted({name for each in found for mesh in each for name, _ in mesh.axes})
        raise InputError(
            f"the hand-written plan gathers parameters over '{axis}', and its meshes have"
            f" {', '.join(names)}",
            help='name an axis of the mesh: "mesh": {"data": 4, "model": 2}, "gather": "data"',
            code="SHARDC-110",
        )
    return fit


def hand_plan(
    module: Module,
    cluster: Cluster,
    options: PlanOptions,
    spec: StagesSpec,
    splits: Splits | None = None,
) -> Plan:
    """The plan of a spec: its requested shardings, and the cheapest ones elsewhere.

    Where it leaves the mesh of all stages open, each view of an equal share of the devices is
    planned, and the fastest kept. Parameters are cast once per step, unless the copies do not fit
    or the schedule gathers the parameters.

    Args:
        module: prepared; not changed.
        splits: of `module`, if several specs are planned.
    Raises:
        InputError: SHARDC-206 to 209, the spec does not fit itself, the devices or the program; 203
            and 110, a sharding does not fit its value.
        MicrobatchError: the batch does not divide into its microbatches.
        InfeasibleError: SHARDC-220, it does not fit into memory.
    """
    start_s = time.monotonic()
    splits = splits or Splits(module, options.batch_args)
    if spec.gather and splits.cast_once:
        splits = splits.casting_again
    try:
        found = _planned(module, cluster, options, spec, splits)
    except LimitError:
        if not splits.cast_once:
            raise
        splits = splits.casting_again
        found = _planned(module, cluster, options, spec, splits)
    notes = [Note(NoteCode.BY_HAND, {"name": spec.name})]
    used = {device for mesh in found.shape.meshes for device in mesh.device_ids}
    if len(used) < cluster.num_devices:
        idle: Data = {"count": cluster.num_devices - len(used), "num_devices": cluster.num_devices}
        notes.append(Note(NoteCode.IDLE, idle))
    plan = found.plan(splits.of(found.shape), cluster, notes, time.monotonic() - start_s)
    return recorded(plan, found, splits, options.memory_limit_bytes)

"""Ranks the pipelines of the search and hand-written ones, by the same model."""

from collections.abc import Sequence

import msgspec

from shardc.cluster import Cluster
from shardc.errors import InfeasibleError
from shardc.ir.context import Module
from shardc.options import PlanOptions
from shardc.plan.alternatives import Alternative, Alternatives, rank
from shardc.plan.decisions import Plan
from shardc.plan.notes import NoteCode
from shardc.plan.stages_spec import StagesSpec
from shardc.planner.attempts import SEARCH, Progress
from shardc.planner.hand.hand_plan import hand_plan
from shardc.planner.plan_program import search_program
from shardc.planner.split_cache import Splits
from shardc.solver.solve import LimitError


def ranked_plans(
    module: Module,
    cluster: Cluster,
    options: PlanOptions,
    most: int,
    specs: Sequence[StagesSpec] = (),
    progress: Progress | None = None,
) -> tuple[Plan, Alternatives]:
    """The fastest plan of all, and at least `most` pipelines ranked, if there are that many.

    The search prices more shapes than for its own plan, and plans the best of them exactly; every
    spec is planned.

    Args:
        module: prepared; not changed.
    Raises:
        ShardcError: as in `shardc.planner.plan_program.plan_program` if nothing fits, and as in
            `hand_plan` for an invalid spec.
    """
    planner, searched = search_program(module, cluster, options, progress, max(most, 1))
    plan = searched if isinstance(searched, Plan) else None
    refusal = searched if isinstance(searched, InfeasibleError) else None
    found = [*planner.tried.judged.values()]
    if planner.promising is not None:
        known = {_shape(each) for each in found}
        judged = [planner.promising.search.judged(f, SEARCH) for f in planner.promising.found]
        found += [each for each in judged if _shape(each) not in known]
    splits = Splits(module, options.batch_args)
    for spec in specs:
        try:
            by_hand = hand_plan(module, cluster, options, spec, splits)
        except LimitError as error:
            found.append(_too_large(spec, error.missing_bytes))
            refusal = refusal or error
            continue
        found.append(by_hand.judged(spec.name))
        if plan is None or by_hand.predicted.step_time_s < plan.predicted.step_time_s:
            plan = by_hand
    if plan is None:
        assert refusal is not None
        raise refusal
    noted = {note.code for note in planner.tried.notes}
    return plan, Alternatives(rank(found), NoteCode.NOT_ALL_PRICED not in noted)


def _shape(each: Alternative) -> Alternative:
    """The alternative without its predictions."""
    return msgspec.structs.replace(each, estimate_s=None, exact=None, missing_bytes=0)


def _too_large(spec: StagesSpec, missing_bytes: int) -> Alternative:
    stages = [spec.of_stage(number) for number in range(len(spec.stages))]
    meshes = tuple(tuple(size for _, size in stage.axes or ()) for stage in stages)
    return Alternative(
        spec.name, spec.microbatches, spec.schedule, meshes, missing_bytes=missing_bytes
    )

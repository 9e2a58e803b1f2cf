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
from shardc.planner.hand.beside import not_planned
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
    spec is planned. What is only estimated ranks behind what was planned, so the plan comes first,
    and is recorded with the pipelines that are shown beside it (`Alternatives.shown`).

    Args:
        module: prepared; not changed.
        most: pipelines to show, besides the specs.
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
    own: Alternative | None = None  # the plan, if it is by hand
    for spec in specs:
        try:
            by_hand = hand_plan(module, cluster, options, spec, splits)
        except LimitError as error:
            found.append(not_planned(spec, missing_bytes=error.missing_bytes))
            refusal = refusal or error
            continue
        found.append(by_hand.judged(spec.name))
        if plan is None or by_hand.predicted.step_time_s < plan.predicted.step_time_s:
            plan, own = by_hand, found[-1]
    if plan is None:
        assert refusal is not None
        raise refusal
    noted = {note.code for note in planner.tried.notes}
    ranked = Alternatives(rank(found), NoteCode.NOT_ALL_PRICED not in noted)
    beside = [each for _, each in ranked.shown(most) if each is not own]
    return _recorded_with(plan, beside), ranked


def _recorded_with(plan: Plan, beside: Sequence[Alternative]) -> Plan:
    """The plan, with these pipelines in its account."""
    if plan.account is None:
        return plan
    judged = rank(dict.fromkeys([*plan.account.judged, *beside]))
    account = msgspec.structs.replace(plan.account, judged=judged)
    return msgspec.structs.replace(plan, account=account)


def _shape(each: Alternative) -> Alternative:
    """The alternative without its predictions."""
    return msgspec.structs.replace(each, estimate_s=None, exact=None, missing_bytes=0)

"""Plans the usual hand-written plans besides a plan, and records the results with it."""

import msgspec

from shardc.cluster import Cluster
from shardc.errors import InfeasibleError, InputError
from shardc.ir.context import Module
from shardc.options import PlanOptions
from shardc.plan.alternatives import Alternative, rank
from shardc.plan.decisions import Plan
from shardc.plan.shape import Reuse
from shardc.plan.stages_spec import StagesSpec
from shardc.planner.attempts import Progress
from shardc.planner.hand.hand_plan import hand_plan
from shardc.planner.hand.usual import usual_plans
from shardc.planner.split_cache import Splits
from shardc.solver.interrupt import finish, poll
from shardc.solver.solve import LimitError


def with_usual_plans(
    module: Module,
    plan: Plan,
    cluster: Cluster,
    options: PlanOptions,
    progress: Progress | None = None,
) -> Plan:
    """The same plan, with an account that ranks the usual hand-written plans.

    For plans that do not fit, the account has the missing bytes; for those that the program does
    not allow, the error. Ctrl-C keeps the plans so far, and `has_usual` stays False.

    Args:
        module: prepared; not changed.
    """
    if plan.account is None or plan.account.has_usual:
        return plan
    found: list[Alternative] = []
    batch = plan.batch_arguments or None, plan.batch_dims
    splits = Splits(module, *batch, reuse=Reuse.of(plan))
    known = {each.name for each in plan.account.judged if each.by_hand}
    specs = [spec for spec in usual_plans(plan, cluster) if spec.name not in known]
    complete = True
    try:
        for number, spec in enumerate(specs, 1):
            poll()
            if progress is not None:
                progress(f"planning by hand, {number} of {len(specs)}: {spec.name}")
            found.append(_judged(module, cluster, options, spec, splits))
    except KeyboardInterrupt:
        finish()
        complete = False
    account = msgspec.structs.replace(
        plan.account, judged=rank([*plan.account.judged, *found]), has_usual=complete
    )
    return msgspec.structs.replace(plan, account=account)


def _judged(
    module: Module, cluster: Cluster, options: PlanOptions, spec: StagesSpec, splits: Splits
) -> Alternative:
    refusal = splits.refusal(spec.microbatches)
    if refusal is not None:
        return not_planned(spec, refusal=refusal.message)
    try:
        return hand_plan(module, cluster, options, spec, splits).judged(spec.name)
    except LimitError as error:
        return not_planned(spec, missing_bytes=error.missing_bytes)
    except (InfeasibleError, InputError) as error:
        return not_planned(spec, refusal=f"{error.code}: {error.message}")


def not_planned(spec: StagesSpec, *, missing_bytes: int = 0, refusal: str = "") -> Alternative:
    """A spec among alternatives, if it does not fit or is refused; without meshes, if it leaves
    them open."""
    axes = [spec.of_stage(number).axes for number in range(len(spec.stages))]
    return Alternative(
        spec.name,
        spec.microbatches,
        spec.schedule,
        tuple(tuple(size for _, size in each) for each in axes if each is not None),
        missing_bytes=missing_bytes,
        refusal=refusal,
        by_hand=True,
    )

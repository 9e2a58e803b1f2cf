"""Plan what a person would write by hand beside a plan, and keep what came of it with the plan."""

import msgspec

from shardc.cluster import Cluster
from shardc.errors import InputError, PlanError
from shardc.ir.context import Module
from shardc.options import PlanOptions
from shardc.plan.alternatives import Alternative, judged_plan, rank
from shardc.plan.decisions import Plan
from shardc.planner.hand.plan import hand_plan
from shardc.planner.hand.usual import usual_plans
from shardc.planner.split_cache import Splits
from shardc.solver.solve import LimitError


def with_usual_plans(module: Module, plan: Plan, cluster: Cluster, options: PlanOptions) -> Plan:
    """The same plan, beside which its account ranks the usual plans by hand that fit.

    Plans that the program does not allow are left out; of those that do not fit it is said by how
    much.

    Args:
        module: prepared; not changed.
    """
    if plan.account is None:
        return plan
    found: list[Alternative] = []
    splits = Splits(module, plan.batch_arguments or None, plan.batch_dims)
    for spec in usual_plans(plan, cluster):
        if splits.refusal(spec.microbatches) is not None:
            continue
        try:
            found.append(judged_plan(hand_plan(module, cluster, options, spec, splits), spec.name))
        except LimitError as error:
            shape = tuple(spec.mesh.values()) if isinstance(spec.mesh, dict) else ()
            meshes = (shape,) * len(spec.stages)
            found.append(
                Alternative(
                    spec.name,
                    spec.microbatches,
                    spec.schedule,
                    meshes,
                    missing_bytes=error.missing_bytes,
                )
            )
        except (PlanError, InputError):
            continue  # the program has no such stages, or arguments do not divide
    account = msgspec.structs.replace(plan.account, judged=rank([*plan.account.judged, *found]))
    return msgspec.structs.replace(plan, account=account)

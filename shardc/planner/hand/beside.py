"""Plans the usual hand-written plans besides a plan, and records the results with it."""

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
    """The same plan, with an account that ranks the usual hand-written plans.

    Plans that the program does not allow are left out; for those that do not fit, the account has
    the missing bytes.

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
            continue  # the program does not have these stages, or arguments do not divide
    account = msgspec.structs.replace(plan.account, judged=rank([*plan.account.judged, *found]))
    return msgspec.structs.replace(plan, account=account)

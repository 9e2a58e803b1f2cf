"""The costs of the shardings that the user requests, and which of them exceed the memory."""

from collections.abc import Callable, Sequence

from shardc.analysis.program.stage_table import user_sharding_names
from shardc.cluster import Cluster
from shardc.cutting import outline_shape, split, with_stages
from shardc.errors import InfeasibleError
from shardc.ir.context import Module
from shardc.options import PlanOptions
from shardc.plan.decisions import Plan
from shardc.plan.shape import PipelineShape, Reuse
from shardc.planner.budget import BUDGET
from shardc.planner.candidate import Candidate, plan_exactly
from shardc.planner.proposal import Proposal


def asked_prices(
    module: Module, plan: Plan, cluster: Cluster, options: PlanOptions
) -> dict[str, float]:
    """The cost of each requested sharding: name -> seconds per step.

    The predicted step time of the plan's pipeline with it minus the time without it, each solved
    again; so it is accurate to the solver's gap (1 %), and may be negative.
    """
    count, shape = plan.num_microbatches, PipelineShape.of(plan)
    proposal = Proposal(shape, 0.0, tuple(stage.layers for stage in plan.stages))
    batch = plan.batch_arguments, plan.batch_dims
    cuts = plan.loop_cuts, shape.num_stages
    split_module = split(module, count, *batch, *cuts, Reuse.of(plan))
    outlined = outline_shape(with_stages(split_module, shape.cuts), shape, cluster)

    def step_s(ignored: Sequence[str]) -> float:
        return plan_exactly(
            outlined,
            proposal,
            cluster,
            options,
            time_limit_s=options.time_limit_s / 2,
            effort_s=BUDGET.final.effort_s,
            gap=BUDGET.final.gap,
            ignored=ignored,
        ).seconds

    names = _names(outlined)
    whole_s = step_s(()) if names else 0.0
    return {name: whole_s - step_s([name]) for name in names}


def in_conflict(
    outlined: Module, error: InfeasibleError, plan_without: Callable[..., Candidate]
) -> InfeasibleError:
    """`error`, naming the requested shardings that leave too little memory.

    Args:
        plan_without: plans the shape of `outlined`, ignoring requested shardings by name.
    """

    def fits(ignored: Sequence[str]) -> bool:
        try:
            plan_without(ignored=ignored)
        except InfeasibleError:
            return False
        return True

    names = _names(outlined)
    in_the_way = [name for name in names if fits([name])]
    if not in_the_way and len(names) > 1 and fits(names):
        in_the_way = [f"all of {', '.join(names)} together"]
    if not in_the_way:
        return error
    return InfeasibleError(
        f"{error.message}; it would fit without the request of {' or '.join(in_the_way)}",
        where=error.where,
        help="split it further, leave it to the planner, or raise the memory limit",
    )


def _names(outlined: Module) -> list[str]:
    with outlined.context:
        return user_sharding_names(outlined.operation)

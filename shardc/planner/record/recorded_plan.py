"""Records what a plan does while its program and simulated schedule are available."""

from collections.abc import Sequence

import msgspec

from shardc.analysis.roles.read_account import account_of
from shardc.cost.model import CostModel
from shardc.importer.requested_shardings import requested_shardings
from shardc.plan.account import Account, Sent, Timed
from shardc.plan.alternatives import Alternative, rank
from shardc.plan.decisions import Plan
from shardc.planner.candidate import Candidate
from shardc.planner.split_cache import Splits
from shardc.solver.interrupt import OutOfGraceError


def recorded(
    plan: Plan,
    made_of: Candidate,
    splits: Splits,
    asked_bytes: int | None,
    judged: Sequence[Alternative] = (),
) -> Plan:
    """The plan with the shardings requested for it and an account of what it does; without an
    account, if planning was interrupted and it takes too long.

    Args:
        made_of: the candidate behind the plan.
        asked_bytes: the user's memory limit of a device; None: its memory.
        judged: pipelines considered besides it.
    """
    module, step = made_of.module, made_of.step
    cluster = plan.cluster
    assert cluster is not None, "a plan that was just made has a cluster"
    plan = msgspec.structs.replace(plan, requested=requested_shardings(splits.module))
    with module.context:
        model = CostModel(cluster)
        try:
            facts = account_of(module.operation, model, splits.examples, made_of.reports)
        except OutOfGraceError:
            return plan
    timeline = tuple(
        Timed(str(each.action), each.device, float(each.start_s), float(each.end_s))
        for each in step.simulation.timeline
        if each.end_s > each.start_s
    )
    account = Account(
        asked_bytes or plan.fullest()[0].memory_bytes,
        facts.arguments,
        facts.axes,
        facts.worst,
        facts.parts,
        facts.products,
        timeline,
        tuple(_sent(made_of)),
        rank(judged),
        facts.alive,
    )
    return msgspec.structs.replace(plan, account=account)


def _sent(made_of: Candidate) -> list[Sent]:
    """Sends between device groups, each message once, in lane order."""
    schedule, graph = made_of.step.schedule, made_of.step.graph
    found: dict[tuple[str, int], Sent] = {}
    for lane in schedule.lanes:
        for task in lane:
            for need in graph.needs[task]:
                if need.source != need.target and need.num_bytes:
                    key = str(need.task), need.target
                    found.setdefault(key, Sent(str(need.task), str(task), int(need.num_bytes)))
    return list(found.values())

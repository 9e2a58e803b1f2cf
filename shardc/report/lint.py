"""The findings of `shardc lint`: about the plan, and about the programs lowered from it."""

from shardc import compiler
from shardc.analysis.roles.costly_collectives import CostlyCollective, costly_collectives
from shardc.cost.model import CostModel
from shardc.ir.context import Module
from shardc.plan.decisions import Plan
from shardc.report.findings import findings
from shardc.report.model import Finding
from shardc.report.summary import size


def lint(prepared: Module, plan: Plan) -> tuple[Finding, ...]:
    """All findings, most expensive first.

    Args:
        prepared: the module that the plan was made for; not changed.
    """
    last: list[Module] = []
    sharded = compiler.replay(prepared, plan)
    compiler.lower(sharded, plan, dump=lambda name, module: last.append(module))
    found: list[Finding] = list(findings(plan))
    if last:  # the local form, with its source lines
        with last[-1].context:
            costly = list(costly_collectives(last[-1].operation))
        found += [_finding(each, plan) for each in costly]
    return tuple(sorted(found, key=lambda each: (-each.seconds, -each.num_bytes)))


def _finding(each: CostlyCollective, plan: Plan) -> Finding:
    name = each.op.removeprefix("stablehlo.")
    price_s = _seconds(each, plan)
    if each.narrow:
        return Finding(
            "upcast-before-collective",
            f"{name} of stage {each.stage} sends values that were {each.narrow} just before:"
            f" {size(each.wasted_bytes)} more per step",
            "convert after it, or compute in the narrower type",
            price_s,
            each.wasted_bytes,
            each.place,
        )
    return Finding(
        "collective-in-loop",
        f"{name} of stage {each.stage} runs {each.loops} times in a loop: {size(each.wasted_bytes)}"
        " more per step than if it ran once",
        "move what does not change out of the loop, or shard what it gathers differently",
        price_s,
        each.wasted_bytes,
        each.place,
    )


def _seconds(each: CostlyCollective, plan: Plan) -> float:
    """Time of the wasted bytes over the slowest link of the stage's mesh."""
    mesh = plan.stages[each.stage].mesh
    if plan.cluster is None or not mesh.axes:
        return 0.0
    links = CostModel(plan.cluster).links(mesh).values()
    return each.wasted_bytes / min(link.bandwidth_bytes_per_s for link in links)

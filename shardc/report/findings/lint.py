"""The findings of `shardc lint`: about the plan, and about the programs lowered from it."""

from shardc import compiler
from shardc.analysis.roles.costly_collectives import CostlyCollective, costly_collectives
from shardc.analysis.roles.replicated_values import ReplicatedValue, replicated_values
from shardc.cost.model import CostModel
from shardc.ir.context import Module
from shardc.plan.decisions import Plan
from shardc.plan.layout import stage_names
from shardc.plan.notes import size
from shardc.report.findings.of_plan import by_price, findings
from shardc.report.model import Finding

LARGE = 0.01  # a value with at least this share of the peak is large


def lint(prepared: Module, plan: Plan) -> tuple[Finding, ...]:
    """All findings, most expensive first.

    Args:
        prepared: the module that the plan was made for; not changed.
    """
    last: list[Module] = []
    sharded = compiler.replay(prepared, plan)
    with sharded.context:
        whole = list(replicated_values(sharded.operation, int(LARGE * plan.fullest()[1])))
    compiler.lower(sharded, plan, dump=lambda name, module: last.append(module))
    found: list[Finding] = list(findings(plan))
    if last:  # the local form, with its source lines
        with last[-1].context:
            costly = list(costly_collectives(last[-1].operation))
        found += [_finding(each, plan) for each in costly]
    found += [_of_value(each, plan) for each in whole]
    return tuple(sorted(found, key=by_price))


def _of_value(each: ReplicatedValue, plan: Plan) -> Finding:
    devices = len(plan.stages[each.stage].mesh.device_ids)
    stage = stage_names([each.stage], len(plan.own_stages))
    share = 1 - 1 / devices
    price_s = None
    if plan.cluster is not None:
        model = CostModel(plan.cluster).on(plan.stages[each.stage].mesh)
        price_s = model.op_s(each.work) * each.count * each.calls * share
    shape, times = "x".join(map(str, each.shape)), f"{each.count} x " if each.count > 1 else ""
    return Finding(
        "replicated-result",
        f"{each.op.removeprefix('stablehlo.')} of {stage} makes {times}{shape}"
        f" {each.dtype} ({size(each.num_bytes)}) whole on each of {devices} devices",
        f"{_help_of_whole(each, plan)}, or request a sharding with with_sharding_constraint",
        price_s,
        int(each.num_bytes * each.count * share),
        each.place,
    )


def _help_of_whole(each: ReplicatedValue, plan: Plan) -> str:
    axes = [size for _, size in plan.stages[each.stage].mesh.axes if size > 1]
    if any(length % count == 0 for length in each.shape for count in axes):
        return "splitting costs more than it saves here: use fewer devices, or a larger batch"
    return "give it a dim that divides by the mesh, such as a larger batch"


def _finding(each: CostlyCollective, plan: Plan) -> Finding:
    name = each.op.removeprefix("stablehlo.")
    stage = stage_names([each.stage], len(plan.own_stages))
    price_s = _seconds(each, plan)
    if each.narrow:
        return Finding(
            "upcast-before-collective",
            f"{name} of {stage} sends values that were {each.narrow} just before:"
            f" {size(each.wasted_bytes)} more per step",
            "convert after it, or compute in the narrower type",
            price_s,
            each.wasted_bytes,
            each.place,
        )
    return Finding(
        "collective-in-loop",
        f"{name} of {stage} runs {each.loops} times in a loop: {size(each.wasted_bytes)}"
        " more per step than if it ran once",
        "move what does not change out of the loop, or shard what it gathers differently",
        price_s,
        each.wasted_bytes,
        each.place,
    )


def _seconds(each: CostlyCollective, plan: Plan) -> float | None:
    """Time of the wasted bytes over the slowest link of the stage's mesh, if that is known."""
    mesh = plan.stages[each.stage].mesh
    if plan.cluster is None or not mesh.axes:
        return None
    links = CostModel(plan.cluster).links(mesh).values()
    return each.wasted_bytes / min(link.bandwidth_bytes_per_s for link in links)

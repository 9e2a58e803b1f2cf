"""Reads a plan: produces its full description, as data."""

from collections.abc import Iterator

import msgspec

from shardc.cost.collectives import collective_s
from shardc.cost.model import CostModel
from shardc.plan.account import Account, ArgumentKind, Worst
from shardc.plan.alternatives import Alternative, rank
from shardc.plan.decisions import Plan
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import ranges
from shardc.report.axis_words import axis_words, headline
from shardc.report.findings.of_plan import WARN, findings
from shardc.report.folding import fold_alive, fold_arguments, fold_layers
from shardc.report.memory_curve import group_of_action, worst_microbatch
from shardc.report.model import (
    AxisWords,
    Communication,
    Crossing,
    Fit,
    Group,
    Reading,
    StageWords,
)
from shardc.report.sources import sources_of
from shardc.report.summary import mesh_text

THIS = "this plan"
_LETTERS = {FunctionKind.FORWARD: "F", FunctionKind.BACKWARD: "BX", FunctionKind.WEIGHT: "WX"}

_OF_TRAINING = {FunctionKind.BACKWARD, FunctionKind.WEIGHT}


def read_plan(plan: Plan) -> Reading:
    """The full description of a plan."""
    account = plan.account
    axes: tuple[AxisWords, ...] = ()
    groups_of_arguments: tuple[Group, ...] = ()
    if account is not None:
        trains = any(part.kind in _OF_TRAINING for part in account.parts)
        axes = tuple(axis_words(use, trains=trains) for use in account.axes if use.size > 1)
        groups_of_arguments = fold_arguments(account.arguments)
        if not trains:
            groups_of_arguments = tuple(map(_carried, groups_of_arguments))
    terms, fit, communication = plan.terms, _fit(plan), tuple(_communication(plan))
    # A vector of no argument is a constant of the program, such as a mask of ones.
    products = [p for p in account.products if p.name or len(p.weight) > 1] if account else []
    return Reading(
        headline=headline(len(plan.groups), plan.num_chunks, axes, len(plan.own_stages)),
        cluster="" if plan.cluster is None else plan.cluster.name,
        num_microbatches=plan.num_microbatches,
        schedule=plan.schedule,
        terms=terms,
        stages=tuple(
            StageWords(
                mesh_text(stage.mesh),
                ranges(stage.mesh.device_ids),
                ranges(stage.layers),
                stage.num_flops,
                stage.objective,
                stage.peak_bytes,
                stage.memory,
            )
            for stage in plan.stages
        ),
        num_own_stages=len(plan.own_stages),
        axes=axes,
        layers=fold_layers([each for each in products if each.stage < len(plan.own_stages)]),
        groups=groups_of_arguments,
        crossings=_crossings(plan, account) if account else (),
        fit=fit,
        communication=communication,
        judged=judged(plan),
        warnings=tuple(each for each in findings(plan) if each.kind in WARN),
        notes=tuple(map(str, plan.notes)),
        has_account=account is not None,
        sources=sources_of(plan, terms, fit, communication),
        alive=fold_alive(account.alive) if account else (),
    )


def _carried(group: Group) -> Group:
    """Arguments of a program that does not train: those that reappear in its results are state."""
    if group.kind != ArgumentKind.PARAMETERS:
        return group
    return msgspec.structs.replace(group, kind="state")


def judged(plan: Plan) -> tuple[Alternative, ...]:
    """The plan itself, and the other pipelines considered, fastest first."""
    own = plan.judged(THIS)
    others = () if plan.account is None else plan.account.judged
    return rank([own, *(each for each in others if not _is(each, own))])


def _is(each: Alternative, own: Alternative) -> bool:
    """Whether this is the chosen pipeline, as judged during the search."""
    return (
        not each.by_hand
        and (each.num_microbatches, each.schedule, each.meshes)
        == (own.num_microbatches, own.schedule, own.meshes)
        and each.exact is not None
        and own.exact is not None
        and abs(each.exact.step_time_s - own.exact.step_time_s) <= 1e-9 * own.exact.step_time_s
    )


def _fit(plan: Plan) -> Fit:
    group, peak = plan.fullest()
    stage = max(group.stages, key=lambda n: plan.stages[n].peak_bytes)
    account = plan.account
    if account is None:
        return Fit(group.memory_bytes, peak, stage, "")
    worst = next((each for each in account.worst if each.stage == stage), None)
    when = "" if worst is None else _when(account, worst, plan.num_microbatches)
    return Fit(account.limit_bytes, peak, stage, when)


def _when(account: Account, worst: Worst, num_microbatches: int) -> str:
    """`backward of blocks.3.up, microbatch 2 (model.py:87)`"""
    where = ".".join(worst.path[-3:])
    kind = "weight gradient" if worst.kind is FunctionKind.WEIGHT else worst.kind.value
    words = kind if where in ("", kind) else f"{kind} of {where}"  # updates are a part of their own
    number = worst_microbatch(account, worst.stage, _LETTERS.get(worst.kind, ""))
    if num_microbatches > 1 and number is not None:
        words += f", microbatch {number}"
    return f"{words}, {worst.place}" if worst.place and "unknown" not in worst.place else words


def _crossings(plan: Plan, account: Account) -> tuple[Crossing, ...]:
    group_of = group_of_action(plan)
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for each in account.sent:
        key = tuple(group_of(action) for action in (each.source, each.target))
        count, num_bytes = found.get((key[0], key[1]), (0, 0))
        found[key[0], key[1]] = count + 1, num_bytes + each.num_bytes
    return tuple(Crossing(*key, *found[key]) for key in sorted(found))


def _communication(plan: Plan) -> Iterator[Communication]:
    """Of each stage by kind and axes, for all types of elements together."""
    if plan.cluster is None:
        return
    model = CostModel(plan.cluster)
    for number, stage in enumerate(plan.stages):
        links = model.links(stage.mesh) if stage.collectives else {}
        found: dict[tuple[tuple[str, ...], str], Communication] = {}
        for each in stage.collectives:
            axes = [(stage.mesh.size(axis), links[axis]) for axis in each.axes]
            took_s = each.count * collective_s(each, axes) if each.count else 0.0
            key = each.axes, each.kind
            known = found.get(key, Communication(number, *key, 0.0, 0, 0.0))
            found[key] = msgspec.structs.replace(
                known,
                count=known.count + each.count,
                num_bytes=known.num_bytes + each.num_bytes,
                seconds=known.seconds + took_s,
            )
        yield from found.values()

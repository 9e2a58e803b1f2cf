"""Avoidable costs of a plan, each with its price."""

from collections.abc import Iterator

from shardc.plan.account import Account, Role
from shardc.plan.decisions import Plan
from shardc.plan.layout import stage_names
from shardc.plan.notes import Note, NoteCode, size
from shardc.report.findings.of_state import of_state
from shardc.report.findings.padding import of_uneven_dims
from shardc.report.model import Finding

COMMUNICATION, WAITING = 0.5, 0.3  # shares of a step that deserve a warning
IDLE = 0.5  # share of an axis's FLOPs
# The warnings in a plan's description; `shardc lint` has all of them.
WARN = frozenset("communication waiting unproven no-batch tight idle-axis uneven-dim".split())
TIGHT = 0.97  # share of the memory limit
FAR = 0.1  # share of a step by which the optimum may be shorter
REPLICATED = 0.05  # share of a step
NAME_IT = "name it: --batch-args, batch_argnums"  # of plans whose notes have no help


def findings(plan: Plan) -> tuple[Finding, ...]:
    """The findings on a plan, most expensive first."""
    found = [*_of_time(plan), *_of_solver(plan), *_of_notes(plan)]
    if plan.account is not None:
        found += [*_of_memory(plan, plan.account), *_of_axes(plan, plan.account)]
        uneven = of_uneven_dims(plan, plan.account)
        found += [*uneven.values(), *of_state(plan, plan.account, uneven.keys())]
    return tuple(sorted(found, key=by_price))


def by_price(found: Finding) -> tuple[float, int]:
    """Key for sorting, the most expensive first."""
    return -(found.seconds or 0.0), -found.num_bytes


def _of_time(plan: Plan) -> Iterator[Finding]:
    terms = plan.terms
    step_s = max(terms.step_time_s, 1e-300)
    devices = len({d for stage in plan.stages for d in stage.mesh.device_ids})
    if terms.communication_s >= COMMUNICATION * step_s and devices > 1:
        work_s = sum(
            (stage.objective - stage.communication_s) * len(stage.mesh.device_ids)
            for stage in plan.stages
        )
        fewer = max(devices // 4, 1)
        yield Finding(
            "communication",
            f"communication is {terms.communication_s / step_s:.0%} of the step: the model is too"
            f" small for {devices} devices; on {fewer} it would take at least"
            f" {work_s / fewer / step_s:.2g} x as long, which is its compute alone",
            "use fewer devices, or a larger batch",
            terms.communication_s,
        )
    if terms.waiting_s >= WAITING * step_s:
        more = not any(map(_has_fewer_microbatches, plan.notes))
        if plan.num_microbatches == 1:
            why = "has one microbatch, for which they wait in turn"
            help = "use more microbatches, or fewer stages" if more else "use fewer stages"
        else:
            why = f"fills and drains with {plan.num_microbatches} microbatches"
            ways = "fewer stages, or a schedule with less idle time"
            help = f"use more microbatches, {ways}" if more else f"use {ways}"
        yield Finding(
            "waiting",
            f"the busiest devices idle for {terms.waiting_s / step_s:.0%} of the step: the pipeline"
            f" of {plan.num_stages} stages {why}",
            help,
            terms.waiting_s,
        )


def _of_solver(plan: Plan) -> Iterator[Finding]:
    gap_s = plan.objective - plan.lower_bound
    if gap_s > FAR * plan.objective:
        yield Finding(
            "unproven",
            f"the search has not proven its shardings: these stages might be up to"
            f" {gap_s / plan.objective:.0%} faster",
            "plan with a longer --time-limit",
            gap_s,
        )


def _of_notes(plan: Plan) -> Iterator[Finding]:
    for note in plan.notes:
        if note.code is NoteCode.REPLICATED and float(note.data["time_share"]) >= REPLICATED:
            help = {
                "rule": "write it with ops that have a rule",
                "strategy": "give it dims that divide by the mesh",
                "choice": "it is cheaper this way here; a larger batch may change that",
            }
            words = f"every device repeats the same work: {note}"
            why = help[str(note.data["why"])]
            yield Finding("replicated-op", words, why, float(note.data["seconds"]))
        elif _has_fewer_microbatches(note) and plan.num_microbatches == 1:
            words = f"the batch is not split into microbatches: {note.data['reason']}"
            held = max(stage.memory.stash + stage.memory.temporaries for stage in plan.stages)
            yield Finding(
                "no-batch",
                words,
                f"{note.data.get('help', NAME_IT)}; two microbatches may hold half of the"
                f" {size(held)} of activations",
                num_bytes=held // 2,
            )


def _has_fewer_microbatches(note: Note) -> bool:
    """Whether a note says why there are not more microbatches."""
    return note.code is NoteCode.FEWER and note.data["what"] == "microbatches"


def _of_memory(plan: Plan, account: Account) -> Iterator[Finding]:
    _, peak = plan.fullest()
    if peak >= TIGHT * account.limit_bytes:
        yield Finding(
            "tight",
            f"devices are {peak / account.limit_bytes:.1%} full at the peak, and the memory model"
            " is off by a few per cent",
            "set --memory-limit a few per cent lower",
            num_bytes=peak,
        )


def _of_axes(plan: Plan, account: Account) -> Iterator[Finding]:
    for use in account.axes:
        share = use.flops.get(Role.WHOLE, 0.0)
        if use.size > 1 and share >= IDLE:
            stage, name = plan.stages[use.stage], stage_names([use.stage], len(plan.own_stages))
            price_s = (stage.objective - stage.communication_s) * share * (1 - 1 / use.size)
            yield Finding(
                "idle-axis",
                f"axis {use.axis} ({use.size} devices) of {name} repeats the same work"
                f" {use.size} times for {share:.0%} of the FLOPs",
                _help_of_idle_axis(plan),
                price_s,
            )


def _help_of_idle_axis(plan: Plan) -> str:
    """Depends on what prevented splitting most of the FLOPs: their dims, or the cost."""
    shares = {"choice": 0.0, "dims": 0.0}
    for note in plan.notes:
        if note.code is NoteCode.REPLICATED:
            kind = "choice" if note.data["why"] == "choice" else "dims"
            shares[kind] += float(note.data["flops_share"])
    if shares["choice"] > shares["dims"]:
        return "splitting costs more than it saves here: use fewer devices, or a larger batch"
    return "use a smaller mesh, or a batch and features that divide by it"

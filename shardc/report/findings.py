"""Avoidable costs of a plan, each with its price."""

from collections.abc import Iterator

from shardc.plan.account import Account, ArgumentKind, Role
from shardc.plan.alternatives import terms_of
from shardc.plan.decisions import Plan
from shardc.plan.notes import NoteCode
from shardc.report.model import Finding
from shardc.report.summary import seconds, size

COMMUNICATION, WAITING = 0.5, 0.3  # shares of a step that deserve a warning
IDLE = 0.5  # share of an axis's FLOPs
# The warnings in a plan's description; `shardc lint` has all of them.
WARN = frozenset("communication waiting unproven no-batch tight idle-axis uneven-dim".split())
TIGHT = 0.97  # share of the memory limit
FAR = 0.1  # share of a step by which the optimum may be shorter
LARGE = 0.01  # a replicated value with at least this share of a device's state is large
REPLICATED = 0.05  # share of a step
PADDED = 128  # an awkward dim is rounded up to a multiple of this
MOST_PADDING = 0.05  # share by which padding may lengthen a dim
WORTH_PADDING = 0.001  # share of the peak, or of the step, that it must gain


def findings(plan: Plan) -> tuple[Finding, ...]:
    """The findings on a plan, most expensive first."""
    found = [*_of_time(plan), *_of_solver(plan), *_of_notes(plan)]
    if plan.account is not None:
        found += [*_of_memory(plan, plan.account), *_of_axes(plan, plan.account)]
        found += [*_of_state(plan, plan.account), *_of_uneven_dims(plan, plan.account)]
    return tuple(sorted(found, key=lambda each: (-each.seconds, -each.num_bytes)))


def _of_time(plan: Plan) -> Iterator[Finding]:
    terms = terms_of(plan)
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
            f" small for {devices} devices; on {fewer} its compute alone would take"
            f" {work_s / fewer / step_s:.2g} x the time of this step",
            "use fewer devices, or a larger batch",
            terms.communication_s,
        )
    if terms.waiting_s >= WAITING * step_s:
        yield Finding(
            "waiting",
            f"the busiest devices idle for {terms.waiting_s / step_s:.0%} of the step: the pipeline"
            f" of {plan.num_stages} stages fills and drains with {plan.num_microbatches}"
            " microbatches",
            "use more microbatches, fewer stages, or a schedule with less idle time",
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
        elif note.code is NoteCode.FEWER and note.data["what"] == "microbatches":
            words = f"the batch is not split into microbatches: {note.data['reason']}"
            yield Finding("no-batch", words, "name it: --batch-args, batch_argnums")


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
            stage = plan.stages[use.stage]
            price_s = (stage.objective - stage.communication_s) * share * (1 - 1 / use.size)
            yield Finding(
                "idle-axis",
                f"axis {use.axis} ({use.size} devices) of stage {use.stage} repeats the same work"
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


def _of_state(plan: Plan, account: Account) -> Iterator[Finding]:
    for stage, planned in enumerate(plan.stages):
        devices = len(planned.mesh.device_ids)
        if devices == 1:
            continue
        own = [a for a in account.arguments if a.stage == stage]
        state_bytes = sum(a.num_bytes for a in own if a.kind is not ArgumentKind.INPUTS)
        for kind, name in (
            (ArgumentKind.OPTIMIZER, "unsharded-optimizer"),
            (ArgumentKind.PARAMETERS, "replicated-value"),
        ):
            whole = [
                a
                for a in own
                if a.kind is kind and not a.lies.axes and a.num_bytes > LARGE * state_bytes
            ]
            if whole:
                held = sum(a.num_bytes for a in whole)
                saved = held - held // devices
                what = "optimizer state" if kind is ArgumentKind.OPTIMIZER else "parameters"
                yield Finding(
                    name,
                    f"{len(whole)} large values of the {what} of stage {stage} are replicated on"
                    f" {devices} devices ({whole[0].name} first): {size(held)} on each",
                    f"splitting them would save up to {size(saved)} on each; request that with a"
                    " lower --memory-limit",
                    num_bytes=saved,
                )


def _of_uneven_dims(plan: Plan, account: Account) -> Iterator[Finding]:
    """Large dims of parameters that no axis divides, but that an axis would divide if padded."""
    seen: set[tuple[tuple[int, ...], int]] = set()
    for each in account.arguments:
        mesh = plan.stages[each.stage].mesh
        if each.kind is not ArgumentKind.PARAMETERS or len(mesh.device_ids) == 1:
            continue
        for dim, length in enumerate(each.shape):
            odd = all(length % n for _, n in mesh.axes if n > 1)
            longer = -(-length // PADDED) * PADDED
            more = longer / max(length, 1) - 1
            if not odd or length < PADDED or more > MOST_PADDING or (each.shape, dim) in seen:
                continue
            seen.add((each.shape, dim))
            best = max((n for _, n in mesh.axes if not longer % n), default=1)
            saved = each.num_bytes - each.num_bytes // best
            product_s = _seconds_of(account, each.name)
            gained_s = product_s * (1 - 1 / best)
            step_s, peak = plan.predicted.step_time_s, plan.fullest()[1]
            if saved < WORTH_PADDING * peak and gained_s < WORTH_PADDING * step_s:
                continue
            gain = f", and a step may take up to {seconds(gained_s)} less"
            yield Finding(
                "uneven-dim",
                f"dim {dim} of {each.name} has size {length:,}, which no axis of"
                f" {'x'.join(str(n) for _, n in mesh.axes)} divides",
                f"pad it to {longer:,} (+{100 * more:.2g}%): each device may then hold"
                f" {size(saved)} less of it{gain if product_s else ''}",
                gained_s,
                saved,
            )


def _seconds_of(account: Account, name: str) -> float:
    """Seconds per step of the products with a parameter, and of what else is in parts of the model
    that have no other parameter."""
    weights: dict[tuple[str, ...], set[str]] = {}
    for part in account.parts:
        if part.weight:
            weights.setdefault(part.path, set()).add(part.weight)
    alone = {path for path, own in weights.items() if own == {name}}
    return sum(
        part.seconds
        for part in account.parts
        if part.weight == name or (not part.weight and part.path in alone)
    )

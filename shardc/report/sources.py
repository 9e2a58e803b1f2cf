"""Where the numbers of a plan come from: its own terms, and the sources of its cluster's rates."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import fields

from shardc.cluster import Cluster
from shardc.plan.alternatives import Terms
from shardc.plan.decisions import Plan
from shardc.plan.layout import ranges
from shardc.plan.notes import size
from shardc.plan.predicted import Memory
from shardc.report.model import Communication, Fit
from shardc.report.summary import seconds

SHARE = 0.001  # of a term, below which a rest is rounding

FIXED = {
    "axes": "each op's sharding in the plan: FLOPs of matrix products and convolutions, bytes of"
    " the results of other forward and backward ops, bytes of state, by what an axis splits",
    "layers": "the products with parameters in the order of the forward pass; runs of equal ones",
    "groups": "the arguments of the step as the plan shards them; bytes on one device",
    "crossings": "values that programs of one device group make and those of another read",
    "alive": "the memory model's live values at that time, by the op that makes them",
    "judged": "pipelines considered by the search, planned exactly or estimated layer by layer, and"
    " plans by hand",
    "warnings": "derived from the numbers above; each has its price, or is not priced",
}


def sources_of(
    plan: Plan, terms: Terms, fit: Fit, communication: Sequence[Communication]
) -> dict[str, str]:
    """The origin of each number, by its name: formulas with this plan's terms, and rates with the
    sources that its cluster gives."""
    objectives = [stage.objective for stage in plan.stages]
    busiest = max(plan.groups, key=lambda group: group.total(objectives))
    found = {
        "step": f"{seconds(terms.step_time_s)} = {seconds(terms.compute_s)} compute"
        f" + {seconds(terms.communication_s)} communication + {seconds(terms.waiting_s)} waiting,"
        f" on the busiest devices, {ranges(busiest.device_ids)}; the cost"
        " model's (docs/costs.md), over all microbatches",
        "compute": _compute(plan, busiest.stages, terms.compute_s),
        "communication": _communication(busiest.stages, communication, terms.communication_s),
        "waiting": f"the schedule {plan.schedule} of {plan.num_stages} device"
        f" group{'s' * (plan.num_stages > 1)} and {plan.num_microbatches}"
        f" microbatch{'es' * (plan.num_microbatches > 1)}, simulated with its transfers; devices"
        f" idle for {plan.predicted.bubble_fraction:.1%} of the step on average",
        "fit": _memory(plan, fit),
        **FIXED,
    }
    if plan.cluster is not None:
        found |= {f"rate of {name}": words for name, words in _rates(plan.cluster)}
    return found


def _compute(plan: Plan, busiest: Sequence[int], compute_s: float) -> str:
    by_kind: dict[str, float] = {}
    for part in plan.account.parts if plan.account is not None else ():
        if part.stage in busiest:
            by_kind[part.kind.value] = by_kind.get(part.kind.value, 0.0) + part.seconds
    rest_s = compute_s - sum(by_kind.values())
    if by_kind and abs(rest_s) > SHARE * compute_s:
        by_kind["sums over devices, and the host"] = rest_s
    terms = " + ".join(f"{seconds(took_s)} {name}" for name, took_s in by_kind.items() if took_s)
    return (
        f"{seconds(compute_s)}{f' = {terms}' if terms else ''}; each op takes the longer of FLOPs /"
        " rate and bytes / memory bandwidth (roofline), after its launch"
    )


def _communication(
    busiest: Sequence[int], communication: Sequence[Communication], total_s: float
) -> str:
    own = sorted(
        (each for each in communication if each.stage in busiest), key=lambda each: -each.seconds
    )
    if not own:
        return f"{seconds(total_s)}: nothing is sent inside a stage"
    terms = ", ".join(
        f"{seconds(each.seconds)} {each.count:g} {each.kind} over {', '.join(each.axes)}"
        for each in own
    )
    return (
        f"{seconds(total_s)} of {terms}: latency and bytes / bandwidth of each (alpha-beta), for"
        " the reshards and reductions that the lowering emits"
    )


def _memory(plan: Plan, fit: Fit) -> str:
    group, _ = plan.fullest()
    held = {
        field: sum(getattr(plan.stages[number].memory, field) for number in group.stages)
        for field in Memory.__struct_fields__
    }
    terms = " + ".join(
        f"{size(num_bytes)} {field.replace('_', ' ')}"
        for field, num_bytes in held.items()
        if num_bytes
    )
    limit = ""
    if fit.limit_bytes:
        whole = fit.limit_bytes == group.memory_bytes
        owner = "the device" if whole else "the request"
        limit = f"; the limit of {size(fit.limit_bytes)} is {owner}'s"
    return (
        f"{size(fit.peak_bytes)} = {terms or 'nothing'} on each of the devices"
        f" {ranges(group.device_ids)}: the bytes that are live at the worst op of a step,"
        f" stage by stage (docs/costs.md){limit}"
    )


def _rates(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Name and source of each number of the cluster; those without a source say so."""
    for island in cluster.islands or (cluster,):
        device = island.device
        yield from _fields(
            f"device {device.name}", device, device.source, ("name", "timing", "software")
        )
        yield from _fields(f"timing of {device.name}", device.timing, device.timing.source, ())
        yield from _fields(
            f"software of {device.name}", device.software, device.software.source, ()
        )
        for level in island.levels:
            yield from _fields(f"level {level.name}", level, level.source, ("name", "protocols"))
    for bridge in cluster.bridges:
        name = f"bridge {' - '.join(bridge.between)}"
        yield from _fields(name, bridge, bridge.source, ("between",))


def _fields(
    owner: str, part: msgspec.Struct, source: Mapping[str, str], skipped: Sequence[str]
) -> Iterator[tuple[str, str]]:
    for field in fields(type(part)):
        value = getattr(part, field.name)
        is_default = value == field.default or value in ({}, ())
        if field.name in (*skipped, "source") or (is_default and field.name not in source):
            continue
        given = source.get(field.name, "the cluster, which gives no source")
        yield f"{owner}, {field.name}", f"{_number(value)}: {given}"


def _number(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_number(each)}" for name, each in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)

"""The description of a plan as text."""

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import groupby

from shardc.importer.requested_shardings import dotted, matches
from shardc.plan.decisions import Plan
from shardc.plan.layout import ranges, stage_names
from shardc.plan.notes import size
from shardc.report.compare import Ranked
from shardc.report.model import Crossing, Group, Layers, Reading
from shardc.report.summary import seconds

MOST_LINES = 12  # of one list; JSON and the report have all


def in_words(reading: Reading) -> str:
    """The description in full."""
    return "".join(f"{line}\n" for line in _lines(reading))


def _lines(reading: Reading) -> Iterator[str]:
    yield f"plan: {reading.headline}"
    if not reading.has_account:
        yield (
            "  no account of its axes: the plan is of an older version, or planning was"
            " interrupted; plan again"
        )
    if len(reading.stages) > 1:
        yield from _axes(reading)
    if reading.layers:
        yield "layers, in the order of the forward pass (parameters -> result):"
        yield from _layers(reading.layers, reading.num_own_stages)
    if reading.groups:
        yield "argument layouts (bytes on one device):"
        yield from _groups(reading.groups, reading.num_own_stages)
    yield from _cut(list(_crossings(reading.crossings)))
    yield from _communication(reading)
    fit = reading.fit
    if fit.limit_bytes:
        fits = "fits" if fit.peak_bytes <= fit.limit_bytes else "does not fit"
        at = f" at the peak ({fit.when})" if fit.when else ""
        yield f"{fits}: {size(fit.peak_bytes)} of {size(fit.limit_bytes)}{at}"
    if len(reading.judged) > 1:
        yield "beside it:"
        yield from _cut([f"  {line}" for line in Ranked(reading.judged).lines()])
    for warning in reading.warnings:
        yield f"warning: {warning.words}; {warning.help}"


def _axes(reading: Reading) -> Iterator[str]:
    """The roles of axes, stage by stage; stages with equal roles share the lines."""
    stages: dict[int, list[str]] = {}
    for number, each in enumerate(reading.stages):
        if each.devices.isdigit():
            stages[number] = ["on one device"]
    for axis in reading.axes:
        stages.setdefault(axis.stage, []).append(f"{axis.axis} ({axis.size}): {axis.words}")
    alike: dict[tuple[str, ...], list[int]] = {}
    for stage, lines in stages.items():
        alike.setdefault(tuple(lines), []).append(stage)
    if len(alike) == 1:
        return  # already in the first line
    for words, own in alike.items():
        yield f"  {stage_names(own, reading.num_own_stages)}: {'; '.join(words)}"


def _shared(lines: Iterable[tuple[int, str]], total: int, num_own: int) -> Iterator[str]:
    """Lines of stages, in order; stages with equal lines share one.

    Args:
        total: number of stages; a single one is not named.
        num_own: those that are not second copies.
    """
    alike: dict[str, list[int]] = {}
    for stage, line in lines:
        alike.setdefault(line, []).append(stage)
    for line, own in alike.items():
        yield f"  {stage_names(own, num_own)}: {line}" if total > 1 else f"  {line}"


def _layers(layers: Sequence[Layers], num_own: int) -> Iterator[str]:
    """Stage by stage; adjacent stages with equal products share the lines."""

    def same(stage: int) -> list[tuple[tuple[str, ...], int]]:
        return [(each.products, each.count) for each in layers if each.stage == stage]

    stages = sorted({each.stage for each in layers})
    inside = "  " * (len(stages) > 1)
    for _, own in groupby(stages, same):
        alike = list(own)
        if len(stages) > 1:
            yield f"  {stage_names(alike, num_own)}:"
        runs = [[each for each in layers if each.stage == stage] for stage in alike]
        repeated = False
        for at, run in enumerate(runs[0]):
            under = False
            name = ", ".join(dict.fromkeys(each[at].name for each in runs if each[at].name))
            if run.count > 1 and not name and len(run.products) == 1:
                lines = [f"{run.count} x {run.products[0]}"]
            else:
                lines = list(run.products)
                if run.count > 1:
                    yield f"  {inside}{name or 'layers'}: {run.count} equal ones"
                elif repeated:
                    yield f"  {inside}then"
                under = run.count > 1 or repeated
                repeated = run.count > 1
            yield from _cut([f"    {inside * under}{line}" for line in lines])


_NEIGHBOURS = {1: "the next one", -1: "the one before"}


def _crossings(crossings: Sequence[Crossing]) -> Iterator[str]:
    """Groups that send as much to their neighbours on one side, or to the same group, share a
    line; so do groups that receive as much from the same one."""
    by_target: dict[tuple[str, int, int], list[Crossing]] = {}
    for each in crossings:
        target = _NEIGHBOURS.get(each.target - each.source, str(each.target))
        by_target.setdefault((target, each.num_messages, each.num_bytes), []).append(each)
    by_source: dict[tuple[int, int, int], list[Crossing]] = {}
    for (target, *_), own in by_target.items():
        one = own[0]
        if len(own) > 1:
            sources = ranges(tuple(each.source for each in own))
            yield f"crosses from each of the device groups {sources} to {target}: {_messages(one)}"
        else:
            by_source.setdefault((one.source, one.num_messages, one.num_bytes), []).append(one)
    for (source, *_), own in by_source.items():
        targets = ranges(tuple(each.target for each in own))
        to = f"each of {targets}" if len(own) > 1 else targets
        yield f"crosses from device group {source} to {to}: {_messages(own[0])}"


def _messages(each: Crossing) -> str:
    count = each.num_messages
    one = size(each.num_bytes // max(count, 1))
    return f"{count} message{'s' * (count > 1)} of {one} per step"


def _groups(groups: Sequence[Group], num_own: int) -> Iterator[str]:
    total = len({each.stage for each in groups})
    lines = []
    for each in sorted(groups, key=lambda each: -each.num_bytes):
        shape = "x".join(map(str, each.shape)) or "scalar"
        times = f"{each.count} x " if each.count > 1 else ""
        words = f"{each.kind.replace('_', ' ')} {each.name}: {times}{shape} {each.dtype}"
        lines.append((each.stage, f"{words} {each.lies}, {size(each.num_bytes)}"))
    yield from _cut(list(_shared(lines, total, num_own)))


def _communication(reading: Reading) -> Iterator[str]:
    lines = [
        (
            each.stage,
            f"{each.kind} over {', '.join(each.axes)}: {each.count:g} with results of"
            f" {size(each.num_bytes)}, {seconds(each.seconds)}",
        )
        for each in sorted(reading.communication, key=lambda each: -each.seconds)
    ]
    if lines:
        yield "sent inside stages, per step:"
        yield from _cut(list(_shared(lines, len(reading.stages), reading.num_own_stages)))


def _cut(lines: Sequence[str]) -> Iterator[str]:
    yield from lines[:MOST_LINES]
    if len(lines) > MOST_LINES:
        yield f"    ... and {len(lines) - MOST_LINES} more"


def about(plan: Plan, pattern: str) -> list[str]:
    """What a plan file says about arguments and parts of the model that match a pattern.

    The costs of other choices need the program as well: `shardc.report.counterfactuals`.
    """
    account = plan.account
    if account is None:
        return []
    lines, own_stages = [], len(plan.own_stages)
    for each in account.arguments:
        if matches(pattern, each.name):
            shape = "x".join(map(str, each.shape)) or "scalar"
            lines.append(
                f"{each.name}, {stage_names([each.stage], own_stages)}:"
                f" {each.kind.value.replace('_', ' ')}, {shape} {each.dtype}"
                f" [{', '.join('*'.join(axes) or '-' for axes in each.lies.dims)}],"
                f" {size(each.num_bytes)} on each device"
            )
    for part in account.parts:
        path = ".".join(part.path)
        is_named = path and (fnmatchcase(path, pattern) or fnmatchcase(path, f"*.{pattern}"))
        if is_named or (part.weight and matches(pattern, part.weight)):
            layout = f", its largest product {part.lies}" if part.lies else ""
            own = dotted(part.weight)
            weight = f" with {own}" if own and not own.endswith(path or own) else ""
            lines.append(
                f"{part.kind} of {path or own}{weight}, {stage_names([part.stage], own_stages)}:"
                f" {part.num_ops} op{'s' * (part.num_ops != 1)}, {part.num_flops:.3g} FLOPs,"
                f" {seconds(part.seconds)} per step on one device{layout} at {part.place}"
            )
    return lines

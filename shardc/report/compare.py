"""Compares pipelines, and explains why one of two is faster."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from rich import box
from rich.table import Table

from shardc.plan.alternatives import Alternative, Alternatives, Terms, mesh_words
from shardc.plan.notes import size
from shardc.report.summary import seconds

AS_FAST = 0.0005  # relative difference up to which two steps count as equally fast

_TIMES = {
    "compute_s": "compute of the busiest stage",
    "communication_s": "communication inside it",
    "waiting_s": "waiting in the pipeline and for transfers",
}


def ranking_table(found: Alternatives, most: int) -> Table:
    """The `most` fastest and those by hand, each with the main reason why it is slower than the
    first."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", justify="right")
    table.add_column("proposed by")
    table.add_column("stages")
    table.add_column("layers")
    table.add_column("microbatches", justify="right")
    table.add_column("schedule")
    table.add_column("step", justify="right")
    table.add_column("peak/device", justify="right")
    table.add_column("vs. the first")
    for number, each in found.shown(most):
        exact = each.exact
        table.add_row(
            str(number),
            each.name,
            mesh_words(each.meshes),
            layer_words(each.layers),
            str(each.num_microbatches),
            each.schedule,
            step_words(each),
            "" if exact is None else size(exact.peak_bytes),
            loses_by(each, found.ranked[0]),
        )
    return table


def ranking_json(found: Alternatives, most: int) -> dict[str, Any]:
    """The same for `--format json`."""
    rows = []
    for number, each in found.shown(most):
        known = each.step_time_s
        row = {"rank": number, **msgspec.to_builtins(each)}
        rows.append({**row, "step_time_s": None if known == math.inf else known})
    return {"alternatives": rows, "all_priced": found.all_priced}


def layer_words(layers: Sequence[int]) -> str:
    """`12 12`, or `8 x 6` for eight stages of six."""
    if len(layers) > 2 and len(set(layers)) == 1:
        return f"{len(layers)} x {layers[0]}"
    return " ".join(str(count) for count in layers if count) or "all"


def comparison(one: Alternative, other: Alternative) -> Iterator[str]:
    """Lines that name the faster of two planned pipelines, and the term that decides; or that say
    that both are as fast."""
    fast, slow = sorted((one, other), key=lambda each: each.step_time_s)
    a, b = _terms(fast), _terms(slow)
    as_fast = _as_fast(slow, fast)
    if as_fast:
        yield f"both take {seconds(a.step_time_s)} per step"
    else:
        yield (
            f"{fast.name} is faster: {seconds(a.step_time_s)} per step, {slow.name} takes"
            f" {seconds(b.step_time_s)} ({b.step_time_s / max(a.step_time_s, 1e-300):.3g} x)"
        )
    for each in (fast, slow):
        yield (
            f"  {each.name}: {mesh_words(each.meshes)}, layers {layer_words(each.layers)},"
            f" {_microbatches(each)}, schedule {each.schedule}"
        )
    for field, words in _TIMES.items():
        before, after = getattr(b, field), getattr(a, field)
        yield f"  {words}: {seconds(after)} and {seconds(before)} ({_more(before - after)})"
    yield f"  memory of the fullest device: {size(a.peak_bytes)} and {size(b.peak_bytes)}"
    if not as_fast:
        yield f"{slow.name} loses most in {_TIMES[_largest(a, b)]}"


def _microbatches(each: Alternative) -> str:
    count = each.num_microbatches
    return f"{count} microbatch{'es' * (count > 1)}"


def _as_fast(each: Alternative, other: Alternative) -> bool:
    """Whether the first one, if it is slower, is so by next to nothing."""
    return other.step_time_s <= each.step_time_s < (1 + AS_FAST) * other.step_time_s


def comparison_json(one: Alternative, other: Alternative) -> dict[str, Any]:
    """The same for `--format json`: both, the name of the faster one, and the other's excess;
    `faster` and `mostly` are null if both are as fast."""
    fast, slow = sorted((one, other), key=lambda each: each.step_time_s)
    a, b = _terms(fast), _terms(slow)
    as_fast = _as_fast(slow, fast)
    more = {field: getattr(b, field) - getattr(a, field) for field in Terms.__struct_fields__}
    return {
        "compared": [msgspec.to_builtins(each) for each in (one, other)],
        "faster": None if as_fast else fast.name,
        "slower_takes_more": more,
        "mostly": None if as_fast else _largest(a, b),
    }


def _terms(each: Alternative) -> Terms:
    assert each.exact is not None, "only planned pipelines are compared"
    return each.exact


def _largest(a: Terms, b: Terms) -> str:
    return max(_TIMES, key=lambda field: getattr(b, field) - getattr(a, field))


def step_words(each: Alternative) -> str:
    """The time of its step, as far as it is known."""
    if each.refusal:
        return "not possible"
    if each.missing_bytes:
        return "does not fit"
    known = seconds(each.step_time_s)
    return known if each.exact is not None else f"{known} (estimate)"


def loses_by(each: Alternative, first: Alternative) -> str:
    """The main reason why a pipeline is slower than the first one."""
    if each.refusal:
        return each.refusal
    if each.missing_bytes:
        return f"{size(each.missing_bytes)} too much for a device"
    if each is first or first.step_time_s in (0.0, math.inf):
        return ""
    if _as_fast(each, first):
        return "as fast"
    more = f"{each.step_time_s / first.step_time_s - 1:+.1%}"
    if each.exact is None or first.exact is None:
        return more
    field = _largest(first.exact, each.exact)
    return (
        f"{more}, {_more(getattr(each.exact, field) - getattr(first.exact, field))} {_SHORT[field]}"
    )


_SHORT = {
    "compute_s": "compute",
    "communication_s": "communication",
    "waiting_s": "waiting",
}


def _more(more_s: float) -> str:
    return f"{'-' if more_s < 0 else '+'}{seconds(abs(more_s))}"


class Ranked(tuple[Alternative, ...]):
    """Pipelines, fastest first; as text a line for each."""

    def lines(self) -> list[str]:
        """What each is, how long its step takes, and by what it loses to the first."""
        found = []
        for each in self:
            why = loses_by(each, self[0])
            found.append(
                f"{each.name}: {mesh_words(each.meshes)}, {_microbatches(each)},"
                f" {each.schedule}: {step_words(each)}{f' ({why})' if why else ''}"
            )
        return found

    def __repr__(self) -> str:
        return "\n".join(self.lines())

"""Notes of a plan: codes and data, and one table with their text."""

from collections.abc import Callable
from enum import StrEnum

import msgspec

Data = dict[str, int | float | str]


class NoteCode(StrEnum):
    """The subject of a note; each comment lists the data it carries."""

    INTERRUPTED = "interrupted"
    NOT_ALL_PRICED = "not-all-priced"
    FEWER = "fewer"  # what: stages, microbatches or slices; count, reason; asked, help: if any
    BY_HAND = "by-hand"  # name: of the given plan
    IDLE = "idle"  # count, num_devices: of the cluster
    LEFT_OUT = "left-out"  # shape, message, help
    SEVERAL_RUNS = "several-runs"  # why
    KEPT_BETWEEN = "kept-between"  # count, num_bytes: of all microbatches
    CALLS = "calls"  # count, functions
    LOOKUPS = "lookups"  # count
    CASTS = "casts"  # count
    FISSIONS = "fissions"  # count
    ROW_CONFLICTS = "row-conflicts"  # count
    RECOMPUTED = "recomputed"  # stages: their numbers
    KEPT = "kept"  # stages: their numbers; kept_bytes, num_bytes
    OFFLOADING = "offloading"  # step_s, instead_s, shape, count, num_bytes, bytes_per_s
    FOLDED = "folded"  # count, cost: upper bound on the share
    DEFAULT_RATE = "default-rate"  # device, dtypes
    REPLICATED = "replicated"  # op, why, count, seconds, time_share, flops_share


class Note(msgspec.Struct, frozen=True):
    """A remark on a plan. `str` gives the text, which no code may parse."""

    code: NoteCode
    data: Data = {}

    def __str__(self) -> str:
        return _WORDS[self.code](**self.data)


def scaled(number: float, base: int, units: tuple[str, ...]) -> str:
    """Three digits, in the unit that suits them; each unit is `base` of the one before."""
    for unit in units:
        if number < base or unit == units[-1]:
            break
        number /= base
    digits = f"{number:.3g}" if number < 999.5 else f"{number:.0f}"
    return f"{digits} {unit}".rstrip()


def size(num_bytes: int) -> str:
    """`12.3 MiB`"""
    return scaled(num_bytes, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def _fewer(what: str, count: int, reason: str, asked: int | None = None, help: str = "") -> str:
    one = {"stages": "stage", "microbatches": "microbatch", "slices": "slice"}
    planned = f"{count} {what if count > 1 else one[what]}"
    return f"{planned}{'' if asked is None else f' instead of {asked}'}: {reason}"


def _fissions(count: int) -> str:
    return (
        f"{count} loop{'s' * (count > 1)} over layers became two: one computes the sums over"
        " the whole batch that the other needs; both compute what both need"
    )


_WHY = {
    "rule": "for want of a sharding rule",
    "strategy": "for want of a strategy",
    "choice": "because splitting it costs more",
}


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{1e6 * seconds:.3g} us" if 0 < seconds < 1e-4 else f"{1e3 * seconds:.3g} ms"


def _offloading(
    step_s: float, instead_s: float, shape: str, count: int, num_bytes: int, bytes_per_s: float
) -> str:
    return (
        "offloading activations to the hosts, which is not supported, might take"
        f" {_time(step_s)} per step instead of {_time(instead_s)} (both estimated from layers):"
        f" {shape}, {count} microbatches, up to {size(num_bytes)} of each from a device"
        f" and back at {bytes_per_s / 1e9:.3g} GB/s"
    )


def _recomputed(stages: str) -> str:
    passes = f"passes of stages {stages} recompute"
    if stages.isdigit():
        passes = f"pass of stage {stages} recomputes"
    return f"to save memory, the backward {passes} forward values"


def _kept(stages: str, kept_bytes: int, num_bytes: int) -> str:
    keep = f"stage {stages} keeps" if stages.isdigit() else f"stages {stages} keep"
    return (
        f"{keep} {size(kept_bytes)} of the {size(num_bytes)} of each microbatch that the program"
        " (jax.checkpoint) computes again"
    )


def _replicated(
    op: str, why: str, count: int, seconds: float, time_share: float, flops_share: float
) -> str:
    times = f" ({count} times)" if count > 1 else ""
    return (
        f"replicated {_WHY[why]}: {op}{times}, {_time(seconds)} per step"
        f" ({time_share:.1%}), {flops_share:.1%} of the FLOPs"
    )


_WORDS: dict[NoteCode, Callable[..., str]] = {
    NoteCode.INTERRUPTED: lambda: "planning was interrupted; this is the best plan found so far",
    NoteCode.NOT_ALL_PRICED: lambda: (
        "not every promising shape was priced: the budget of the search ran out"
    ),
    NoteCode.FEWER: _fewer,
    NoteCode.BY_HAND: lambda name: f"given by hand: {name}",
    NoteCode.IDLE: lambda count, num_devices: f"{count} of {num_devices} devices stay idle",
    NoteCode.LEFT_OUT: lambda shape, message, help: f"{shape} left out: {message}; {help}",
    NoteCode.SEVERAL_RUNS: lambda why: why,
    NoteCode.KEPT_BETWEEN: lambda count, num_bytes: (
        f"from one run through the microbatches, later ones take {count} value{'s' * (count > 1)}"
        f" ({size(num_bytes)} of all microbatches) that they would compute again"
    ),
    NoteCode.RECOMPUTED: _recomputed,
    NoteCode.KEPT: _kept,
    NoteCode.OFFLOADING: _offloading,
    NoteCode.CALLS: lambda count, functions: (
        f"each of {count} calls is planned as one op, because inlining all calls would make the"
        f" program too large; they call {functions} functions"
    ),
    NoteCode.LOOKUPS: lambda count: (
        f"{count} products with one-hot matrices became row lookups and scatter-adds"
    ),
    NoteCode.CASTS: lambda count: (
        f"{count} cast{'s' * (count > 1)} of parameters to narrower types: once per step, into"
        " copies that take memory all step"
    ),
    NoteCode.FISSIONS: _fissions,
    NoteCode.ROW_CONFLICTS: lambda count: (
        f"{count} stack{'s' * (count > 1)} of layers that ops read along two dims:"
        " stages may hold rows of other stages"
    ),
    NoteCode.FOLDED: lambda count, cost: (
        f"equal layers share their shardings ({count} ops and values copy others), which"
        f" costs at most {cost:.2%} (proven)"
    ),
    NoteCode.DEFAULT_RATE: lambda device, dtypes: (
        f"flops_per_s of device '{device}' does not list {dtypes}: products of such elements are"
        " priced at its default rate"
    ),
    NoteCode.REPLICATED: _replicated,
}
assert set(_WORDS) == set(NoteCode), "a code without text"

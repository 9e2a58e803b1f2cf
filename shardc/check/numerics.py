"""The numerical contract: when the outputs of a plan count as those of the single-device program.

Another order of additions gives other last bits. An optimizer such as Adam, which divides by
the size of a gradient, amplifies these where the true gradient is zero. So every leaf is measured
against the same program computed in float64, and judged by one of these rules:
  (a) a float64 leaf: error at most 1e-9, or 4 x that of one device where the program casts to
      narrower types on the way;
  (b) a float32 leaf that nothing amplifies (losses, gradients, SGD state): error at most 1e-5;
  (c) any other float leaf: at most 1e-5, or 4 x the error of one device in that precision
      (the largest of several runs, if runs are given that differ by rounding only);
  (d) a leaf of integers or booleans: equal.

The error of a leaf is its largest difference over its largest magnitude (both over all elements).
A leaf that is zero in exact arithmetic holds only rounding noise. It passes if it vanishes, too,
relative to the precision it was computed in. Two signs identify such a leaf: in float64 it is at
most 2^-52 of the largest value of any leaf (or of 1, if that is smaller), and one device, in a
narrower precision, does not get its first two digits right. If an optimizer has amplified such
noise, a second run in float64, on inputs with different last bits, identifies it: its first two
digits differ from those of the first run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Wide = npt.NDArray[np.float64]

DIRECT = "direct"
AMPLIFIED = "amplified"

FLOAT64_LIMIT = 1e-9
FLOAT32_LIMIT = 1e-5
ALLOWED_OVER_REFERENCE = 4.0
VANISHES_BELOW = 2.0**-52
VANISHED_ULPS = 64.0
UNRESOLVED_ABOVE = 1e-2


@dataclass(frozen=True)
class LeafReport:
    """The judgement of one leaf.

    Attributes:
        rule: "a", "b", "c", "d" as above, or "vanishing".
        error: relative to the leaf's largest magnitude; 0.0 if rule d or vanishing passes.
        reference_error: the same for one device in the leaf's own precision.
        limit: the largest `error` that passes.
        beyond_one_run: it passes only because other runs on one device differ as much.
        nonfinite_reference_values: elements of the reference that are NaN or infinite.
        problem: why it fails, "" if it passes.
    """

    name: str
    rule: str
    error: float
    reference_error: float
    limit: float
    nonfinite_reference_values: int
    problem: str = ""
    beyond_one_run: bool = False

    @property
    def passed(self) -> bool:
        return not self.problem


@dataclass(frozen=True)
class Report:
    """The judgement of all leaves; a missing or extra leaf is a failure, too."""

    leaves: tuple[LeafReport, ...]

    @property
    def failures(self) -> tuple[LeafReport, ...]:
        return tuple(leaf for leaf in self.leaves if not leaf.passed)

    @property
    def passed(self) -> bool:
        return not self.failures

    @property
    def beyond_one_run(self) -> int:
        """The number of leaves that pass only because other runs on one device differ as much."""
        return sum(leaf.beyond_one_run for leaf in self.leaves)

    @property
    def max_relative_error(self) -> float:
        return max((leaf.error for leaf in self.leaves), default=0.0)

    @property
    def reference_error(self) -> float:
        return max((leaf.reference_error for leaf in self.leaves), default=0.0)

    @property
    def nonfinite_reference_values(self) -> int:
        return sum(leaf.nonfinite_reference_values for leaf in self.leaves)

    def to_dict(self) -> dict[str, Any]:
        """The report in the format of `shardc run --check --format json`."""
        return {
            "max_relative_error": self.max_relative_error,
            "reference_error": self.reference_error,
            "outputs_compared": len(self.leaves),
            "nonfinite_reference_values": self.nonfinite_reference_values,
        }

    def __str__(self) -> str:
        lines = [
            f"{len(self.leaves)} outputs compared, {len(self.failures)} differ;"
            f" largest relative error {self.max_relative_error:.3g}"
            f" (one device: {self.reference_error:.3g})"
        ]
        lines += [f"  {leaf.name} (rule {leaf.rule}): {leaf.problem}" for leaf in self.failures]
        return "\n".join(lines)


def compare(
    reference64: Mapping[str, Array],
    reference32: Mapping[str, Array] | None,
    got: Mapping[str, Array],
    kinds: Mapping[str, str] | None = None,
    nearby32: Sequence[Mapping[str, Array]] = (),
    nearby64: Mapping[str, Array] | None = None,
) -> Report:
    """Judges every leaf of `got`.

    Args:
        reference64: leaves of the program computed in float64 on one device.
        reference32: the same in the program's own precision; None if that is float64, or if it
            was not run (then rule c allows 1e-5). NaN and infinities must be in the same places.
        got: leaves of the plan.
        kinds: "direct" (rule b) or "amplified" (rule c) per leaf; None or a missing leaf means
            "amplified". Leaves of bfloat16 are always judged by rule c.
        nearby32: like `reference32`, of programs that are equal up to rounding: the order of
            additions, or the last bits of their inputs.
        nearby64: like `reference64`, of one such program.
    """
    magnitudes = [_magnitude(leaf) for leaf in reference64.values()]
    global_magnitude = min(1.0, max(magnitudes, default=0.0))
    reports = []
    for name in sorted({*reference64, *got}):
        if name not in got or name not in reference64:
            missing = "not computed by the plan" if name not in got else "not in the reference"
            reports.append(LeafReport(name, "d", float("inf"), 0.0, 0.0, 0, missing))
            continue
        kind = (kinds or {}).get(name, AMPLIFIED)
        assert kind in (DIRECT, AMPLIFIED), f"{name} has no kind '{kind}'"
        own = got[name] if reference32 is None else reference32[name]
        reports.append(
            _judge(
                name,
                np.asarray(reference64[name]),
                None if reference32 is None else np.asarray(own),
                np.asarray(got[name]),
                kind,
                global_magnitude,
                [np.asarray(leaves[name]) for leaves in nearby32],
                None if nearby64 is None else np.asarray(nearby64[name]),
            )
        )
    return Report(tuple(reports))


def _judge(
    name: str,
    exact: Array,
    single: Array | None,
    got: Array,
    kind: str,
    global_magnitude: float,
    nearby: Sequence[Array],
    again: Array | None,
) -> LeafReport:
    """Judges one leaf: shape and dtype, then the places of NaN and infinities, then its rule."""
    oracle = exact if single is None else single
    nonfinite = _wide(oracle)
    count = int(np.size(nonfinite) - np.count_nonzero(np.isfinite(nonfinite)))

    def report(rule: str, error: float, by_one: float, limit: float, problem: str) -> LeafReport:
        return LeafReport(name, rule, error, by_one, limit, count, problem)

    if got.shape != exact.shape:
        return report("d", np.inf, 0.0, 0.0, f"shape {got.shape}, expected {exact.shape}")
    if single is not None and got.dtype != single.dtype:
        return report("d", np.inf, 0.0, 0.0, f"dtype {got.dtype}, expected {single.dtype}")
    if not _is_float(got):
        differing = int(np.count_nonzero(got != oracle))
        problem = f"{differing} of {got.size} values differ" if differing else ""
        return report("d", np.inf if differing else 0.0, 0.0, 0.0, problem)
    rule = "a" if got.dtype == np.float64 else "b" if _is_rule_b(got, kind) else "c"
    if not _same_nonfinite(_wide(got), nonfinite):
        return report(rule, np.inf, 0.0, 0.0, "NaN or infinities where the reference has none")

    finite = np.isfinite(_wide(exact)) & np.isfinite(nonfinite)
    want = _wide(exact)[finite]
    difference = _largest(_wide(got)[finite] - want)
    by_one_device = [nonfinite, *map(_wide, nearby)]
    difference_by_one = max(_largest(values[finite] - want) for values in by_one_device)
    magnitude = _largest(want)
    unresolved = rule == "a" or difference_by_one >= UNRESOLVED_ABOVE * magnitude
    vanishes = magnitude <= VANISHES_BELOW * global_magnitude and unresolved
    difference_again = 0.0 if again is None else _largest(_wide(again)[finite] - want)
    if vanishes or difference_again > UNRESOLVED_ABOVE * magnitude:
        noise = VANISHED_ULPS * _epsilon(got) * global_magnitude if vanishes else 0.0
        by_others = max(difference_by_one, difference_again)
        allowed = max(noise, ALLOWED_OVER_REFERENCE * by_others)
        if difference <= allowed:
            return report("vanishing", 0.0, 0.0, 0.0, "")
        problem = f"{difference:.3g} where zero is expected (noise up to {allowed:.3g} passes)"
        return report("vanishing", np.inf, 0.0, 0.0, problem)
    error, by_one = difference / magnitude, difference_by_one / magnitude
    limit = FLOAT64_LIMIT if rule == "a" else FLOAT32_LIMIT
    by_first = _largest(by_one_device[0][finite] - want) / magnitude
    if rule != "b":
        limit = max(limit, ALLOWED_OVER_REFERENCE * (by_first if rule == "a" else by_one))
    if error > limit:
        problem = f"relative error {error:.3g}, at most {limit:.3g} passes"
        return report(rule, error, by_one, limit, problem)
    beyond = rule == "c" and error > max(FLOAT32_LIMIT, ALLOWED_OVER_REFERENCE * by_first)
    return LeafReport(name, rule, error, by_one, limit, count, beyond_one_run=beyond)


def _is_float(array: Array) -> bool:
    """Floating types; those of ml_dtypes (bfloat16, float8) are of kind "V" or "f"."""
    return array.dtype.kind == "f" or "float" in array.dtype.name


def _is_rule_b(got: Array, kind: str) -> bool:
    return kind == DIRECT and got.dtype == np.float32


def _epsilon(array: Array) -> float:
    """Distance from 1 to the next number of the array's precision."""
    if array.dtype.kind == "f" and array.dtype.itemsize in (2, 4, 8):
        return float(np.finfo(array.dtype).eps)
    return 2.0**-7  # bfloat16; narrower types are treated alike


def _wide(array: Array) -> Wide:
    """As float64, which holds every narrower float exactly."""
    return np.asarray(array).astype(np.float64)


def _largest(array: Wide) -> float:
    return float(np.max(np.abs(array), initial=0.0))


def _magnitude(array: Array) -> float:
    """Largest finite magnitude of a float leaf; 0.0 for other leaves."""
    if not _is_float(np.asarray(array)):
        return 0.0
    wide = _wide(array)
    return _largest(wide[np.isfinite(wide)])


def _same_nonfinite(left: Wide, right: Wide) -> bool:
    """NaN where the other has NaN, and the same infinities."""
    return all(
        np.array_equal(mask(left), mask(right)) for mask in (np.isnan, np.isposinf, np.isneginf)
    )

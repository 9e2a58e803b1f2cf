"""The numerical contract passes what rounding explains and nothing else."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.check.numerics import Report, compare


def values(seed: int = 0, size: int = 64) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size)


def verdict(
    exact: np.ndarray,
    single: np.ndarray | None,
    got: np.ndarray,
    kind: str = "amplified",
    **others: np.ndarray,
) -> Report:
    """Compares a leaf `x`; `others` are leaves that agree."""
    single_leaves = None if single is None else {"x": single, **others}
    return compare({"x": exact, **others}, single_leaves, {"x": got, **others}, {"x": kind})


def rule_of(report: Report) -> str:
    return next(leaf.rule for leaf in report.leaves if leaf.name == "x")


@given(st.integers(0, 1000), st.sampled_from(["float32", "float64", "bfloat16"]))
@settings(max_examples=30)
def test_the_single_device_program_passes(seed: int, name: str) -> None:
    dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    exact = values(seed)
    single = exact.astype(dtype)
    for kind in ("direct", "amplified"):
        assert verdict(exact, single, single, kind).passed


@given(st.floats(0.1, 10), st.sampled_from(["float32", "float64"]), st.integers(0, 63))
@settings(max_examples=60)
def test_one_wrong_element_fails_exactly_above_the_limit(factor: float, dtype: str, i: int) -> None:
    if 0.9 < factor < 1.1:
        return
    limit = 1e-9 if dtype == "float64" else 1e-5
    exact = values()
    got = exact.astype(dtype)
    got[i] += factor * limit * np.max(np.abs(exact))
    report = verdict(exact, exact.astype(dtype), got, "direct")
    assert report.passed == (factor < 1)
    assert report.max_relative_error == pytest.approx(factor * limit, rel=0.05)
    assert rule_of(report) == ("a" if dtype == "float64" else "b")


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("kind", ["direct", "amplified"])
def test_a_doubled_output_fails(dtype: type, kind: str) -> None:
    exact = values()
    report = verdict(exact, exact.astype(dtype), (2 * exact).astype(dtype), kind)
    assert not report.passed
    assert report.max_relative_error == pytest.approx(1.0, rel=0.01)


def test_a_skipped_part_of_a_sum_fails() -> None:
    parts = np.random.default_rng(0).standard_normal((4, 64))
    exact = parts.sum(axis=0)
    assert not verdict(exact, exact.astype(np.float32), parts[:3].sum(axis=0, dtype="f4")).passed


def test_an_amplified_leaf_may_err_four_times_as_much_as_one_device() -> None:
    exact = values()
    noise = 1e-3 * np.max(np.abs(exact)) * np.sign(values(1))
    single = (exact + noise).astype(np.float32)
    for factor, passes in ((-3.9, True), (4.1, False)):
        got = (exact + factor * noise).astype(np.float32)
        report = verdict(exact, single, got)
        assert (report.passed, rule_of(report)) == (passes, "c")
        assert report.reference_error == pytest.approx(1e-3, rel=0.01)
        assert not verdict(exact, single, got, "direct").passed


def test_a_float64_leaf_may_err_four_times_as_much_as_one_device_that_casts_on_the_way() -> None:
    exact = np.linspace(1, 2, 8)
    own = exact * (1 + 1e-8)
    for error, passes in ((3.9e-8, True), (4.1e-8, False)):
        report = compare({"x": exact}, {"x": own}, {"x": exact * (1 + error)})
        assert report.passed == passes
    alone = compare({"x": exact}, {"x": exact}, {"x": exact * (1 + 1.1e-9)})
    assert not alone.passed


def test_the_worst_of_several_runs_on_one_device_counts_and_is_told() -> None:
    exact = values()
    size = np.abs(exact).max()
    one, other, got = (
        (exact + np.eye(64)[0] * error * size).astype(np.float32) for error in (1e-5, 4e-5, 1e-4)
    )

    def judged(**runs: list[dict[str, np.ndarray]]) -> Report:
        return compare({"x": exact}, {"x": one}, {"x": got}, {"x": "amplified"}, **runs)

    assert not judged().passed
    assert not judged(nearby32=[{"x": one}]).passed
    report = judged(nearby32=[{"x": other}])
    assert report.passed
    assert report.beyond_one_run == 1
    assert (
        compare({"x": exact}, {"x": one}, {"x": one}, nearby32=[{"x": other}]).beyond_one_run == 0
    )


def test_bfloat16_is_judged_by_rule_c_even_if_direct() -> None:
    exact = values()
    single = exact.astype(ml_dtypes.bfloat16)
    report = verdict(exact, single, single, "direct")
    assert (report.passed, rule_of(report)) == (True, "c")
    assert 1e-4 < report.max_relative_error < 2**-7


def test_a_leaf_that_is_zero_in_exact_arithmetic_only_has_to_vanish() -> None:
    weights = values(2)
    exact = 1e-18 * values(3)
    for dtype, noise in ((np.float64, 1e-17), (np.float32, 1e-8)):
        single = (noise * values(4)).astype(dtype)
        got = (noise * values(5)).astype(dtype)
        report = verdict(exact, single, got, "direct", weights=weights.astype(dtype))
        assert (report.passed, rule_of(report)) == (True, "vanishing")
        wrong = got + dtype(1e-3)
        assert not verdict(exact, single, wrong, "direct", weights=weights.astype(dtype)).passed


def test_noise_that_an_optimizer_made_large_shows_by_a_second_run_in_float64() -> None:
    exact, again, got = (1e-13 * values(seed) for seed in (3, 4, 5))
    weights = values(2)

    def report(leaf: np.ndarray, second: np.ndarray) -> Report:
        reference = {"leaf": exact, "weights": weights}
        found = {"leaf": leaf, "weights": weights}
        return compare(reference, None, found, nearby64={"leaf": second, "weights": weights})

    assert report(got, again).passed
    assert not report(got, exact * (1 + 1e-15)).passed  # the second run knows its digits
    assert not report(got + 1e-9, again).passed


@pytest.mark.parametrize("magnitude", [1e-12, 1e-20])
def test_small_leaves_are_judged_by_their_own_magnitude(magnitude: float) -> None:
    exact = magnitude * values()
    weights = values(2).astype(np.float32)
    single = exact.astype(np.float32)
    assert verdict(exact, single, single, "direct", weights=weights).passed
    doubled = (2 * exact).astype(np.float32)
    assert not verdict(exact, single, doubled, "direct", weights=weights).passed


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_huge_leaf_does_not_hide_the_others(dtype: type) -> None:
    exact, huge = values(), np.full(3, -1e30).astype(dtype)
    single = exact.astype(dtype)
    assert not verdict(exact, single, 2 * single, huge=huge).passed


def test_nonfinite_values_must_lie_where_the_reference_has_them() -> None:
    exact = values()
    exact[3], exact[5] = np.nan, np.inf
    single = exact.astype(np.float32)
    report = verdict(exact, single, single)
    assert report.passed
    assert report.nonfinite_reference_values == 2
    for i, value in ((3, 0.0), (4, np.nan), (5, -np.inf), (5, np.nan)):
        got = single.copy()
        got[i] = value
        assert not verdict(exact, single, got).passed


def test_one_device_overflows_where_float64_does_not() -> None:
    exact = np.array([1.0, 1e300])
    single = np.array([1.0, np.inf], np.float32)
    assert verdict(exact, single, single).passed
    assert not verdict(exact, single, np.array([2.0, np.inf], np.float32)).passed


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.bool_])
def test_whole_numbers_are_equal_or_wrong(dtype: type) -> None:
    exact = np.arange(8).astype(dtype)
    assert verdict(exact, exact, exact.copy()).passed
    got = exact.copy()
    got[0] = not got[0]
    report = verdict(exact, exact, got)
    assert (report.passed, rule_of(report)) == (False, "d")


def test_missing_and_additional_leaves_and_other_shapes_and_dtypes_fail() -> None:
    x = values().astype(np.float32)
    assert not compare({"x": x, "y": x}, None, {"x": x}).passed
    assert not compare({"x": x}, None, {"x": x, "y": x}).passed
    assert not verdict(x, x, x[:32]).passed
    assert not verdict(x, x, x.astype(np.float64)).passed
    assert compare({}, None, {}).passed


def test_scalars_empty_leaves_and_zeros_pass() -> None:
    for leaf in (np.float32(3.5), np.zeros((0, 4), np.float32), np.zeros(5, np.float32)):
        assert verdict(np.asarray(leaf), np.asarray(leaf), np.asarray(leaf)).passed


@pytest.mark.slow
def test_the_report_has_the_words_of_the_contract_and_names_the_leaf() -> None:
    exact = values()
    report = verdict(exact, exact.astype(np.float32), (2 * exact).astype(np.float32))
    assert set(report.to_dict()) == {
        "max_relative_error",
        "reference_error",
        "outputs_compared",
        "nonfinite_reference_values",
    }
    assert "x (rule c): relative error 1" in str(report)

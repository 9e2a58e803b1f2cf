"""The generated schedules against the closed forms and published values of their papers."""

import pytest

from shardc.schedule.registry import generate, schedule_named
from shardc.schedule.simulate import Simulation, Times, simulate
from shardc.schedule.work import Work

SIZES = [(1, 1), (1, 5), (2, 1), (4, 2), (4, 8), (8, 16), (3, 7)]

# Bubble rates of 1F1B: Qi et al., "Zero Bubble Pipeline Parallelism" (arXiv 2401.10241), tables
# 5 and 9. Stages, microbatches, seconds of F, B, W, transfer; published rate.
ZERO_BUBBLE_PAPER = [
    (8, 24, 18.522, 18.086, 9.337, 0.601, 0.2431),
    (8, 32, 18.513, 18.086, 9.331, 0.626, 0.1985),
    (8, 64, 18.546, 18.097, 9.321, 0.762, 0.1240),
    (8, 24, 29.718, 29.444, 19.927, 0.527, 0.2347),
    (8, 32, 29.802, 29.428, 19.530, 0.577, 0.1898),
    (8, 64, 29.935, 29.621, 19.388, 0.535, 0.1091),
    (16, 48, 11.347, 11.248, 8.132, 0.377, 0.2552),
    (16, 64, 11.307, 11.254, 8.101, 0.379, 0.2082),
    (16, 128, 11.325, 11.308, 8.109, 0.378, 0.1251),
    (32, 96, 10.419, 10.207, 7.715, 0.408, 0.2646),
    (32, 128, 10.408, 10.204, 7.703, 0.408, 0.2168),
]


def run(
    name: str, p: int, m: int, times: Times | None = None, transfer_s: float = 0.0
) -> Simulation:
    work = Work(p, m)
    return simulate(generate(name, work), work, times, transfer_s)


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("p", "m"), SIZES)
def test_bubble_is_the_closed_form(name: str, p: int, m: int) -> None:
    times = Times(forward_s=2.0, backward_s=3.0, weight_s=1.5)
    result = run(name, p, m, times)
    bubble_s = (p - 1) * (2.0 + 4.5)
    assert result.makespan_s == pytest.approx(m * 6.5 + bubble_s)
    assert result.bubble_ratio == pytest.approx((p - 1) / (m + p - 1))


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_activations_are_the_closed_form(p: int, m: int) -> None:
    assert run("gpipe", p, m).peak_activations == (m,) * p
    assert run("1f1b", p, m).peak_activations == tuple(min(m, p - i) for i in range(p))


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("p", "m"), SIZES)
@pytest.mark.parametrize("backward", [True, False])
def test_promised_activations_are_the_simulated_ones(
    name: str, p: int, m: int, backward: bool
) -> None:
    kind, work = schedule_named(name), Work(p, m, backward=backward)
    promised = tuple(kind.peak_activations(stage, work) for stage in range(p))
    assert simulate(kind.generate(work), work).peak_activations == promised


def test_worked_values() -> None:
    assert run("gpipe", 4, 8).makespan_s == 33.0
    assert run("gpipe", 4, 8).bubble_ratio == pytest.approx(3 / 11)
    assert run("gpipe", 8, 16).bubble_ratio == pytest.approx(7 / 23)
    assert run("1f1b", 4, 8).makespan_s == 33.0
    assert run("1f1b", 4, 8).peak_activations == (4, 3, 2, 1)
    assert run("1f1b", 8, 16).makespan_s == 48 + 21
    assert run("1f1b", 8, 16).peak_activations == (8, 7, 6, 5, 4, 3, 2, 1)


@pytest.mark.parametrize(("p", "m", "transfer_s", "bubble"), [(4, 8, 0.5, 17), (8, 16, 0.5, 41)])
def test_1f1b_waits_for_transfers_as_published(
    p: int, m: int, transfer_s: float, bubble: float
) -> None:
    assert run("1f1b", p, m, transfer_s=transfer_s).makespan_s - 3 * m == pytest.approx(bubble)


@pytest.mark.parametrize(("p", "m", "f", "b", "w", "transfer_s", "rate"), ZERO_BUBBLE_PAPER)
def test_1f1b_gives_the_zero_bubble_papers_rates(
    p: int, m: int, f: float, b: float, w: float, transfer_s: float, rate: float
) -> None:
    assert round(run("1f1b", p, m, Times(f, b, w), transfer_s).bubble_ratio, 4) == rate


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("p", "m"), SIZES)
def test_a_pipeline_without_backward_only_fills_once(name: str, p: int, m: int) -> None:
    work = Work(p, m, backward=False)
    result = simulate(generate(name, work), work)
    assert result.makespan_s == m + p - 1
    assert result.peak_activations == (1,) * p


def test_unequal_stages_wait_for_the_slowest() -> None:
    work = Work(2, 4, backward=False)
    result = simulate(generate("gpipe", work), work, [Times(1.0), Times(3.0)])
    assert result.makespan_s == 1 + 4 * 3
    assert result.bubble_ratio == pytest.approx((2 * 13 - 4 - 12) / (2 * 13))


def test_prologue_and_updates_are_counted() -> None:
    work = Work(2, 1, update_rounds=2)
    result = simulate(generate("1f1b", work), work, Times(prologue_s=5.0, update_s=10.0))
    assert result.makespan_s == 5 + 1 + 1 + 2 + 2 + 10 + 10
    assert [str(timed.action) for timed in result.timeline][-1] == "1U1"

"""The stage planner against brute force."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.solver.pipeline.stages import Line, Pipeline, plan_stages


@dataclass
class Case:
    """One input of the planner.

    Attributes:
        seconds, state, stash: [size, layer].
        send: [size, whether it crosses hosts, layer].
    """

    num_layers: int
    num_devices: int
    sizes: list[int]
    num_microbatches: int
    seconds: np.ndarray
    state: np.ndarray
    stash: np.ndarray
    limit: float
    send: np.ndarray
    few_in_flight: bool
    num_stages: int | None
    devices_per_host: int

    def in_flight(self, behind: int) -> int:
        return min(behind + 1, self.num_microbatches) if self.few_in_flight else 99

    def stage_s(self, m: int, held: int) -> np.ndarray:
        table = np.full((self.num_layers, self.num_layers), math.inf)
        for i, j in itertools.combinations_with_replacement(range(self.num_layers), 2):
            own = slice(i, j + 1)
            if self.state[m, own].sum() + held * self.stash[m, own].sum() <= self.limit:
                table[i, j] = self.seconds[m, own].sum()
        return table

    def plan(self, below_s: float = math.inf) -> Pipeline | None:
        line = Line(
            self.num_layers,
            self.num_devices,
            tuple(self.sizes),
            self.num_microbatches,
            self.stage_s,
            lambda m, crosses: self.send[m, int(crosses)],
            self.in_flight,
            self.devices_per_host,
        )
        return plan_stages(line, num_stages=self.num_stages, below_s=below_s)

    def step_time_s(self, cuts: tuple[int, ...], meshes: tuple[int, ...]) -> float:
        """Round trip of the first microbatch, and the period for each of the others."""
        bounds = list(itertools.pairwise([0, *cuts, self.num_layers]))
        trip_s = period_s = 0.0
        end = self.num_devices
        for behind, ((a, b), m) in enumerate(reversed(list(zip(bounds, meshes, strict=True)))):
            own_s = self.stage_s(m, self.in_flight(behind))[a, b - 1]
            crosses = end % self.devices_per_host == 0
            sent_s = self.send[m, int(crosses), b - 1] if behind else 0.0
            trip_s += own_s + sent_s
            period_s = max(period_s, own_s, sent_s / 2, trip_s / self.in_flight(behind))
            end -= self.sizes[m]
        if trip_s == math.inf:
            return math.inf
        return trip_s + (self.num_microbatches - 1) * period_s

    def placeable(self, meshes: tuple[int, ...]) -> bool:
        start, host = 0, self.devices_per_host
        for m in meshes:
            size = self.sizes[m]
            inside_one = start // host == (start + size - 1) // host
            whole_hosts = start % host == 0 and size % host == 0
            if not inside_one and not whole_hosts:
                return False
            start += size
        return start == self.num_devices

    def brute_force(self) -> float:
        best = math.inf
        counts = range(1, self.num_layers + 1) if self.num_stages is None else [self.num_stages]
        for count in counts:
            for meshes in itertools.product(range(len(self.sizes)), repeat=count):
                if self.placeable(meshes):
                    for cuts in itertools.combinations(range(1, self.num_layers), count - 1):
                        best = min(best, self.step_time_s(cuts, meshes))
        return best


@st.composite
def cases(draw: st.DrawFn) -> Case:
    num_layers = draw(st.integers(1, 6))
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=3, unique=True))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 16)))
    shape = len(sizes), num_layers
    return Case(
        num_layers,
        draw(st.integers(1, 8)),
        sizes,
        draw(st.sampled_from([1, 2, 3, 8, 64])),
        rng.integers(1, 9, shape) * rng.choice([1.0, 0.3]),
        rng.integers(0, 5, shape) * 1.0,
        rng.integers(0, 3, shape) * 1.0,
        draw(st.sampled_from([math.inf, 20.0, 10.0, 5.0])),
        rng.integers(0, 6, (len(sizes), 2, num_layers)) * draw(st.sampled_from([0.0, 0.5, 2.0])),
        draw(st.booleans()),
        draw(st.one_of(st.none(), st.integers(1, num_layers))),
        draw(st.sampled_from([8, 2, 3, 4])),
    )


@given(cases())
def test_equals_exhaustive_search(case: Case) -> None:
    best = case.brute_force()
    if best == math.inf:
        assert case.plan() is None
        return
    found = case.plan()
    assert found is not None
    assert found.step_time_s == pytest.approx(best, rel=1e-5)
    meshes = tuple(case.sizes.index(size) for *_, size in found.stages)
    cuts = tuple(first for first, *_ in found.stages[1:])
    assert case.placeable(meshes)
    assert case.step_time_s(cuts, meshes) == pytest.approx(found.step_time_s)


@given(cases())
def test_only_what_is_faster_than_a_known_pipeline_is_given(case: Case) -> None:
    best = case.brute_force()
    if best < math.inf:
        assert case.plan(below_s=0.99 * best) is None
        found = case.plan(below_s=1.01 * best)
        assert found is not None and found.step_time_s == pytest.approx(best, rel=1e-5)


def even(num_microbatches: int, send_s: float, in_flight: int | None = None) -> Pipeline:
    """Eight layers of one second that shard with an efficiency of 80 % per doubling."""
    ends = np.arange(8)
    layers = np.where(ends[None] >= ends[:, None], ends[None] - ends[:, None] + 1.0, math.inf)
    line = Line(
        8,
        8,
        (1, 2, 4, 8),
        num_microbatches,
        lambda m, held: layers / 1.6**m,
        lambda m, crosses: np.full(8, send_s),
        lambda behind: min(behind + 1, num_microbatches) if in_flight is None else in_flight,
        8,
    )
    found = plan_stages(line)
    assert found is not None
    return found


def test_many_microbatches_pay_for_stages_and_one_does_not() -> None:
    assert (len(even(1, 0.0).stages), len(even(64, 0.0).stages)) == (1, 8)


def test_round_trips_count_where_few_microbatches_are_in_flight() -> None:
    """Deep pipelines whose stages wait for each other's answers are not worth it."""
    waiting, overlapped = even(64, 1.0), even(64, 1.0, in_flight=64)
    assert len(waiting.stages) < len(overlapped.stages)
    assert overlapped.period_s == pytest.approx(1.0)


def test_there_are_no_more_stages_than_layers() -> None:
    case = Case(
        2, 8, [1], 1, np.ones((1, 2)), *(np.zeros((1, 2)),) * 2, 1.0, np.zeros((1, 2, 2)),
        False, 3, 8,
    )  # fmt: skip
    assert case.plan() is None


def test_stages_use_all_devices() -> None:
    case = Case(
        4, 8, [2], 1, np.ones((1, 4)), *(np.zeros((1, 4)),) * 2, 1.0, np.zeros((1, 2, 4)),
        False, 3, 8,
    )  # fmt: skip
    assert case.plan() is None


def test_every_stage_fits() -> None:
    case = Case(
        2, 2, [1], 1, np.ones((1, 2)), *(np.ones((1, 2)),) * 2, 0.5, np.zeros((1, 2, 2)),
        False, None, 8,
    )  # fmt: skip
    assert case.plan() is None

"""The stage planner against brute force."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.solver.pipeline.stage_line import END, HOST, INSIDE, Line, Place
from shardc.solver.pipeline.stages import Pipeline, plan_stages


@dataclass
class Case:
    """One input of the planner.

    Attributes:
        seconds, state, stash: [place, layer].
        send, link: [place, place of the next stage, how the stage ends, layer].
    """

    num_layers: int
    num_devices: int
    places: list[Place]
    num_microbatches: int
    seconds: np.ndarray
    state: np.ndarray
    stash: np.ndarray
    limit: float
    send: np.ndarray
    link: np.ndarray
    few_in_flight: bool
    num_stages: int | None

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
            tuple(self.places),
            self.num_microbatches,
            self.stage_s,
            lambda m, after, end: self.send[m, after, end],
            lambda m, after, end: self.link[m, after, end],
            self.in_flight,
        )
        return plan_stages(line, num_stages=self.num_stages, below_s=below_s)

    def step_time_s(self, cuts: tuple[int, ...], meshes: tuple[int, ...]) -> float:
        """Round trip of the first microbatch, and the period for each of the others."""
        bounds = list(itertools.pairwise([0, *cuts, self.num_layers]))
        trip_s = period_s = 0.0
        end, after = self.num_devices, 0
        for behind, ((a, b), m) in enumerate(reversed(list(zip(bounds, meshes, strict=True)))):
            own_s = self.stage_s(m, self.in_flight(behind))[a, b - 1]
            place = self.places[m]
            ends = HOST if (end - place.first) % place.host == 0 else INSIDE
            ends = END if end == place.end else ends
            to = m, after, ends, b - 1
            sent_s, link_s = (self.send[to], self.link[to]) if behind else (0.0, 0.0)
            trip_s += own_s + sent_s
            held, count = self.in_flight(behind), self.num_microbatches
            if held < count:  # the last `count - held` wait for the one whose place they take
                waits_s = (count - held) * trip_s / held
                period_s = max(period_s, waits_s / (count - 1))
            period_s = max(period_s, own_s, link_s)
            end, after = end - place.size, m
        if trip_s == math.inf:
            return math.inf
        return trip_s + (self.num_microbatches - 1) * period_s

    def placeable(self, meshes: tuple[int, ...]) -> bool:
        start = 0
        for place in (self.places[m] for m in meshes):
            if start < place.first or start + place.size > place.end:
                return False
            own, last = start - place.first, start + place.size - 1 - place.first
            inside_one = own // place.host == last // place.host
            whole_hosts = own % place.host == 0 and place.size % place.host == 0
            if not inside_one and not whole_hosts:
                return False
            start += place.size
        return start == self.num_devices

    def brute_force(self) -> float:
        best = math.inf
        counts = range(1, self.num_layers + 1) if self.num_stages is None else [self.num_stages]
        for count in counts:
            for meshes in itertools.product(range(len(self.places)), repeat=count):
                if self.placeable(meshes):
                    for cuts in itertools.combinations(range(1, self.num_layers), count - 1):
                        best = min(best, self.step_time_s(cuts, meshes))
        return best


@st.composite
def cases(draw: st.DrawFn) -> Case:
    num_layers = draw(st.integers(1, 6))
    ends = draw(st.lists(st.integers(1, 8), min_size=1, max_size=2, unique=True).map(sorted))
    places = []
    for first, end in itertools.pairwise([0, *ends]):
        sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=3, unique=True))
        host = draw(st.sampled_from([8, 2, 3, 4]))
        places += [Place(size, first, end, host) for size in sizes]
    rng = np.random.default_rng(draw(st.integers(0, 1 << 16)))
    shape = len(places), num_layers
    send = rng.integers(0, 6, (len(places), len(places), 3, num_layers))
    send = send * draw(st.sampled_from([0.0, 0.5, 2.0]))
    return Case(
        num_layers,
        ends[-1],
        places,
        draw(st.sampled_from([1, 2, 3, 8, 64])),
        rng.integers(1, 9, shape) * rng.choice([1.0, 0.3]),
        rng.integers(0, 5, shape) * 1.0,
        rng.integers(0, 3, shape) * 1.0,
        draw(st.sampled_from([math.inf, 20.0, 10.0, 5.0])),
        send,
        send * rng.choice([0.5, 1.0], send.shape),
        draw(st.booleans()),
        draw(st.one_of(st.none(), st.integers(1, num_layers))),
    )


@pytest.mark.slow
@given(cases())
def test_equals_exhaustive_search(case: Case) -> None:
    best = case.brute_force()
    if best == math.inf:
        assert case.plan() is None
        return
    found = case.plan()
    assert found is not None
    assert found.step_time_s == pytest.approx(best, rel=1e-5)
    assert [case.places[m].size for m in found.places] == [size for *_, size in found.stages]
    cuts = tuple(first for first, *_ in found.stages[1:])
    assert case.placeable(found.places)
    assert case.step_time_s(cuts, found.places) == pytest.approx(found.step_time_s)


@pytest.mark.slow
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
        tuple(Place(size, 0, 8, 8) for size in (1, 2, 4, 8)),
        num_microbatches,
        lambda m, held: layers / 1.6**m,
        lambda m, after, end: np.full(8, send_s),
        lambda m, after, end: np.full(8, send_s / 2),
        lambda behind: min(behind + 1, num_microbatches) if in_flight is None else in_flight,
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


def test_one_microbatch_gets_about_equal_stages() -> None:
    """All cuts take as long for one; other schedules overlap what the stages do at the end."""
    seconds = np.array([3.0, 1.0, 1.0, 1.0, 2.0, 1.0, 2.0, 1.0])
    ends = np.arange(8)
    sums = np.concatenate([[0.0], np.cumsum(seconds)])
    layers = np.where(
        ends[None] >= ends[:, None], sums[ends + 1][None] - sums[ends][:, None], math.inf
    )
    nothing = np.zeros(8)
    line = Line(
        8,
        4,
        (Place(1, 0, 4, 4),),
        1,
        lambda m, held: layers,
        lambda m, after, end: nothing,
        lambda m, after, end: nothing,
        lambda behind: 1,
    )
    found = plan_stages(line, num_stages=4)
    assert found is not None
    assert (found.step_time_s, found.period_s) == pytest.approx((12.0, 3.0))


def refused(num_layers: int, num_devices: int, size: int, limit: float, asked: int | None) -> bool:
    """Whether layers that hold 2 bytes each fill no devices in stages of one size."""
    ones = np.ones((1, num_layers))
    places, send = [Place(size, 0, num_devices, 8)], np.zeros((1, 1, 3, num_layers))
    ways = ones, ones, ones, limit, send, send
    case = Case(num_layers, num_devices, places, 1, *ways, True, asked)
    return case.plan() is None


def test_there_are_no_more_stages_than_layers() -> None:
    assert refused(2, 3, 1, 9.0, 3) and not refused(3, 3, 1, 9.0, 3)


def test_stages_use_all_devices() -> None:
    assert refused(4, 8, 2, 9.0, 3) and not refused(4, 8, 2, 9.0, 4)


def test_every_stage_fits() -> None:
    assert refused(2, 2, 1, 1.5, None) and not refused(2, 2, 1, 2.5, None)

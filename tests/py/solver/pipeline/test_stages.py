"""The stage planner against brute force."""

import itertools
import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.errors import InfeasibleError, StageError
from shardc.solver.pipeline.stages import Pipeline, plan_stages


@dataclass
class Case:
    """One input of the planner; `seconds` is filled by `cost`."""

    num_layers: int
    num_devices: int
    sizes: list[int]
    num_microbatches: int
    transfer_s: list[float]
    num_stages: int | None
    devices_per_host: int | None
    times: dict[tuple[int, int, int, int], float]

    def cost(self, first: int, last: int, mesh: int, after: int) -> float:
        return self.times[first, last, mesh, after]

    def plan(self) -> Pipeline:
        return plan_stages(
            self.cost,
            num_layers=self.num_layers,
            num_devices=self.num_devices,
            submesh_sizes=self.sizes,
            num_microbatches=self.num_microbatches,
            transfer_s=self.transfer_s,
            num_stages=self.num_stages,
            devices_per_host=self.devices_per_host,
        )

    def step_time_s(self, cuts: tuple[int, ...], meshes: tuple[int, ...]) -> float:
        bounds = [0, *cuts, self.num_layers]
        stations = [
            self.cost(a, b - 1, m, len(meshes) - 1 - i)
            for i, ((a, b), m) in enumerate(zip(itertools.pairwise(bounds), meshes, strict=True))
        ] + [self.transfer_s[c - 1] for c in cuts]
        return sum(stations) + (self.num_microbatches - 1) * max(stations)

    def placeable(self, meshes: tuple[int, ...]) -> bool:
        start, host = 0, self.devices_per_host
        for m in meshes:
            size = self.sizes[m]
            if host is not None:
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
    num_layers = draw(st.integers(1, 5))
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3, unique=True))
    seconds = st.one_of(st.integers(0, 4).map(float), st.floats(0, 5), st.just(math.inf))
    keys = [
        (i, j, m, after)
        for i in range(num_layers)
        for j in range(i, num_layers)
        for m in range(len(sizes))
        for after in range(num_layers)
    ]
    rng = draw(st.randoms(use_true_random=False))
    kinds = draw(st.lists(seconds, min_size=1, max_size=8))
    return Case(
        num_layers,
        draw(st.integers(1, 6)),
        sizes,
        draw(st.integers(1, 6)),
        draw(st.lists(st.floats(0, 3), min_size=num_layers - 1, max_size=num_layers - 1)),
        draw(st.one_of(st.none(), st.integers(1, num_layers))),
        draw(st.sampled_from([None, 2, 3])),
        {key: rng.choice(kinds) * rng.choice([1.0, 0.5, 1.25]) for key in keys},
    )


@given(cases())
def test_equals_brute_force(case: Case) -> None:
    best = case.brute_force()
    if best == math.inf:
        with pytest.raises((StageError, InfeasibleError)):
            case.plan()
        return
    found = case.plan()
    assert found.step_time_s == pytest.approx(best)
    meshes = tuple(case.sizes.index(size) for *_, size in found.stages)
    cuts = tuple(first for first, *_ in found.stages[1:])
    assert case.placeable(meshes)
    assert case.step_time_s(cuts, meshes) == pytest.approx(best)


def even(first: int, last: int, mesh: int, after: int) -> float:
    """Layers of one second that shard with an efficiency of 80 % per doubling."""
    return (last - first + 1) / 1.6**mesh


def test_many_microbatches_pay_for_stages_and_one_does_not() -> None:
    def plan(num_microbatches: int) -> int:
        found = plan_stages(
            even,
            num_layers=8,
            num_devices=8,
            submesh_sizes=[1, 2, 4, 8],
            num_microbatches=num_microbatches,
        )
        return len(found.stages)

    assert (plan(1), plan(64)) == (1, 8)


def test_memory_that_depends_on_the_stages_behind_shapes_the_pipeline() -> None:
    def cost(first: int, last: int, mesh: int, after: int) -> float:
        fits = (last - first + 1) * (after + 1) <= 4
        return even(first, last, mesh, after) if fits else math.inf

    found = plan_stages(
        cost, num_layers=6, num_devices=2, submesh_sizes=[1], num_microbatches=8, num_stages=2
    )
    assert found.stages == ((0, 1, 1), (2, 5, 1))


def test_each_cost_is_asked_for_once_and_only_where_it_can_occur() -> None:
    asked: list[tuple[int, int, int, int]] = []

    def cost(first: int, last: int, mesh: int, after: int) -> float:
        asked.append((first, last, mesh, after))
        return 1.0

    plan_stages(
        cost, num_layers=4, num_devices=4, submesh_sizes=[2], num_microbatches=2, num_stages=2
    )
    assert len(asked) == len(set(asked))
    assert sorted(asked) == [
        *((0, j, 0, 1) for j in range(3)),
        *((i, 3, 0, 0) for i in range(1, 4)),
    ]


def test_more_stages_than_layers_is_an_error() -> None:
    with pytest.raises(StageError, match=r"SHARDC-160.*5 stages"):
        plan_stages(
            even, num_layers=4, num_devices=8, submesh_sizes=[1], num_microbatches=1, num_stages=5
        )


def test_devices_that_cannot_be_filled_are_an_error() -> None:
    with pytest.raises(StageError, match=r"SHARDC-162.*cannot fill 8 devices with 3 stages"):
        plan_stages(
            even, num_layers=4, num_devices=8, submesh_sizes=[2], num_microbatches=1, num_stages=3
        )


def test_no_stage_that_fits_is_an_error() -> None:
    with pytest.raises(InfeasibleError, match="SHARDC-220"):
        plan_stages(
            lambda *_: math.inf, num_layers=2, num_devices=2, submesh_sizes=[1], num_microbatches=1
        )

"""Pipelines that another schedule may make the fastest."""

from types import SimpleNamespace
from typing import Any

import jax
import msgspec
import numpy as np
import pytest

import shardc
from shardc.cluster import Cluster
from shardc.errors import ScheduleError
from shardc.plan.predicted import JudgedSchedule
from shardc.planner.proposal import Found, Key, Proposal
from shardc.planner.schedules import choice, hoped_pipelines
from shardc.planner.schedules.cuts import Cut
from shardc.planner.schedules.hoped_pipelines import Passes, hoped_pipeline, passes_of
from shardc.schedule.families import built_in
from shardc.schedule.simulate import lengths
from shardc.schedule.tasks import BACKWARD, FORWARD, WEIGHT, WHOLE_BACKWARD
from shardc.schedule.work import Work
from shardc.solver.pipeline.stages import Pipeline
from tests.py.programs import build


def pipeline_of(stages: int, count: int, stage_s: float = 1.0, slowest_s: float = 0.0) -> Pipeline:
    """Stages that take `stage_s` for a microbatch, but perhaps one."""
    period_s = max(stage_s, slowest_s)
    trip_s = stages * stage_s if not slowest_s else (stages - 1) * stage_s + slowest_s
    layers = tuple((stage, stage, 1) for stage in range(stages))
    return Pipeline(layers, trip_s + (count - 1) * period_s, period_s)


def shortest_s(stages: int, count: int) -> float:
    """The shortest step of any family whose passes each take a third."""
    found = []
    for family in built_in().values():
        if family.slices or family.any_placement or family.moves:
            continue
        for chunks in family.chunks[:1] or (2, 4):
            try:
                work = family.work(Work(stages, count, prologue=False, update_rounds=0), chunks)
            except ScheduleError:
                continue
            thirds = {"F": 1, "B": 1 if family.split_backward else 2, "W": 1, "X": 2}
            takes = {kind: n / 3 / chunks for kind, n in thirds.items()}
            schedule = family.generate(work)
            graph = family.graph(work, schedule)
            found.append(lengths(schedule, graph, lambda task, t=takes: t[task.kind], 0.0)[1])
    return float(min(found))


@pytest.mark.parametrize("stages", [2, 4, 8])
@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
def test_the_hope_is_about_the_best_schedule(stages: int, count: int) -> None:
    hoped_s = Passes().least_s(pipeline_of(stages, count), count)
    assert 0.9 * hoped_s <= shortest_s(stages, count) <= 1.1 * hoped_s


def test_a_slow_stage_is_assumed_to_be_cut_again() -> None:
    even, uneven = pipeline_of(4, 64, 1.0), pipeline_of(4, 64, 0.5, 2.5)
    assert Passes().least_s(uneven, 64) < 1.25 * Passes().least_s(even, 64)


def test_passes_are_those_of_the_planned_stages() -> None:
    seconds = {(s, k): t for s in (0, 1) for k, t in zip("FX", (1.0, 3.0), strict=True)}
    assert {FORWARD, WHOLE_BACKWARD} == {"F", "X"}
    seconds |= {(1, BACKWARD): 1.0, (0, WEIGHT): 3.0, (1, WEIGHT): 1.0}
    found = passes_of(Cut(seconds, {}, {}, {}, True))
    assert found == pytest.approx((2 / 8, 1 / 8, 4 / 8))
    assert passes_of(Cut(seconds, {}, {}, {}, False)) == Passes()


def found(stages: int, count: int, **times: float) -> Found:
    return Found(Key(stages, 8 // stages, count, "1f1b"), pipeline_of(stages, count, **times))


@pytest.mark.parametrize(
    ("below_s", "known", "chosen"),
    [
        pytest.param(9.8, (), (4, 8), id="8.5 of 11 seconds"),
        pytest.param(9.8, [(4, 8)], (2, 16), id="the next, of those that are not known"),
        pytest.param(8.0, (), None, id="slower than the best even then"),
    ],
)
def test_a_pipeline_with_a_long_bubble_may_be_the_best_under_another_schedule(
    below_s: float, known: Any, chosen: tuple[int, int] | None
) -> None:
    shapes = [found(1, 1, stage_s=8.6), found(4, 8), found(2, 16, stage_s=0.6)]
    settled: list[Key] = []
    search: Any = SimpleNamespace(
        prices=SimpleNamespace(backward=True, least_s=lambda size, count: 0.0),
        estimated=lambda wanted: [each for each in shapes if wanted(each.key)],
        settled=lambda each: settled.append(each.key) or each,
        proposal=lambda each: (each.key.num_stages, each.key.num_microbatches),
    )
    assert hoped_pipeline(search, below_s, known, Passes(), {}) == chosen
    asked = [(key.num_stages, key.num_microbatches) for key in settled]
    assert asked == ([] if chosen is None else [chosen])
    search.prices.backward = False  # without a backward pass no family fills the bubble
    assert hoped_pipeline(search, below_s, known, Passes(), {}) is None


def test_a_hope_that_its_own_prices_do_not_confirm_is_given_up() -> None:
    slow: list[Found | None] = [found(4, 8, stage_s=1.5), None]
    for each in slow:
        search: Any = SimpleNamespace(
            prices=SimpleNamespace(backward=True, least_s=lambda size, count: 0.0),
            estimated=lambda wanted: [found(4, 8)],
            settled=lambda hoped, each=each: each,
        )
        assert hoped_pipeline(search, 9.8, (), Passes(), {}) is None


def test_what_planned_pipelines_take_of_their_estimates_scales_others() -> None:
    """Those with as many stages; the rest by the least, as estimates may be too high."""
    shapes = [found(4, 8), found(2, 16, stage_s=0.6)]
    search: Any = SimpleNamespace(
        prices=SimpleNamespace(backward=True, least_s=lambda size, count: 0.0),
        estimated=lambda wanted: [each for each in shapes if wanted(each.key)],
        settled=lambda each: each,
        proposal=lambda each: each.key.num_stages,
    )
    assert hoped_pipeline(search, 9.8, (), Passes(), {4: 1.5}) == 2
    assert hoped_pipeline(search, 7.0, (), Passes(), {8: 0.7}) == 4


def test_stages_that_are_far_from_equal_are_cut_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cut: list[object] = []
    monkeypatch.setattr(hoped_pipelines, "evened", lambda splits, it: cut.append(it) or "even")
    uneven = found(4, 2, stage_s=0.5, slowest_s=3.0)
    search: Any = SimpleNamespace(
        prices=SimpleNamespace(backward=True, least_s=lambda size, count: 0.0),
        splits=None,
        estimated=lambda wanted: [uneven],
        settled=lambda each: each,
        proposal=lambda each: "whole layers",
    )
    proposal: Any = hoped_pipeline(search, 100.0, (), Passes(), {})
    assert (proposal, cut) == ("even", ["whole layers"])


@pytest.mark.slow
def test_other_pipelines_are_weighed_too_and_do_not_replace_a_better_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned: list[Proposal] = []

    def remembered(*given: Any) -> Proposal | None:
        proposal = hoped_pipeline(*given)
        planned.extend([] if proposal is None else [proposal])
        return proposal

    monkeypatch.setattr(choice, "hoped_pipeline", remembered)
    program = build("mlp")
    a100s = Cluster.load("a100-8")  # kernels that start at once, or none would be worth two rounds
    timing = msgspec.structs.replace(a100s.device.timing, launch_s=0.0)
    device = msgspec.structs.replace(a100s.device, timing=timing)
    cluster = msgspec.structs.replace(a100s, device=device)
    options: dict[str, Any] = {"cluster": cluster, "stages": 4, "mesh": (1,)}
    best = shardc.jit(program.step, **options).lower(*program.args).plan().plan
    counts = [each.shape.num_microbatches for each in planned]
    assert counts and len(set(counts)) == len(counts)
    assert best.account is not None
    exact = [each.exact.step_time_s for each in best.account.judged if each.exact is not None]
    assert best.predicted.step_time_s == min(exact) and len(exact) > 2
    judged: list[JudgedSchedule] = [each for each in best.schedules if each.is_planned]
    assert min(judged, key=lambda each: each.step_time_s).name == best.schedule


@pytest.mark.slow
def test_one_microbatch_in_several_stages_is_planned_and_right() -> None:
    """Where launches take all the time, stages of one microbatch overlap their weight gradients."""
    program = build("mlp")
    options: dict[str, Any] = {"cluster": Cluster.load("cpu8"), "microbatches": 1, "stages": 4}
    step = shardc.jit(program.step, **options)
    plan = step.lower(*program.args).plan().plan
    assert (plan.num_microbatches, len(plan.stages) // plan.num_chunks) == (1, 4)
    expected = program.step(*program.args)
    ours = jax.tree.leaves(step(*program.args))
    for one, other in zip(ours, jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)


@pytest.mark.slow
def test_pipelines_of_one_microbatch_are_considered() -> None:
    """A split backward overlaps the weight gradients of their stages."""
    program = build("mlp")
    step = shardc.jit(program.step, cluster=Cluster.load("h100-8"), microbatches=1)
    account = step.lower(*program.args).plan().plan.account
    assert account is not None
    assert max(len(each.meshes) for each in account.judged) > 1

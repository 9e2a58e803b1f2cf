"""`schedule="auto"`: the shortest simulated step of all families that run and fit."""

import functools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import msgspec
import pytest

import shardc
from shardc.cost.model import CostModel
from shardc.cost.submeshes import mesh_of
from shardc.cutting import work_of
from shardc.errors import ScheduleError
from shardc.options import PlanOptions
from shardc.plan.decisions import Plan
from shardc.plan.predicted import JudgedSchedule
from shardc.plan.shape import PipelineShape
from shardc.plan.stages_spec import Recompute
from shardc.planner.attempts import Attempts
from shardc.planner.budget import BUDGET
from shardc.planner.candidate import Candidate
from shardc.planner.promising import Promising
from shardc.planner.proposal import Proposal
from shardc.planner.schedules import step_time
from shardc.planner.schedules.choice import _counts, _is_beaten, _is_enough
from shardc.planner.schedules.estimates import ROUGH, Estimates
from shardc.planner.schedules.recut import Recut, Rule
from shardc.planner.schedules.step_time import stage_times
from shardc.planner.search import Planner
from shardc.report.summary import MOST_SCHEDULES, explain
from shardc.schedule.families import built_in
from shardc.schedule.family import Costs, ScheduleFamily
from shardc.schedule.simulate import lengths, simulate
from shardc.schedule.times import Times
from shardc.schedule.work import Work
from tests.py.passes.test_slice_tokens import arguments, attention, infinite, step_of
from tests.py.programs import build
from tests.py.scanned_gpt import scanned_gpt
from tests.py.table import CLUSTER

SLICED = {name for name, family in built_in().items() if family.slices}


@functools.cache
def plan(**options: Any) -> Plan:
    """The MLP in two stages of one device and eight microbatches."""
    program = build("mlp")
    step = shardc.jit(
        program.step,
        donate_argnums=program.donate_argnums,
        cluster=CLUSTER,
        stages=2,
        microbatches=8,
        mesh=(1,),
        time_limit_s=30,
        **options,
    )
    return step.lower(*program.args).plan().plan


@pytest.mark.slow
def test_the_plan_has_the_least_step_of_all_that_were_planned() -> None:
    found = plan()
    planned = [each for each in found.schedules if each.is_planned]
    assert found.predicted.step_time_s == min(each.step_time_s for each in planned)
    assert found.schedule in {each.name for each in planned}
    assert found.predicted.step_time_s <= plan(schedule="1f1b").predicted.step_time_s


@pytest.mark.slow
def test_every_family_that_runs_is_weighed_and_reported() -> None:
    found = plan()
    names = {n for n, f in built_in().items() if not (f.any_placement or f.moves)}
    assert {each.name for each in found.schedules} == names
    assert {each.name for each in found.schedules if each.slices > 1} == SLICED
    text = explain(found)
    assert f" {found.schedule} " in text
    assert f"... and {len(found.schedules) - MOST_SCHEDULES} more in `plan.schedules`" in text
    assert all(each.step_time_s > 0 for each in found.schedules if not each.refusal)


@pytest.mark.parametrize(("name", "adds_less"), [("zb-h2", True), ("gpipe", False)])
def test_explain_says_what_one_more_step_adds_where_it_is_less(name: str, adds_less: bool) -> None:
    found = plan(schedule=name)
    predicted = found.predicted
    assert (predicted.next_step_s < 0.999 * predicted.step_time_s) is adds_less
    assert found.objective <= predicted.next_step_s * (1 + 1e-9)
    assert ("in a run of many steps, one more adds" in explain(found)) is adds_less


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "close"),
    [
        *((name, 0.01) for name in ("gpipe", "zb-h1", "zb-h2", "2bp-gpipe", "2bp-eager-1f1b")),
        *((name, 0.1) for name in ("interleaved-1f1b", "zb-v", "chimera")),
    ],
)
def test_estimates_are_near_the_plan(name: str, close: float) -> None:
    """Those of schedules with the planned stages above all, whether they split the backward or not:
    the first stage sends nothing back, so it has no B to wait for."""
    estimate = next(each for each in plan().schedules if each.name == name)
    exact = plan(schedule=name).predicted
    assert estimate.step_time_s == pytest.approx(exact.step_time_s, rel=close)
    assert estimate.peak_bytes == pytest.approx(exact.peak_bytes_per_device, rel=0.5)


@pytest.mark.slow
def test_chunks_are_estimated_as_they_are_cut() -> None:
    program = build("mlp")
    options = {"stages": 2, "microbatches": 8, "mesh": (1,), "schedule": "1f1b"}
    step = shardc.jit(program.step, donate_argnums=program.donate_argnums, cluster=CLUSTER)
    module = step.lower(*program.args).plan()._prepared
    planner = Planner(module, CLUSTER, PlanOptions(**options))
    planner.run()
    assert planner.tried.best is not None
    estimates = Estimates(planner.tried.best, planner.cluster, planner.splits)
    for name in ("interleaved-1f1b", "zb-v", "v-half", "hanayo"):
        found = estimates.of(built_in()[name], 2)
        proposal = estimates.proposal(found)
        assert isinstance(proposal, Proposal)
        exact = planner.tried.plan(proposal, BUDGET.final)
        assert isinstance(exact, Candidate)
        assert found.step_time_s == pytest.approx(exact.seconds, rel=0.01), name
        assert found.peak_bytes == pytest.approx(exact.peak_bytes, rel=0.25), name


@functools.cache
def planned_checkpointed(*rules: Recompute) -> tuple[Candidate, Planner]:
    """Four checkpointed layers in two stages of one device and eight microbatches, planned as
    `1f1b`, by what each stage recomputes."""
    program = scanned_gpt()
    step = shardc.jit(program.step, donate_argnums=0, cluster=CLUSTER)
    options = PlanOptions(stages=2, microbatches=8, mesh=(1,), schedule="1f1b")
    module = step.lower(*program.args).plan()._prepared
    planner = Planner(module, CLUSTER, options)
    planner.run()
    best = planner.tried.best
    assert best is not None
    shape = best.shape.recomputing(rules, [2, 1])
    planned = planner.tried.plan(replace(best.proposal, shape=shape), BUDGET.final)
    assert isinstance(planned, Candidate)
    return planned, planner


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rules", "whole", "chunks"),
    [
        (("none", "none"), [None, "selective", "user"], [None, "selective", "user"]),
        (("user", "none"), [None, "user"], ["user"]),
        (("user", "user"), [None], [None]),
    ],
)
def test_stages_may_recompute_more_than_planned(
    rules: tuple[Recompute, ...], whole: list[Rule], chunks: list[Rule]
) -> None:
    base, planner = planned_checkpointed(*rules)
    recut = Recut(base, work_of(base.module, base.shape), planner.splits, CostModel(CLUSTER))
    assert recut.rules(1) == whole and recut.rules(2) == chunks


@pytest.mark.slow
@pytest.mark.parametrize("name", ["interleaved-1f1b", "gpipe", "zb-h1"])
def test_a_schedule_fits_if_stages_recompute_more(name: str) -> None:
    """Where it does not fit with what the planned stages keep, and is faster nevertheless."""
    base, planner = planned_checkpointed("none", "none")
    estimates = Estimates(base, CLUSTER, planner.splits)
    family = built_in()[name]
    chunks = 2 if name.startswith("interleaved") else 1
    kept = estimates.of(family, chunks)
    less = estimates.of(family, chunks, limit_bytes=kept.peak_bytes - 1)
    assert not kept.recompute and less.recompute in ("selective", "user")
    assert less.peak_bytes < kept.peak_bytes and less.step_time_s > kept.step_time_s
    slow = estimates.of(family, chunks, less.step_time_s, kept.peak_bytes - 1)
    assert not slow.recompute and slow.peak_bytes == kept.peak_bytes  # useless, and not cut again
    assert slow.step_time_s == pytest.approx(kept.step_time_s, rel=0.1)
    for each in (kept, less):
        proposal = estimates.proposal(each)
        assert isinstance(proposal, Proposal)
        exact = planner.tried.plan(proposal, BUDGET.final)
        assert isinstance(exact, Candidate)
        assert each.step_time_s == pytest.approx(exact.seconds, rel=0.05)
        assert each.peak_bytes == pytest.approx(exact.peak_bytes, rel=0.3)


@pytest.mark.slow
def test_what_does_not_fit_is_not_taken() -> None:
    peaks = {each.name: each.peak_bytes for each in plan().schedules}
    limit = (peaks["1f1b"] + peaks["gpipe"]) // 2
    found = plan(memory_limit_bytes=limit)
    assert found.predicted.peak_bytes_per_device <= limit
    refused = {each.name for each in found.schedules if each.refusal}
    assert "gpipe" in refused and found.schedule not in refused


@pytest.mark.slow
def test_chunks_are_as_asked_for() -> None:
    found = plan(chunks=2)
    assert found.num_chunks == 2 and len(found.own_stages) == 4
    assert {each.chunks for each in found.schedules} == {2}
    with pytest.raises(ScheduleError, match="runs 1 chunk per device, not 2") as caught:
        plan(schedule="1f1b", chunks=2)
    assert caught.value.code == "SHARDC-242"


def test_slices_that_cannot_be_had_are_not_met_with_the_reason() -> None:
    with pytest.warns(shardc.RequestWarning, match="1 slice instead of 2: the sequences cannot be"):
        found = plan(slices=2)
    assert found.num_slices == 1 and found.unmet
    assert {each.name for each in found.schedules if each.slices > 1} == SLICED
    assert all("needs the sum over all tokens" in each.refusal for each in found.schedules)


@pytest.mark.slow
def test_slices_that_a_step_would_have_to_check_are_chosen_only_if_asked_for() -> None:
    with jax.enable_x64(True):
        options = {"cluster": CLUSTER, "stages": 2, "microbatches": 1, "mesh": (1,)}
        step = shardc.jit(step_of(attention(infinite)), **options)
        found = step.lower(*arguments()).plan().plan
    assert found.num_slices == 1 and not found.unmet
    refused = {each.refusal for each in found.schedules if each.name in SLICED}
    assert any("would have to check what its slices take for granted" in why for why in refused)


@pytest.mark.slow
def test_slices_are_weighed_like_other_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single microbatch of long sequences: what is cut into slices fills most of the bubble."""
    timed: list[Times] = []

    def remembered(*given: Any) -> Times:
        timed.append(stage_times(*given))
        return timed[-1]

    monkeypatch.setattr(step_time, "stage_times", remembered)
    with jax.enable_x64(True):
        args, step = arguments(), step_of(attention(infinite))
        options = {"cluster": CLUSTER, "stages": 2, "microbatches": 1, "mesh": (1,)}
        found = shardc.jit(step, slices=3, **options).lower(*args).plan().plan
        named = {"schedule": found.schedule, "slices": 3}
        exact = shardc.jit(step, **options, **named).lower(*args).plan().plan
    first = timed[-2]  # of the last plan's two stages: each slice takes the time of its programs
    assert sum(first.forward_slices) == pytest.approx(1) and len(first.forward_slices) == 3
    assert len(set(first.forward_slices)) > 1
    assert found.num_slices == 3 and {each.name for each in found.schedules} == SLICED
    assert found.predicted.step_time_s == exact.predicted.step_time_s
    estimates = [each for each in found.schedules if not each.is_planned]
    assert not any(each.refusal for each in estimates)


@pytest.mark.parametrize(("size", "stretch"), [(4, 0.35 / 0.3), (2, 1.0)])
def test_slices_take_as_long_as_microbatches_of_their_size(size: int, stretch: float) -> None:
    """As priced on submeshes of four devices: half of the rows take 0.35 s instead of 0.3."""
    prices = SimpleNamespace(open_sizes=lambda: (4,), least_s=lambda _, count: 1 / count + 0.1)
    search: Any = SimpleNamespace(prices=prices)
    shape = PipelineShape(2, (), (mesh_of((size,), range(size)),), "1f1b")
    assert Promising([], search).stretch(shape, 2) == pytest.approx(stretch)


@pytest.mark.parametrize(
    ("estimate_s", "chunks", "beaten"),
    [
        pytest.param(0.9, 2, False, id="clearly faster"),
        pytest.param(0.99, 1, False, id="the same stages"),
        pytest.param(0.99, 2, True, id="other stages, hardly faster"),
        pytest.param(1.0, 1, True, id="no faster"),
    ],
)
def test_a_schedule_is_beaten_by_a_plan_that_is_faster_than_its_estimate(
    estimate_s: float, chunks: int, beaten: bool
) -> None:
    """Whatever the stages of the best plan: it may have turned out slower than its own estimate."""
    best: Any = SimpleNamespace(shape=SimpleNamespace(num_chunks=1, num_slices=1), seconds=2.0)
    assert _is_beaten(JudgedSchedule("zb-v", chunks, estimate_s), 2.0, best) == beaten


@pytest.mark.parametrize(
    ("layers", "counts"),
    [
        ([4, 4], (2, 4)),
        ([2, 1], (2,)),
        ([6, 6], (2, 3, 6)),
        ([1, 1], (2, 4, 8)),
        ([6] * 4, (2, 3, 6)),
    ],
)
def test_chunks_are_tried_where_groups_get_equal_numbers_of_layers(
    layers: list[int], counts: tuple[int, ...]
) -> None:
    proposal = SimpleNamespace(layers=tuple(tuple(range(n)) for n in layers))
    shape = SimpleNamespace(meshes=(None,) * len(layers))
    base: Any = SimpleNamespace(proposal=proposal, shape=shape)
    assert _counts(base) == counts


@pytest.mark.parametrize(
    ("steps", "enough"),
    [([], False), ([9.0], False), ([9.6], True), ([11.0], True), ([9.0, 8.8], True),
     ([9.0, 8.4], False), ([9.0, 0.0], False)],
)  # fmt: skip
def test_more_chunks_are_tried_while_they_may_win(steps: list[float], enough: bool) -> None:
    """Of a family whose step without chunks takes 10, to come below 8.5; 0.0: it cannot have that
    many."""
    judged = [JudgedSchedule("hanayo", n, step) for n, step in enumerate(steps, 2)]
    assert _is_enough(judged, 10.0, 8.5) == enough


def test_schedules_with_the_same_lanes_are_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager 1f1b warms up no more than 1f1b if there are only two microbatches."""
    names: list[str] = []
    planned = Attempts._planned

    def remembered(self: Attempts, proposal: Proposal, **options: Any) -> Candidate:
        names.append(proposal.shape.schedule)
        return planned(self, proposal, **options)

    monkeypatch.setattr(Attempts, "_planned", remembered)
    program = build("mlp")
    options: dict[str, Any] = {"cluster": CLUSTER, "stages": 4, "microbatches": 2, "mesh": (1,)}
    found = shardc.jit(program.step, **options).lower(*program.args).plan().plan
    known = {each.name: each for each in found.schedules if each.is_planned}
    alike = "2bp-1f1b", "2bp-eager-1f1b"
    assert known.keys() >= set(alike)
    assert len({msgspec.structs.replace(known[name], name="") for name in alike}) == 1
    assert len([name for name in names if name in alike]) == 1


@pytest.mark.slow
def test_optimal_is_no_slower_than_any_family_and_runs() -> None:
    """It plans all that may be the best, and then the best order on the placement of that."""
    program = build("mlp")
    options: dict[str, Any] = {"cluster": CLUSTER, "stages": 4, "microbatches": 8, "mesh": (1,)}
    planned = shardc.jit(program.step, schedule="optimal", **options).lower(*program.args).plan()
    weighed = planned.plan.schedules
    assert planned.plan.predicted.step_time_s == min(
        each.step_time_s for each in weighed if not each.refusal
    )
    ordered = [each for each in weighed if each.name.startswith("optimal:")]
    assert [each.is_planned for each in ordered] == [True]
    assert 0.5 * ordered[0].step_time_s < ordered[0].lower_bound_s <= ordered[0].step_time_s
    assert not any(each.lower_bound_s for each in weighed if each not in ordered)
    assert "no order of these stages takes less than" in planned.explain()
    assert planned.plan.num_replicas == 2
    named = shardc.jit(program.step, schedule=ordered[0].name, **options)
    assert named.lower(*program.args).plan().plan.schedule == ordered[0].name


def test_a_schedule_that_is_named_is_not_weighed() -> None:
    assert plan(schedule="1f1b").schedules == ()


@pytest.mark.slow
@pytest.mark.parametrize("transfer", [0, 2])
def test_rounds_of_a_full_pipeline_are_alike(transfer: int) -> None:
    few, more = BUDGET.rounds
    unlike = []
    for family in built_in().values():
        chunks = family.chunks[0] if family.chunks else 2
        work = None if family.slices else family.work(Work(4, 10 * 4), chunks)
        if work is None or family.searches(work) or family.refuses(work):
            continue

        def makespan_s(rounds: int, family: ScheduleFamily = family, work: Work = work) -> float:
            some = replace(work, num_microbatches=4 * rounds)
            lanes = family.generate(some)
            graph = family.graph(some, lanes)
            takes = {"F": 10, "B": 10, "W": 10, "X": 20}
            return float(
                simulate(
                    lanes, graph, lambda task: takes.get(task.kind, 5) + task.stage % 3, transfer
                ).makespan_s
            )

        drawn = makespan_s(few) + (10 - few) / (more - few) * (makespan_s(more) - makespan_s(few))
        almost = any(name in family.name for name in ("hanayo", "grouped"))
        if drawn != pytest.approx(makespan_s(10), rel=0.04 if almost else 1e-9):
            unlike.append(family.name)
    assert not unlike


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v-half", "v-min", "1f1b-v"])
def test_rough_orders_of_few_rounds_tell_the_length_of_many(name: str) -> None:
    """Of families that search longer the more microbatches there are."""
    family = built_in()[name]
    work = family.work(Work(8, 64, prologue=False, update_rounds=0))
    assert family.searches(work)

    def makespan_s(count: int, costs: Costs | None = None) -> float:
        some = replace(work, num_microbatches=count)
        lanes = family.generate(some, costs)
        graph = family.graph(some, lanes)
        takes = {"F": 10, "B": 10 if family.split_backward else 20, "W": 10}
        return float(lengths(lanes, graph, lambda task: takes[task.kind] + task.stage % 3, 1)[1])

    few, more = (8 * rounds for rounds in BUDGET.rounds_of_searched)
    few_s, more_s = makespan_s(few, ROUGH), makespan_s(more, ROUGH)
    drawn = few_s + (64 - few) / (more - few) * (more_s - few_s)
    assert drawn == pytest.approx(makespan_s(64), rel=0.03)

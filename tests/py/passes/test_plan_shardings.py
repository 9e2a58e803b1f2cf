"""What a stage holds stays within the limit, what its reshards hold included."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardc.analysis.shardings.known_problems import StageProblems, remembered
from shardc.ir.attributes import STAGE, STAGE_REPORTS, data_of, get_int
from shardc.ir.context import parse
from shardc.ir.copy import copy_module
from shardc.ir.pass_manager import run_passes
from shardc.ir.shardings import meshes
from shardc.ir.walk import functions
from shardc.passes.assign_meshes import AssignMeshes
from shardc.passes.outline_stages import OutlineStages
from shardc.passes.pipeline import NORMALIZE
from shardc.passes.plan_shardings import PlanShardings, _digest
from shardc.passes.plan_stages import PlanStages
from shardc.passes.share_reshards import ShareReshards
from shardc.passes.split_microbatches import SplitMicrobatches
from shardc.plan.layout import Mesh
from shardc.plan.predicted import StageReport
from shardc.solver.problem.problem import Problem
from shardc.solver.solve import LimitError
from tests.py.analysis.shardings.planned_programs import cluster, outlined

LINE = Mesh((("x", 4),), tuple(range(4)))


def step(weights, x):
    def loss(weights):
        h = x
        for w in weights:
            h = jax.nn.relu(h @ w)
        return jnp.mean(h**2)

    value, gradients = jax.value_and_grad(loss)(weights)
    return [w - g for w, g in zip(weights, gradients, strict=True)], value


def reported(module, limit):
    machine = cluster(flops_per_s=1e9)
    planned = copy_module(module)
    run_passes(planned, [PlanShardings(machine, memory_limit=limit)])
    with planned.context:
        (report,) = data_of(planned.operation.attributes[STAGE_REPORTS], list[StageReport])
    assert report.peak_bytes == report.memory.total
    return report


@pytest.fixture(scope="module")
def module():
    """Weights that outweigh the activations: under a tight limit they are split, and gathered."""
    weights = [np.ones((64, 64), np.float32)] * 3
    found = outlined(step, weights, np.ones((64, 64), np.float32), donate=0)
    run_passes(found, [AssignMeshes((LINE,))])
    return found


@pytest.mark.slow
def test_no_plan_holds_more_than_the_limit(module):
    free = reported(module, 1 << 30)
    with pytest.raises(LimitError) as too_little:
        reported(module, free.peak_bytes // 4)
    least = too_little.value.least_bytes
    fits = 0
    for part in np.linspace(0.0, 1.0, 8):
        limit = int(least + part * (free.peak_bytes - least))
        try:
            report = reported(module, limit)
        except LimitError:
            assert not fits, "less would have been enough"
            continue
        fits += 1
        assert report.peak_bytes <= limit
        assert report.lower_bound <= report.objective
        assert any(each.kind == "all_gather" for each in report.collectives) or part == 1.0
    assert fits >= 3


def test_a_result_takes_no_place_only_where_its_argument_is_given_away():
    weights = [np.ones((64, 64), np.float32)] * 3
    peaks = []
    for donate in ((), 0):
        module = outlined(step, weights, np.ones((2, 64), np.float32), donate=donate)
        run_passes(module, [AssignMeshes((Mesh((), (0,)),))])
        peaks.append(reported(module, 1 << 30).peak_bytes)
    kept, given_away = peaks
    assert kept - given_away == pytest.approx(3 * 64 * 64 * 4, rel=0.15)


@pytest.fixture(scope="module")
def eight_stages():
    """Six of them are equal but for how many microbatches they hold."""
    weights = [np.ones((64, 64), np.float32)] * 8
    text = jax.jit(step, donate_argnums=0).lower(weights, np.ones((256, 64), np.float32)).as_text()
    module = parse(text)
    run_passes(
        module,
        [*NORMALIZE, SplitMicrobatches(8), PlanStages(stages=8), OutlineStages(), ShareReshards()],
    )
    pairs = tuple(Mesh((("x", 2),), (2 * s, 2 * s + 1)) for s in range(8))
    run_passes(module, [AssignMeshes(pairs)])
    return module


def test_the_stage_that_misses_the_limit_most_is_named_and_the_others_too(eight_stages):
    machine = cluster(flops_per_s=1e9, num_devices=16)
    held = (1, 1, 1, 8, 1, 1, 1, 1)
    with pytest.raises(LimitError) as refused:
        run_passes(
            copy_module(eight_stages), [PlanShardings(machine, memory_limit=9_000, stashes=held)]
        )
    assert refused.value.stage == 3
    assert refused.value.message.startswith("stage 3, on devices 6-7: ")
    assert "(too large, too: stages 0-2,4-7)" in refused.value.message


def test_the_problem_of_an_equal_stage_is_the_one_that_would_be_built(eight_stages):
    machine = cluster(flops_per_s=1e9, num_devices=16)
    with eight_stages.context, remembered():
        own = {stage: [] for stage in range(8)}
        for function in functions(eight_stages.operation):
            own[get_int(function, STAGE)].append(function)
        known = StageProblems(eight_stages.operation, 8, machine).known
        for stage, theirs in own.items():
            asked = theirs, meshes(eight_stages.operation)[f"stage{stage}"], 8, 8 - stage, 1 << 30
            # A module of its own each time: problems are shared by schedules, too.
            found = StageProblems(eight_stages.operation, 8, machine).build(stage, *asked)
            with remembered():
                built = StageProblems(eight_stages.operation, 8, machine).build(stage, *asked)
            for field in ("costs", "edge_costs", "usages"):
                pairs = zip(
                    getattr(found.problem, field), getattr(built.problem, field), strict=True
                )
                assert all(np.array_equal(a, b) for a, b in pairs)
            assert found.problem.edges == built.problem.edges
            assert found.problem.intervals == built.problem.intervals
            assert replace(found, problem=None) == replace(built, problem=None)
    assert len(known) == 3
    assert not StageProblems(eight_stages.operation, 8, machine).known, "problems outlive planning"


def test_equal_stages_under_a_limit_are_solved_twice_at_most(monkeypatch, eight_stages):
    machine = cluster(flops_per_s=1e9, num_devices=16)

    def planned(limit):
        solved = []
        own = PlanShardings._solved
        monkeypatch.setattr(
            PlanShardings, "_solved", lambda *args: solved.append(args[1]) or own(*args)
        )
        copy = copy_module(eight_stages)
        run_passes(
            copy, [PlanShardings(machine, memory_limit=limit, stashes=tuple(range(8, 0, -1)))]
        )
        monkeypatch.setattr(PlanShardings, "_solved", own)
        with copy.context:
            reports = data_of(copy.operation.attributes[STAGE_REPORTS], list[StageReport])
        return reports, len(solved)

    free, few = planned(1 << 30)
    assert few == 3  # the first, the last, and one between
    peaks = [report.peak_bytes for report in free]
    for limit in range(min(peaks), max(peaks), max(1, (max(peaks) - min(peaks)) // 4)):
        try:
            reports, count = planned(limit)
        except LimitError:
            continue
        assert count <= 5
        assert all(r.peak_bytes <= limit and r.lower_bound <= r.objective for r in reports)
        assert all(r.lower_bound > 0.9 * r.objective for r in reports)


def test_stages_of_other_numbers_of_strategies_are_not_equal():
    def stage(*strategies):
        problem = Problem([np.zeros(count) for count in strategies], intervals=[(0, 1)] * 2)
        return SimpleNamespace(problem=problem, edge_reshards=())

    assert _digest(stage(1, 2)) != _digest(stage(2, 1))
    assert _digest(stage(1, 2)) == _digest(stage(1, 2))

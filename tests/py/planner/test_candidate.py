"""What a plan says of the ops that every device runs whole, and of layers that are alike."""

import dataclasses

import pytest

from shardc.cluster import Cluster, Device
from shardc.cost.submeshes import mesh_of
from shardc.ir.context import parse
from shardc.plan.decisions import Plan
from shardc.plan.function_kind import FunctionKind
from shardc.plan.predicted import Asked, Replicated, StageReport
from shardc.plan.priced_work import Work
from shardc.plan.shape import PipelineShape
from shardc.planner.candidate import (
    Candidate,
    folding_notes,
    rate_notes,
    replication_notes,
    rewriting_notes,
)
from shardc.planner.proposal import Proposal
from shardc.planner.schedules.step_time import StepTime
from shardc.schedule.simulate import Simulation, TimedAction
from shardc.schedule.tasks import Schedule, Task, TaskGraph

NOTHING = TaskGraph({}, {})


def report(*replicated: Replicated) -> StageReport:
    """A stage of one second and a thousand FLOPs."""
    return StageReport({FunctionKind.FORWARD: 1.0}, 0, 0, 1000, 1.0, 1.0, replicated)


def candidate(*reports: StageReport) -> Candidate:
    """A shape with these stages."""
    meshes = tuple(mesh_of((1,), [device]) for device in range(len(reports)))
    proposal = Proposal(PipelineShape(1, tuple(range(1, len(reports))), meshes, "1f1b"), 0.0, ())
    simulation = Simulation(5.0, 0.0, 5.0, 0.0, (), ())
    return Candidate(
        proposal, parse(""), reports, StepTime(Schedule(()), simulation, NOTHING, lambda: 5.0)
    )


def test_notes_tell_why_and_what_it_costs_over_all_stages() -> None:
    notes = replication_notes(
        [
            report(
                Replicated("stablehlo.sort", "strategy", 1, 0.1, 10),
                Replicated("stablehlo.custom_call @strange", "rule", 1, 0.0, 0),
            ),
            report(Replicated("stablehlo.sort", "strategy", 2, 0.3, 10)),
        ]
    )
    assert list(map(str, notes)) == [
        "replicated for want of a strategy: stablehlo.sort (3 times),"
        " 400 ms per step (20.0%), 1.0% of the FLOPs",
        "replicated for want of a sharding rule: stablehlo.custom_call @strange,"
        " 0 ms per step (0.0%), 0.0% of the FLOPs",
    ]


def test_what_costs_next_to_nothing_is_not_named() -> None:
    assert replication_notes([report(Replicated("stablehlo.add", "choice", 9, 1e-4, 1))]) == []


def test_products_whose_rate_the_cluster_does_not_list_are_named() -> None:
    def stage(*dtypes: str) -> StageReport:
        works = [(Work(dtype, 8.0, 8.0, 1.0, (1, 2, 2, 2)), 1.0) for dtype in dtypes]
        asked = Asked((*works, (Work("int8", 8.0, 8.0), 1.0)))  # not a product
        return StageReport({}, 0, 0, 0, 1.0, 1.0, asked={FunctionKind.FORWARD: (asked,)})

    listed = Cluster("c", Device("d", 1, {"default": 1e12, "float32": 1e12}, 1e11))
    notes = rate_notes([stage("float32", "float16"), stage("bfloat16")], listed)
    assert list(map(str, notes)) == [
        "flops_per_s of device 'd' does not list bfloat16, float16: products of such elements are"
        " priced at its default rate"
    ]
    assert rate_notes([stage("float32")], listed) == []
    one_rate = Cluster("c", Device("d", 1, {"default": 1e12}, 1e11))
    assert rate_notes([stage("bfloat16")], one_rate) == []


def test_layers_that_share_their_shardings_are_told_with_what_that_costs() -> None:
    tied = StageReport({}, 0, 0, 0, 1.02, 1.0, num_folded=70, folded_objective=1.02)
    parted = StageReport({}, 0, 0, 0, 1.0, 1.0, num_folded=70, folded_objective=1.02)
    assert list(map(str, folding_notes([tied, parted, report()]))) == [
        "equal layers share their shardings (70 ops and values copy others), which costs at"
        " most 2.00% (proven)"
    ]
    assert folding_notes([parted, report()]) == []


def test_a_second_look_at_a_shape_keeps_the_best_of_what_both_have_proven() -> None:
    one, other = (
        candidate(StageReport({}, 0, 0, 0, 2.0, low), StageReport({}, 0, 0, 0, 3.0, high))
        for low, high in ((1.0, 2.5), (1.5, 2.0))
    )
    both = one.with_bounds_of(other)
    assert [report.lower_bound for report in both.reports] == [1.5, 2.5]
    assert both.gap == 0.25 and both.proposal == one.proposal


def plan_of(reports: list[StageReport], step_s: float) -> Plan:
    """The plan of stages with these reports, whose schedule takes `step_s`."""
    devices = range(len(reports))
    meshes = tuple(mesh_of((1,), [device]) for device in devices)
    module = parse(
        b"func.func public @main(%x: tensor<f32>) -> tensor<f32> {return %x : tensor<f32>}"
    )
    found = dataclasses.replace(
        candidate(*reports),
        proposal=Proposal(
            PipelineShape(1, (0,) * (len(reports) - 1), meshes, "1f1b"), 0.0, ((),) * 2
        ),
        step=StepTime(
            Schedule(()), Simulation(step_s, 0.0, step_s, 0.0, (), ()), NOTHING, lambda: step_s
        ),
    )
    return found.plan(module, Cluster.load("cpu8"), [], 0.0)


def test_the_bound_of_a_step_is_that_of_its_slowest_stage() -> None:
    plan = plan_of([StageReport({}, 0, 0, 0, 2.0, 1.5), StageReport({}, 0, 0, 0, 3.0, 2.5)], 4.0)
    assert (plan.lower_bound, plan.objective) == (2.5, 3.0)


@pytest.mark.parametrize(("objective", "bound", "step_s"), [(2.0, 2.1, 4.0), (3.0, 1.0, 2.9)])
def test_a_bound_above_what_it_bounds_is_a_bug_of_ours(
    objective: float, bound: float, step_s: float
) -> None:
    with pytest.raises(AssertionError, match="not a lower bound"):
        plan_of(
            [StageReport({}, 0, 0, 0, 1.0, 1.0), StageReport({}, 0, 0, 0, objective, bound)], step_s
        )


@pytest.mark.parametrize(
    ("objective", "bound", "step_s", "least_s"),
    [(2.0, 2.1, 4.0, 0.0), (3.0, 1.0, 2.9, 0.0), (3.0, 1.0, 4.0, 4.1)],
    ids=["of a stage", "of a step", "of an order"],
)
def test_every_planned_shape_is_asked_for_its_bounds(
    objective: float, bound: float, step_s: float, least_s: float
) -> None:
    def with_bound(lower_bound: float) -> Candidate:
        simulation = Simulation(step_s, 0.0, step_s, 0.0, (), ())
        step = StepTime(Schedule(()), simulation, NOTHING, lambda: step_s, lower_bound_s=least_s)
        found = candidate(StageReport({}, 0, 0, 0, objective, lower_bound))
        return dataclasses.replace(found, step=step)

    with pytest.raises(AssertionError, match="not a lower bound"):
        with_bound(bound).check_bounds()


def test_what_one_plan_of_a_shape_has_proven_holds_for_another() -> None:
    """Two that cannot both be right: no choice costs less than 2.5 s, and one of 2 s."""
    one = candidate(StageReport({}, 0, 0, 0, 2.0, 1.0))
    other = candidate(StageReport({}, 0, 0, 0, 3.0, 2.5))
    with pytest.raises(AssertionError, match=r"2\.5 s is not a lower bound of 2 s"):
        one.with_bounds_of(other).check_bounds()


def test_the_bound_holds_where_reductions_of_gradients_are_hidden() -> None:
    """Half of all communication is hidden, so of 4 s, 1.8 of them communication, 3.1 are left."""
    simulation = Simulation(
        3.1,
        0.0,
        3.1,
        0.0,
        (),
        (TimedAction(Task(0, "F", 0), 0, 0.0, 1.1), TimedAction(Task(0, "B", 0), 0, 1.1, 3.1)),
    )
    found = dataclasses.replace(
        candidate(StageReport({}, 0, 0, 0, 4.0, 3.9)),
        proposal=Proposal(PipelineShape(1, (), (mesh_of((1,), [0]),), "1f1b"), 0.0, ((),)),
        step=StepTime(Schedule(()), simulation, NOTHING, lambda: 5.0),
        hidden=0.5,
    )
    assert found.objective == pytest.approx(3.1)
    assert found.lower_bound == pytest.approx(1.95)


def test_a_plan_says_which_stacks_are_read_along_two_dims() -> None:
    module = parse("module attributes {shardc.row_conflicts = 1 : i64} {}")
    (note,) = rewriting_notes(module)
    assert str(note).startswith("1 stack of layers that ops read along two dims")

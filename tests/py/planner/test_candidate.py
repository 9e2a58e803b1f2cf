"""What a plan says of the ops that every device runs whole, and of layers that are alike."""

from shardc.compiler import Shape
from shardc.ir.context import parse
from shardc.plan.predicted import Replicated, StageReport
from shardc.planner.candidate import Candidate, folding_notes, replication_notes
from shardc.planner.layer_costs import Crossing, Proposal
from shardc.schedule.simulate import Simulation


def report(*replicated: Replicated) -> StageReport:
    """A stage of one second and a thousand FLOPs."""
    return StageReport({"forward": 1.0}, 0, 0, 1000, 1.0, 1.0, replicated)


def candidate(*reports: StageReport) -> Candidate:
    """A shape with these stages."""
    proposal = Proposal(Shape(1, tuple(range(1, len(reports))), (), "1f1b"), 0.0, ())
    simulation = Simulation(5.0, 0.0, (), ())
    return Candidate(proposal, parse(""), reports, simulation, Crossing(0, 0.0, {}))


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
    assert notes == [
        "replicated for want of a strategy: stablehlo.sort (3 times),"
        " 400 ms per step (20.0%), 1.0% of the FLOPs",
        "replicated for want of a sharding rule: stablehlo.custom_call @strange,"
        " 0 ms per step (0.0%), 0.0% of the FLOPs",
    ]


def test_what_costs_next_to_nothing_is_not_named() -> None:
    assert replication_notes([report(Replicated("stablehlo.add", "choice", 9, 1e-4, 1))]) == []


def test_layers_that_share_their_shardings_are_told_with_what_that_costs() -> None:
    tied = StageReport({}, 0, 0, 0, 1.02, 1.0, num_folded=70, folded_objective=1.02)
    parted = StageReport({}, 0, 0, 0, 1.0, 1.0, num_folded=70, folded_objective=1.02)
    assert folding_notes([tied, parted, report()]) == [
        "equal layers share their shardings (70 ops and values are like others), which costs at"
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

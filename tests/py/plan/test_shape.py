"""The shape of a pipeline: what its stages keep, as rules, as prices and as a plan saves it."""

from shardc.plan.decisions import Plan, StagePlan, ValuePlan
from shardc.plan.layout import Mesh
from shardc.plan.predicted import Predicted
from shardc.plan.shape import PRICES, RULES, PipelineShape, Residency

GROUPS = Mesh((("x", 2),), (0, 1)), Mesh((("x", 2),), (2, 3))


def test_rules_are_ordered_by_what_they_keep() -> None:
    """`with_schedule` gives all chunks the rule of the stage that keeps least."""
    assert RULES == ("none", "selective", "user", "full")
    prices = [PRICES.get(rule, float("inf")) for rule in RULES]
    assert prices == sorted(prices)  # a higher price of keeping: less is kept


def test_stages_that_do_as_the_program_says_have_no_residency() -> None:
    shape = PipelineShape(4, (3,), GROUPS, "1f1b")
    assert shape.recomputing(["user", "user"], [2, 1]) == shape
    assert shape.residency_of(1) == Residency() and not shape.recomputes_fully


def test_a_stage_has_microbatches_in_flight_only_if_it_recomputes_all() -> None:
    shape = PipelineShape(4, (3,), GROUPS, "1f1b").recomputing(["full", "selective"], [2, 1])
    assert shape.residency == (Residency("full", 2), Residency("selective", 0))
    assert shape.recomputes_fully
    assert [each.keep_price for each in shape.residency] == [0.0, PRICES["selective"]]


def test_second_copies_keep_what_their_stage_keeps() -> None:
    shape = PipelineShape(4, (3,), GROUPS + GROUPS[::-1], "chimera", num_replicas=2)
    shape = shape.recomputing(["full", "user"], [2, 1])
    held = [shape.residency_of(stage).in_flight for stage, _ in shape.placements]
    assert held == [2, 0, 2, 0]
    assert list(map(str, shape.placements)) == ["0", "1", "0'", "1'"]


def test_a_plan_names_the_values_that_its_stages_keep() -> None:
    values = (
        ValuePlan("12.tanh1", "keep", "stablehlo.tanh", "", 8, 1.0),
        ValuePlan("14", "recompute", "stablehlo.exponential", "", 8, 1.0),
    )
    stages = StagePlan(GROUPS[0], (0,), values=values), StagePlan(GROUPS[1], (1,), cut=3)
    nothing = Predicted(0.0, 0, 0, 0.0, 0.0)
    plan = Plan(2, 4, "1f1b", stages, {}, nothing, 0.0, 0.0, 0.0)
    shape = PipelineShape.of(plan)
    assert shape.residency == (Residency(kept=("12.tanh1",)), Residency())
    assert (shape.cuts, shape.meshes) == ((3,), GROUPS)

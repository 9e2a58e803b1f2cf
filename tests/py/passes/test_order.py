"""The order of the passes."""

import random

from shardc.ir.pass_manager import Pass
from shardc.passes.outline_stages import OutlineStages
from shardc.passes.pipeline import DECIDING, PASSES, in_order
from shardc.passes.plan_residency import PlanResidency
from shardc.passes.plan_stages import PlanStages
from shardc.passes.split_backward import SplitBackward


def test_passes_that_carry_decisions_have_one_order() -> None:
    passes: list[Pass] = [PlanStages(2), PlanResidency((1, 1)), OutlineStages(), SplitBackward()]
    mixed = random.Random(0).sample(passes, len(passes))
    assert mixed != passes and in_order(mixed) == passes
    assert len(set(DECIDING)) == len(DECIDING)
    assert {each.name for each in DECIDING} <= set(PASSES)

"""TeraPipe's latency: what slices of unequal length take, in exact arithmetic."""

from fractions import Fraction as Fr

import pytest

from shardc.schedule.families import built_in
from shardc.schedule.family import Costs
from shardc.schedule.simulate import simulate
from shardc.schedule.times import Times, durations
from shardc.schedule.work import Work


@pytest.mark.slow
@pytest.mark.parametrize("p", [2, 4, 8])
@pytest.mark.parametrize("slices", [2, 3, 5])
@pytest.mark.parametrize("share", [Fr(1, 4), Fr(1, 2), 1])
def test_one_sequence_takes_all_slices_and_the_longest_once_per_other_stage(
    p: int, slices: int, share: Fr
) -> None:
    """T = t_1 + ... + t_k + (p - 1) max t (TeraPipe), forward alone and both ways."""
    family = built_in()["terapipe"]
    for backward, whole in ((False, 1), (True, 3)):
        base = Work(p, 1, backward=backward, prologue=False, update_rounds=0)
        planned = family.plan(base, Costs(attention_share=share), None, slices)
        of = durations(planned.work, Times(), planned.slice_shares)
        found = simulate(planned.schedule, planned.graph, of)
        each = planned.slice_shares
        assert len(each) == slices and sum(each) == 1 and len(set(each)) > 1
        assert found.makespan_s == whole * (1 + (p - 1) * max(each))

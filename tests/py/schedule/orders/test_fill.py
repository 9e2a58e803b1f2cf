"""Weights fill each order alike, whichever orders were filled before."""

import pytest

from shardc.schedule.families import built_in
from shardc.schedule.families.v_shaped import OVERTAKING
from shardc.schedule.family import Costs
from shardc.schedule.orders.fill import Filler, Filling, fill_weights
from shardc.schedule.placement import looped
from shardc.schedule.tasks import WEIGHT
from shardc.schedule.times import Times
from shardc.schedule.work import Work


@pytest.mark.parametrize("filling", [Filling(), Filling(level=True, patience=1), *OVERTAKING])
def test_an_order_does_not_change_how_the_next_is_filled(filling: Filling) -> None:
    work = Work(3, 7, split_backward=True, prologue=False, update_rounds=0)
    costs = Costs(Times(2, 3, 1), transfer_s=1)
    orders = [built_in()[name].order(work, costs) for name in ("1f1b", "eager-1f1b", "gpipe")]
    filler = Filler(work, looped(work), costs, limit=5)
    for order in [*orders, *orders]:
        found = filler.fill(order, filling)
        assert found == fill_weights(work, looped(work), order, costs, 5, filling)
        if found is not None:
            of_weights = [sum(task.kind == WEIGHT for task in lane) for lane in found]
            assert of_weights == [work.num_microbatches] * work.num_groups

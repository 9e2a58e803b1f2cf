"""The search for shapes equals a look at all of them, on layers whose prices are made up."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings

from shardc.cost.submeshes import mesh_views, submesh_sizes
from shardc.options import PlanOptions
from shardc.planner import shapes
from shardc.planner.pipelines.unequal import WORTH
from shardc.planner.prices.stage_prices import StagePrices
from shardc.planner.prices.views import Views
from shardc.planner.shapes import NEAR, ShapeSearch
from shardc.schedule.registry import AUTO
from tests.py.planner.layer_tables import LIMIT, Tables, tables


def searched(case: Tables) -> ShapeSearch:
    """A search to which no price is known and no view in doubt."""
    case.known.clear()
    views = {size: mesh_views(case.machine, 0, size) for size in submesh_sizes(case.machine)}
    costs: Any = case
    prices = StagePrices(costs, Views(views, frozenset(), case.machine), case.machine, LIMIT, True)
    nothing: Any = SimpleNamespace()
    counts = case.counts
    options = PlanOptions()
    return ShapeSearch(
        prices, nothing, case.machine, options, counts, [1, *counts], AUTO, lambda: 0.0
    )


def best_s(case: Tables) -> float:
    """Seconds of the best pipeline: one of equal stages, unless others are clearly faster."""
    equal_s = any_s = math.inf
    for seconds, sizes in case.all_pipelines(AUTO):
        any_s = min(any_s, seconds)
        if len(set(sizes)) == 1:
            equal_s = min(equal_s, seconds)
    return any_s if any_s < WORTH * equal_s else equal_s


@pytest.mark.slow
@settings(max_examples=50)
@given(tables())
def test_search_equals_exhaustive_search(case: Tables) -> None:
    """To half a percent, which is not worth another price; exactly if it is."""
    expected_s = best_s(case)
    found = searched(case).run()
    found_s = found[0].pipeline.step_time_s if found else math.inf
    assert found_s <= expected_s * NEAR
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "NEAR", 1.0 + 1e-7)
        found = searched(case).run()
    found_s = found[0].pipeline.step_time_s if found else math.inf
    assert found_s == pytest.approx(expected_s, rel=1e-5)

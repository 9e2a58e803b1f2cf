"""Lower bounds on the span of any order of a pipeline's tasks."""

from dataclasses import replace

import pytest

from shardc.solver.pipeline.order_bounds import Dependences, OrderProblem, span_of
from shardc.solver.pipeline.orders import shortest_order

# Two lanes; lane 0 makes, lane 1 takes three and answers a third, which lane 0 waits for.
THERE_AND_BACK = OrderProblem(
    lane_of=(0, 0, 0, 1, 1),
    duration=(2, 2, 1, 3, 3),
    needs=((0, 3, 1), (3, 2, 1), (1, 4, 1)),
    buffers=(),
    capacity=None,
    alike=((0, 1), (3, 4)),
)


def line(count: int, capacity: int | None, size: int = 1) -> OrderProblem:
    """One lane: F of one unit makes what B, three units behind it through another lane, frees."""
    there, away, back = (tuple(range(n, 3 * count, 3)) for n in range(3))
    return OrderProblem(
        lane_of=(0, 1, 0) * count,
        duration=(1, 3, 1) * count,
        needs=tuple((i, i + 1, 0) for i in range(3 * count) if i % 3 < 2),
        buffers=tuple((0, size, f, b) for f, b in zip(there, back, strict=True)),
        capacity=capacity,
        alike=(there, away, back),
    )


def test_a_lane_waits_for_what_it_has_sent_away() -> None:
    """0 starts; 2 cannot start before 2 + 1 + 3 + 1 units have passed."""
    assert Dependences(THERE_AND_BACK).least_span() == 8
    assert Dependences(replace(THERE_AND_BACK, from_zero=True)).least_span() == 9


def test_a_task_waits_until_there_is_room() -> None:
    """With room for one, each F waits for the B before it: five units each."""
    assert Dependences(line(4, 1)).least_span() == 4 * 5
    assert set(Dependences(line(3, 1)).for_room) >= {(2, 3), (5, 6)}
    assert Dependences(line(4, None)).for_room == []
    assert Dependences(line(4, 1, size=0)).for_room == []
    # With room for two, the second lane is never idle once it has begun.
    assert Dependences(line(4, 2)).least_span() == 1 + 4 * 3 + 1


@pytest.mark.parametrize("capacity", [1, 2, 3, None])
@pytest.mark.parametrize("from_zero", [False, True])
def test_no_bound_is_above_the_best_order(capacity: int | None, from_zero: bool) -> None:
    problem = replace(line(3, capacity), from_zero=from_zero)
    known = [5 * (i // 3) + (0, 1, 4)[i % 3] for i in range(9)]  # one after the other
    found = shortest_order(problem, known, effort_s=5, time_limit_s=60)
    assert found.lower_bound == found.span <= span_of(problem, known)
    assert Dependences(problem).least_span() <= found.span

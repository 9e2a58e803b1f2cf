"""The ways to run a layer, among which prices choose: what it holds and what it recomputes."""

from typing import NamedTuple

from shardc.plan.stages_spec import Recompute


class Point(NamedTuple):
    """One way to run a layer.

    Attributes:
        price: of everything the layer holds at price 0, relative to its time.
        recompute: what the backward pass computes again.
    """

    price: float
    recompute: Recompute = "user"


type Points = tuple[Point, ...]

PRICED = (0.0, 0.1, 1.0)
# Those with the same recomputation stand together, by rising price; all hold less and less.
FULL = (Point(0.0, "full"), Point(1.0, "full"))
POINTS: Points = (*(Point(price) for price in PRICED), *FULL)
# For programs that recompute forward values, which a stage may keep instead.
KEEPING: Points = (
    *(Point(price, "none") for price in PRICED),
    *(Point(price, "selective") for price in PRICED),
    *(Point(price) for price in PRICED),
    *FULL,
)


def free_point(points: Points, point: int) -> int:
    """The point at price 0 that the price of `point` is relative to."""
    return points.index(Point(0.0, points[point].recompute))


def derived_from(points: Points, point: int) -> int | None:
    """The point with less recomputation from which the price of `point` is derived until a shape
    depends on it; None if it is solved at once."""
    price, level = points[point]
    if level in ("full", points[0].recompute):
        return None
    return points.index(Point(price, points[0].recompute))

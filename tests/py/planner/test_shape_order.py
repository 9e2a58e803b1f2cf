"""Which pipelines are planned, in which order."""

from shardc.compiler import Shape
from shardc.cost.submeshes import mesh_of
from shardc.planner.layer_costs import Proposal
from shardc.planner.shape_order import ShapeOrder


def proposal(stages: int, microbatches: int, seconds: float) -> Proposal:
    meshes = tuple(mesh_of((2,), range(2 * n, 2 * n + 2)) for n in range(stages))
    shape = Shape(microbatches, tuple(range(1, stages)), meshes, "1f1b")
    return Proposal(shape, seconds, tuple((n,) for n in range(stages)))


def order_of(truth: dict[tuple[int, int], tuple[float, float]]) -> list[tuple[int, int]]:
    """(stages, microbatches) in the order in which they are planned.

    Args:
        truth: (stages, microbatches) -> what it is estimated to take, and what it takes.
    """
    order = ShapeOrder([proposal(*key, estimate) for key, (estimate, _) in truth.items()])
    found: list[tuple[int, int]] = []
    best = None
    while (chosen := order.next(best)) is not None:
        key = len(chosen.shape.meshes), chosen.shape.num_microbatches
        found.append(key)
        order.planned(chosen, truth[key][1])
        best = truth[key][1] if best is None else min(best, truth[key][1])
    return found


def test_latencies_of_a_planned_shape_mend_the_estimates_of_the_others() -> None:
    # A microbatch costs 0.1 s whatever its size: many small ones are slower than they look.
    truth = {(2, m): (1.0 + 1.0 / m, 1.0 + 1.0 / m + 0.1 * (m + 1)) for m in (2, 4, 8, 16)}
    assert order_of(truth)[:2] == [(2, 16), (2, 4)]
    assert min(truth, key=lambda key: truth[key][1]) in order_of(truth)


def test_what_cannot_win_is_not_planned() -> None:
    assert order_of({(2, 4): (1.0, 1.0), (2, 8): (1.05, 1.05), (4, 8): (1.2, 1.2)}) == [(2, 4)]
    # Another number of stages gets the benefit of the doubt.
    assert order_of({(2, 4): (1.0, 1.0), (4, 4): (1.08, 0.9)}) == [(2, 4), (4, 4)]


def test_larger_microbatches_do_not_fit_where_small_ones_do_not() -> None:
    order = ShapeOrder([proposal(2, m, 1.0 / m) for m in (2, 4, 8)] + [proposal(4, 4, 3.0)])
    first = order.next(None)
    assert first is not None and first.shape.num_microbatches == 8
    order.planned(first, None)
    second = order.next(None)
    assert second is not None and len(second.shape.meshes) == 4
    assert order.num_planned == 1 and order.next(None) is None


def test_shapes_without_an_estimate_are_all_planned_in_their_order() -> None:
    truth = {(2, m): (0.0, 1.0 / m) for m in (4, 2, 8)}
    assert order_of(truth) == [(2, 4), (2, 2), (2, 8)]

"""Which values one function keeps for another that can also make them anew.

A minimum cut between what is there anyway and what the second function needs.
Source: Picard, "Maximal closure of a graph and applications to combinatorial problems", Management
Science 22(11), 1976, for such choices as cuts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

EVER = 1 << 52  # more than all costs together; in the same unit


@dataclass(frozen=True)
class Maker:
    """An op whose results the second function may need.

    Attributes:
        sources: numbers of the values that it reads.
        results: numbers of the values that it makes.
        redo: cost of running it once more.
    """

    sources: tuple[int, ...]
    results: tuple[int, ...]
    redo: int


def kept_values(
    costs: Sequence[int], makers: Sequence[Maker], needed: Iterable[int]
) -> frozenset[int]:
    """The cheapest values to hand over, so that all of `needed` can be had.

    A value is handed over at its cost, or made by running its maker once more, for which all that
    the maker reads must be had too. Of equally cheap choices it is the one that redoes least.

    Args:
        costs: of each value what it costs to hand it over; at most `EVER` in sum.
        makers: of the values that can be made anew, each value in one of them at most.
        needed: numbers of values.
    """
    from ortools.graph.python import max_flow  # type: ignore[import-untyped]  # has no stubs

    flow = max_flow.SimpleMaxFlow()
    source, sink, had = 0, 1, 2  # then a node per value, and one per maker that runs once more
    again = had + len(costs)
    maker_of = {value: m for m, maker in enumerate(makers) for value in maker.results}
    starts = [again + maker_of[v] if v in maker_of else source for v in range(len(costs))]
    for value, cost in enumerate(costs):
        flow.add_arc_with_capacity(starts[value], had + value, cost)
    for m, maker in enumerate(makers):
        flow.add_arc_with_capacity(source, again + m, maker.redo)
        for value in maker.sources:
            flow.add_arc_with_capacity(had + value, again + m, EVER)
    for value in needed:
        flow.add_arc_with_capacity(had + value, sink, EVER)
    flow.solve(source, sink)
    assert flow.optimal_flow() < EVER, "every value can be handed over"
    wanted = set(flow.get_sink_side_min_cut())
    return frozenset(
        value
        for value in range(len(costs))
        if had + value in wanted and starts[value] not in wanted
    )

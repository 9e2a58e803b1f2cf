"""Which values one function keeps for another that could also recompute them.

A minimum cut between the values that exist anyway and those the second function needs.
Source: Picard, "Maximal closure of a graph and applications to combinatorial problems", Management
Science 22(11), 1976, for such choices as cuts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

EVER = 1 << 52  # more than all costs together, in their unit


@dataclass(frozen=True)
class Maker:
    """An op whose results the second function may need.

    Attributes:
        sources: numbers of the values that it reads.
        results: numbers of the values that it defines.
        redo: cost of running it again.
    """

    sources: tuple[int, ...]
    results: tuple[int, ...]
    redo: int


def kept_values(
    costs: Sequence[int], makers: Sequence[Maker], needed: Iterable[int]
) -> frozenset[int]:
    """The cheapest values to hand over, so that all of `needed` can be computed.

    A value is either handed over at its cost, or recomputed by running its maker again, which in
    turn needs everything the maker reads. Ties go to the choice that recomputes least.

    Args:
        costs: cost of handing over each value; at most `EVER` in sum.
        makers: of the values that can be recomputed; each value has at most one.
        needed: numbers of values.
    """
    from ortools.graph.python import max_flow  # type: ignore[import-untyped]  # has no stubs

    flow = max_flow.SimpleMaxFlow()
    source, sink, had = 0, 1, 2  # then a node per value, and one per maker that may run again
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

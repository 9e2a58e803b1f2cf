"""What is handed over from one function to another costs as little as any choice does."""

import itertools
import random

import pytest

from shardc.solver.pipeline.kept_values import Maker, kept_values


def cost_of(kept: frozenset[int], costs: list[int], makers: list[Maker], needed: list[int]) -> int:
    """Of `kept` and all that has to run once more; fails if something is not to be had."""
    maker_of = {value: m for m, maker in enumerate(makers) for value in maker.results}
    redone, seen, todo = set(), set(), list(needed)
    total = 0
    while todo:
        value = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        if value in kept:
            total += costs[value]
            continue
        m = maker_of[value]
        if m not in redone:
            redone.add(m)
            total += makers[m].redo
            todo += makers[m].sources
    return total


def least_cost(costs: list[int], makers: list[Maker], needed: list[int]) -> int:
    """Of all choices of the makers that run once more."""
    maker_of = {value: m for m, maker in enumerate(makers) for value in maker.results}
    found = []
    for redone in itertools.product((False, True), repeat=len(makers)):
        again = [maker for maker, runs in zip(makers, redone, strict=True) if runs]
        had = set(needed).union(*(maker.sources for maker in again))
        handed = [v for v in had if v not in maker_of or not redone[maker_of[v]]]
        found.append(sum(maker.redo for maker in again) + sum(costs[v] for v in handed))
    return min(found)


@pytest.mark.parametrize("seed", range(40))
def test_cost_equals_brute_force(seed: int) -> None:
    draw = random.Random(seed)
    costs = [draw.randint(0, 9) for _ in range(draw.randint(1, 3))]
    makers = []
    for _ in range(draw.randint(0, 6)):
        sources = draw.sample(range(len(costs)), draw.randint(0, min(3, len(costs))))
        first = len(costs)
        costs += [draw.randint(0, 9) for _ in range(draw.randint(1, 2))]
        makers.append(Maker(tuple(sources), tuple(range(first, len(costs))), draw.randint(0, 9)))
    needed = draw.sample(range(len(costs)), draw.randint(1, len(costs)))
    kept = kept_values(costs, makers, needed)
    assert cost_of(kept, costs, makers, needed) == least_cost(costs, makers, needed)


def test_of_equal_costs_nothing_runs_twice() -> None:
    assert kept_values([0, 5], [Maker((0,), (1,), 5)], [1]) == {1}

"""What nodes cost and hold together is what one node costs and holds."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.solver.problem.problem import Problem, evaluate, least_peak
from shardc.solver.problem.shared_choices import fold
from shardc.solver.solve import solve
from tests.py.solver.random_problems import brute_force, problems


@st.composite
def tiled(draw: st.DrawFn) -> tuple[Problem, np.ndarray]:
    """Copies of a small problem at other times, joined here and there; the leader of each node."""
    part = draw(problems(limited=True, most_nodes=3))
    copies = draw(st.integers(1, 3))
    n = part.num_nodes
    shifts = [draw(st.integers(0, 6)) for _ in range(copies)]
    edges = [(u + c * n, v + c * n) for c in range(copies) for u, v in part.edges]
    tables = list(part.edge_costs) * copies
    for c in range(copies - 1):
        u, v = draw(st.integers(0, n - 1)), draw(st.integers(0, n - 1))
        edges.append((c * n + u, c * n + n + v))
        seed = draw(st.integers(0, 9))
        shape = len(part.costs[u]), len(part.costs[v])
        tables.append(np.random.default_rng(seed).integers(0, 5, shape).astype(float))
    whole = Problem(
        list(part.costs) * copies,
        edges,
        tables,
        list(part.usages) * copies,
        [(lo + s, hi + s) for s in shifts for lo, hi in part.intervals],
        draw(st.integers(0, 60)),
    )
    return whole, np.arange(n * copies) % n


@pytest.mark.slow
@given(tiled(), st.randoms())
def test_a_folded_choice_is_scored_like_its_expansion(
    made: tuple[Problem, np.ndarray], random: "st.random.Random"
) -> None:
    problem, leaders = made
    folded = fold(problem, leaders)
    choice = [random.randrange(len(cost)) for cost in folded.problem.costs]
    one, other = evaluate(folded.problem, choice), evaluate(problem, folded.expand(choice))
    assert one.cost == pytest.approx(other.cost)
    assert (one.peak_usage, one.feasible) == (other.peak_usage, other.feasible)
    assert least_peak(folded.problem) == least_peak(problem)


@pytest.mark.slow
@given(tiled())
def test_optimum_is_the_best_choice_in_which_the_nodes_agree(
    made: tuple[Problem, np.ndarray],
) -> None:
    problem, leaders = made
    sizes = [len(problem.costs[v]) for v in np.unique(leaders)]
    scores = (
        evaluate(problem, np.array(choice)[leaders])
        for choice in itertools.product(*map(range, sizes))
    )
    best = min((score.cost for score in scores if score.feasible), default=None)
    folded = fold(problem, leaders)
    assert brute_force(folded.problem).cost == (None if best is None else pytest.approx(best))
    if best is not None:
        assert solve(folded.problem, effort_s=0.2).objective == pytest.approx(best, abs=1e-9)


def test_nodes_that_lead_themselves_stay_as_they_are() -> None:
    problem = Problem([np.arange(2.0), np.ones(3)], [(0, 1)], [np.ones((2, 3))])
    folded = fold(problem, np.arange(2))
    assert folded.expand([1, 2]).tolist() == [1, 2]
    assert evaluate(folded.problem, [1, 2]) == evaluate(problem, [1, 2])

"""Contraction keeps the optimum, and gives the whole choice back."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.errors import InfeasibleError
from shardc.solver.problem.contraction import contract, contract_further
from shardc.solver.problem.problem import Problem, evaluate
from tests.py.solver.random_problems import brute_force, problems


@pytest.mark.slow
@given(problems(limited=True))
def test_best_expanded_choice_is_the_best(problem: Problem) -> None:
    best = brute_force(problem).cost
    found = None
    try:
        reduced = contract(problem)
    except InfeasibleError:
        assert best is None
        return
    for choice in itertools.product(*(range(size) for size in reduced.sizes)):
        here = np.array(choice, np.int64)
        score = evaluate(problem, reduced.expand(here))
        assert score.cost == pytest.approx(reduced.cost(here), abs=1e-6)
        if reduced.memory is not None and np.isfinite(score.cost):
            fits = bool((reduced.memory.profile(here) <= reduced.memory.limit).all())
            assert fits == score.feasible
        if score.feasible and (found is None or score.cost < found):
            found = score.cost
    assert (found is None) == (best is None)
    assert found is None or found == pytest.approx(best, abs=1e-6)


@pytest.mark.slow
@given(problems(limited=True, forbidden=False), st.randoms(use_true_random=False))
def test_further_contraction_keeps_what_was_kept(problem: Problem, rng: object) -> None:
    reduced = contract(problem)
    kept = [np.array(sorted(rng.sample(range(k), rng.randint(1, k)))) for k in reduced.sizes]  # type: ignore[attr-defined]  # random.Random
    smaller = contract_further(reduced, kept)
    best = min(
        (
            score.cost
            for choice in itertools.product(*(k.tolist() for k in kept))
            if (score := evaluate(problem, reduced.expand(np.array(choice, np.int64)))).feasible
        ),
        default=None,
    )
    found = min(
        (
            score.cost
            for choice in itertools.product(*(range(k) for k in smaller.sizes))
            if (score := evaluate(problem, smaller.expand(np.array(choice, np.int64)))).feasible
        ),
        default=None,
    )
    assert (found is None) == (best is None)
    assert found is None or found == pytest.approx(best, abs=1e-6)


def test_agreement_edges_leave_one_node_of_a_chain() -> None:
    same = np.where(np.eye(4, dtype=bool), 0.0, np.inf)
    usages = [np.array([4, 3, 2, 1])] * 10
    costs = [np.array([1.0, 2.0, 3.0, 5.0])] * 10
    edges = [(i, i + 1) for i in range(9)]
    problem = Problem(costs, edges, [same] * 9, usages, [(0, 1)] * 10, 25)
    reduced = contract(problem)
    assert len(reduced.costs) == 1 and not reduced.edges
    assert set(reduced.expand(np.array([2])).tolist()) == {2}
    assert [fits.tolist() for fits in reduced.fitting_strategies()] == [[False, False, True, True]]


def test_a_chain_without_memory_disappears() -> None:
    rng = np.random.default_rng(0)
    problem = Problem(
        [rng.random(5) for _ in range(50)],
        [(i, i + 1) for i in range(49)],
        [rng.random((5, 5)) for _ in range(49)],
    )
    reduced = contract(problem)
    assert not reduced.costs
    score = evaluate(problem, reduced.expand(np.zeros(0, np.int64)))
    assert score.cost == pytest.approx(reduced.constant)


def test_shared_tables_are_never_written_to() -> None:
    table = np.array([[0.0, 1.0], [2.0, 0.0]])
    before = table.copy()
    ring = [(0, 1), (1, 2), (2, 0), (0, 1), (2, 2)]
    contract(Problem([np.array([1.0, 2.0])] * 3, ring, [table] * 5))
    assert (table == before).all()


def test_a_node_without_a_choice_is_an_error() -> None:
    forbidden = np.full((2, 2), np.inf)
    with pytest.raises(InfeasibleError, match="SHARDC-221"):
        contract(Problem([np.zeros(2)] * 2, [(0, 1)], [forbidden]))


def test_removed_strategies_keep_their_numbers_in_the_whole_choice() -> None:
    """Strategy 0 is dominated: what is left is strategies 1 and 2 of each node, not 0 and 1."""
    costs = [np.array([9.0, 1.0, 2.0])] * 3
    table = np.array([[5.0, 5.0, 5.0], [5.0, 4.0, 0.0], [5.0, 0.0, 4.0]])
    usages = [np.array([5, 5, 4])] * 3
    problem = Problem(
        costs, [(0, 1), (1, 2), (0, 2)], [table] * 3, usages, [(0, 9), (1, 8), (2, 7)], 14
    )
    reduced = contract(problem)
    for choice in itertools.product(*(range(size) for size in reduced.sizes)):
        full = reduced.expand(np.array(choice, np.int64))
        assert 0 not in full
        assert evaluate(problem, full).cost == reduced.cost(np.array(choice, np.int64))


def test_a_hub_looks_at_each_edge_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that a hub absorbs, each with an edge of its own, must not make it start again."""
    looks = 0
    isfinite = np.isfinite

    def counted(values: np.ndarray) -> np.ndarray:
        nonlocal looks
        looks += 1
        return isfinite(values)

    num_leaves = 300
    same = np.where(np.eye(3, dtype=bool), 0.0, np.inf)
    costs = [np.array([1.0, 2.0, 3.0])] * (num_leaves + 1)
    usages = [np.array([3, 2, 1])] * len(costs)
    spans = [(v, v + 2) for v in range(len(costs))]
    problem = Problem(
        costs, [(0, v) for v in range(1, len(costs))], [same] * num_leaves, usages, spans, 4
    )
    monkeypatch.setattr("shardc.solver.problem.contraction.np.isfinite", counted)
    reduced = contract(problem)
    assert len(reduced.costs) <= 1
    assert looks < 10 * num_leaves

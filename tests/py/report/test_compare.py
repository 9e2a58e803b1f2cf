"""Pipelines side by side: ranked, and compared term by term."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.plan.alternatives import (
    Alternative,
    Alternatives,
    Terms,
    mesh_words,
    rank,
    split_step,
)
from shardc.plan.decisions import StagePlan
from shardc.plan.layout import Mesh
from shardc.plan.notes import Note, NoteCode
from shardc.report.compare import (
    comparison,
    comparison_json,
    layer_words,
    ranking_json,
    ranking_table,
)
from shardc.report.summary import printed
from tests.py.report.test_summary import PLAN

FAST = Alternative(
    "search", 8, "1f1b", ((4, 2), (4, 2)), (6, 6), 0.9, Terms(1.0, 0.5, 0.2, 0.3, 1 << 30)
)
SLOW = Alternative("mine", 4, "gpipe", ((8,), (8,)), (6, 6), exact=Terms(1.5, 0.5, 0.6, 0.4, 1))
GUESSED = Alternative("search", 2, "1f1b", ((8,),), (12,), 1.25)
LARGE = Alternative("huge", 1, "1f1b", ((1,),), missing_bytes=1 << 31)
ALL = (SLOW, LARGE, GUESSED, FAST)


@given(st.permutations(ALL))
def test_the_fastest_comes_first_and_what_does_not_fit_last(found: list[Alternative]) -> None:
    assert rank(found) == (FAST, SLOW, GUESSED, LARGE)


def test_no_estimate_is_ahead_of_what_was_planned() -> None:
    hoped = msgspec.structs.replace(GUESSED, estimate_s=0.1)
    assert rank((hoped, SLOW)) == (SLOW, hoped)


def test_what_is_by_hand_is_shown_wherever_it_ranks() -> None:
    mine, huge = (msgspec.structs.replace(each, by_hand=True) for each in (SLOW, LARGE))
    found = Alternatives(rank((mine, huge, GUESSED, FAST)))
    assert found.shown(1) == [(1, FAST), (2, mine), (4, huge)]
    text = printed([ranking_table(found, 1)], width=150)
    assert "mine" in text and "2 GiB too much for a device" in text and "1.25 s" not in text
    assert [row["rank"] for row in ranking_json(found, 1)["alternatives"]] == [1, 2, 4]


def test_table_says_what_loses_by_what() -> None:
    found = Alternatives(rank(ALL))
    text = printed([ranking_table(found, 4)], width=150)
    lines = [line for line in text.splitlines() if "search" in line or "mine" in line]
    assert "1 s" in lines[0] and "2 x (4x2)" in lines[0]
    assert "+50.0%, +400 ms communication" in lines[1]
    assert "1.25 s (estimate)" in lines[2] and "+25.0%" in lines[2]
    assert "does not fit" in text and "2 GiB too much for a device" in text
    assert "huge" not in printed([ranking_table(found, 3)], width=150)


def test_json_has_the_same_rows() -> None:
    rows = ranking_json(Alternatives(rank(ALL), all_priced=False), 4)
    assert [row["step_time_s"] for row in rows["alternatives"]] == [1.0, 1.5, 1.25, None]
    assert rows["all_priced"] is False
    assert len(ranking_json(Alternatives(rank(ALL)), 3)["alternatives"]) == 3


@pytest.mark.parametrize("pair", [(FAST, SLOW), (SLOW, FAST)], ids=["in order", "turned"])
def test_comparison_names_the_faster_one_and_the_reason(
    pair: tuple[Alternative, Alternative],
) -> None:
    lines = list(comparison(*pair))
    assert lines[0] == "search is faster: 1 s per step, mine takes 1.5 s (1.5 x)"
    assert "  communication inside it: 200 ms and 600 ms (+400 ms)" in lines
    assert lines[-1] == "mine loses most in communication inside it"
    data = comparison_json(*pair)
    assert (data["faster"], data["mostly"]) == ("search", "communication_s")
    more = data["slower_takes_more"]
    parts = more["compute_s"] + more["communication_s"] + more["waiting_s"]
    assert math.isclose(more["step_time_s"], parts)


def test_a_plan_is_as_fast_as_itself() -> None:
    alone = msgspec.structs.replace(FAST, num_microbatches=1)
    lines = list(comparison(alone, alone))
    assert lines[0] == "both take 1 s per step"
    assert lines[1] == lines[2] and "1 microbatch, schedule" in lines[1]
    assert not any("loses" in line for line in lines)
    data = comparison_json(alone, alone)
    assert data["faster"] is data["mostly"] is None


@given(
    st.lists(st.tuples(st.floats(0.1, 9), st.floats(0, 1), st.integers(0, 2)), min_size=1),
    st.floats(0, 5),
)
def test_the_terms_of_a_step_add_up(
    stages: list[tuple[float, float, int]], waiting_s: float
) -> None:
    """Stages on the same devices take turns; the busiest devices say where the time goes."""
    meshes = [Mesh((("x", 1),), (group,)) for *_, group in stages]
    plans = [
        StagePlan(mesh, (), objective=busy, communication_s=busy * share, peak_bytes=n)
        for n, (mesh, (busy, share, _)) in enumerate(zip(meshes, stages, strict=True))
    ]
    busy_s = max(sum(b for b, _, g in stages if g == group) for group in range(3))
    terms = split_step(busy_s + waiting_s, meshes, plans)
    assert math.isclose(terms.compute_s + terms.communication_s, busy_s)
    assert math.isclose(terms.waiting_s, waiting_s, abs_tol=1e-9)
    assert terms.peak_bytes == len(stages) - 1


def test_a_plan_is_judged_by_what_it_predicts() -> None:
    judged = PLAN.judged("mine")
    assert judged.meshes == ((2, 2), ())
    assert judged.layers == (3, 2)
    assert judged.step_time_s == PLAN.predicted.step_time_s
    assert not judged.by_hand
    noted = msgspec.structs.replace(PLAN, notes=(Note(NoteCode.BY_HAND, {"name": "mine"}),))
    assert noted.judged("mine").by_hand


def test_shapes_read_well() -> None:
    assert mesh_words(((4, 2), (4, 2), (8,))) == "2 x (4x2) + 1 x (8)"
    assert mesh_words(((),)) == "1 x (1)"
    assert [layer_words(n) for n in ((3, 3, 3), (1, 2), (0,), ())] == ["3 x 3", "1 2", "all", "all"]

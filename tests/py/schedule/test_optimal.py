"""`optimal` against brute force, the families, and the zero-bubble paper's own search."""

import itertools
from collections.abc import Sequence
from fractions import Fraction as Fr

import pytest
from click.testing import CliRunner

from shardc.cli import main
from shardc.errors import InfeasibleError
from shardc.schedule.check import check
from shardc.schedule.families import built_in
from shardc.schedule.family import Costs
from shardc.schedule.registry import best_orders
from shardc.schedule.simulate import lengths
from shardc.schedule.times import Times, Transfers, durations
from shardc.schedule.work import Work
from tests.py.schedule.simulated import run

# Qi et al., "Zero Bubble Pipeline Parallelism" (arXiv 2401.10241), tables 5 and 9: stages,
# microbatches, time of F, B, W and a transfer; rates of 1F1B, ZB-H1, ZB-H2, ZB-1p, ZB-2p.
ZERO_BUBBLE_PAPER = """
 8  24 18.522 18.086 9.337 0.601 .2431 .1585 .1083 .1585 .0433
 8  32 18.513 18.086 9.331 0.626 .1985 .1242 .0837 .1242 .0039
 8  64 18.546 18.097 9.321 0.762 .1240 .0674 .0444 .0674 .0026
 8  24 29.718 29.444 19.927 0.527 .2347 .1323 .0698 .1323 .0029
 8  32 29.802 29.428 19.530 0.577 .1898 .1045 .0559 .1045 .0022
 8  64 29.935 29.621 19.388 0.535 .1091 .0554 .0294 .0554 .0010
16  48 11.347 11.248 8.132 0.377 .2552 .1397 .0672 .1397 .0066
16  64 11.307 11.254 8.101 0.379 .2082 .1088 .0516 .1088 .0054
16 128 11.325 11.308 8.109 0.378 .1251 .0576 .0266 .0576 .0028
32  96 10.419 10.207 7.715 0.408 .2646 .1421 .0641 .1421 .0038
32 128 10.408 10.204 7.703 0.408 .2168 .1106 .0490 .1106 .0029
""".strip().splitlines()
LARGE = ZERO_BUBBLE_PAPER[6:]  # 16 and 32 stages
MODELS = {0: (2304, 24), 1: (2304, 24), 2: (2304, 24), 3: (4096, 32), 4: (4096, 32), 5: (4096, 32)}


Number = Fr | int | float


def shortest_span(
    p: int, m: int, times: Times | Sequence[Times], transfer: Number | Sequence[Number], limit: int
) -> Number:
    """The least span of any order of F, B and W, by trying all of them.

    Equal microbatches may as well run in their order, so a lane is an interleaving of three rows.
    Each lane tells the next when its F end, and each lane the one before when its B end.

    Args:
        times: of all stages, or of each.
        transfer: of all values, or of what each stage sends to the next and gets back from it.
    """
    each = [times] * p if isinstance(times, Times) else times
    late = transfer if isinstance(transfer, Sequence) else [transfer] * (p - 1)
    kinds = sorted("FBW" * m)
    lanes = []
    for order in distinct(kinds):
        count = dict.fromkeys("FBW", 0)
        for kind in order:
            count[kind] += 1
            if not count["F"] >= count["B"] >= count["W"] or count["F"] - count["W"] > limit:
                break
        else:
            lanes.append(order)
    of = [{"F": t.forward_s, "B": t.backward_s, "W": t.weight_s} for t in each]
    best: Number | None = None
    for chosen in itertools.product(lanes, repeat=p):
        ends: dict[tuple[int, str, int], Number] = {}
        at, free, first = [0] * p, [0] * p, [None] * p
        moved = True
        while moved:
            moved = False
            for stage, lane in enumerate(chosen):
                while at[stage] < 3 * m:
                    kind = lane[at[stage]]
                    k = lane[: at[stage]].count(kind)
                    needs = {
                        "F": [(stage - 1, "F", k, late[stage - 1])] if stage else [],
                        "B": [(stage, "F", k, 0)]
                        + ([(stage + 1, "B", k, late[stage])] if stage + 1 < p else []),
                        "W": [(stage, "B", k, 0)],
                    }[kind]
                    if any(need[:3] not in ends for need in needs):
                        break
                    start = max([free[stage], *(ends[need[:3]] + need[3] for need in needs)])
                    first[stage] = start if first[stage] is None else first[stage]
                    free[stage] = ends[stage, kind, k] = start + of[stage][kind]
                    at[stage] += 1
                    moved = True
        if len(ends) == 3 * m * p:
            span = max(end - start for end, start in zip(free, first, strict=True))
            best = span if best is None else min(best, span)
    assert best is not None
    return best


def distinct(kinds: list[str]) -> list[tuple[str, ...]]:
    """Every order of F, B, W in which no B comes before its F and no W before its B."""
    found: list[tuple[str, ...]] = [()]
    for _ in kinds:
        found = [
            (*order, kind)
            for order in found
            for kind in "FBW"
            if order.count(kind) < kinds.count(kind)
            and (kind == "F" or order.count("FBW"["FBW".index(kind) - 1]) > order.count(kind))
        ]
    return found


SMALL = [(p, m, limit) for p in (1, 2, 3) for m in (1, 2, 3) for limit in range(1, m + 1)]


@pytest.mark.slow
@pytest.mark.parametrize("times", [Times(), Times(2, 3, 1), Times(3, 1, 2)])
@pytest.mark.parametrize(("p", "m", "limit"), SMALL[:-1])
def test_optimal_equals_brute_force(p: int, m: int, limit: int, times: Times) -> None:
    expected = shortest_span(p, m, times, Fr(1, 2), limit)
    found = run("optimal", p, m, chunks=1, times=times, transfer=Fr(1, 2), limit=limit)
    assert found.result.span_s == expected == found.planned.lower_bound
    without = run(
        "optimal", p, m, chunks=1, times=times, transfer=Fr(1, 2), limit=limit, time_limit_s=0
    )
    bound = without.planned.lower_bound
    assert bound is not None and found.busy <= bound <= expected


UNEQUAL = [Times(2, 3, 1), Times(1, 1, 2), Times(3, 2, 2)]


@pytest.mark.parametrize("scale", [1, Fr(1, 3), 1.25e-4])
@pytest.mark.parametrize(("p", "m", "limit"), [(2, 3, 2), (2, 3, 3), (3, 2, 2)])
def test_optimal_knows_unequal_stages_and_transfers(
    p: int, m: int, limit: int, scale: Number
) -> None:
    """Exactly where times are exact; to the resolution of the search where they are floats."""
    times = tuple(
        Times(t.forward_s * scale, t.backward_s * scale, t.weight_s * scale) for t in UNEQUAL[:p]
    )
    late = [2 * scale, 1 * scale][: p - 1]
    edges = [((s, 0, True, 0, s + 1), late[s]) for s in range(p - 1)]
    edges += [((s + 1, 0, False, 0, s), late[s]) for s in range(p - 1)]
    costs = Costs(times, Transfers(tuple(edges)), limit)
    base = Work(p, m, prologue=False, update_rounds=0)
    found = built_in()["optimal"].plan(base, costs, 1)
    check(found.schedule, found.graph, [limit] * p)
    span, _ = lengths(found.schedule, found.graph, costs.durations(found.work), costs.send_s)
    expected = shortest_span(p, m, times, late, limit)
    assert found.lower_bound is not None
    if isinstance(scale, float):
        assert float(span) == pytest.approx(float(expected), rel=1e-12)
        assert float(span) * (1 - 1e-3) < found.lower_bound <= span
    else:
        assert span == expected == found.lower_bound


@pytest.mark.slow
@pytest.mark.parametrize(
    "times",
    [Times(2, 3, 1), *(pytest.param(t, marks=pytest.mark.slow) for t in (Times(), Times(3, 1, 2)))],
)
def test_three_microbatches_on_three_stages_equal_brute_force(times: Times) -> None:
    """The largest of the small sizes, apart because trying all orders takes seconds."""
    found = run("optimal", 3, 3, chunks=1, times=times, transfer=Fr(1, 2), limit=3)
    assert (
        found.result.span_s == found.planned.lower_bound == shortest_span(3, 3, times, Fr(1, 2), 3)
    )


@pytest.mark.parametrize(
    ("p", "m", "limit", "transfer"),
    [
        (2, 4, None, 0),
        (2, 4, 2, Fr(1, 4)),
        pytest.param(4, 8, None, Fr(1, 4), marks=pytest.mark.slow),
        (4, 8, 4, 0),
        pytest.param(4, 8, 3, Fr(1, 4), marks=pytest.mark.slow),
        pytest.param(8, 24, None, 0, marks=pytest.mark.slow),
        pytest.param(8, 24, 6, Fr(1, 4), marks=pytest.mark.slow),
    ],
)
def test_optimal_is_never_above_a_family_with_as_much_memory(
    p: int, m: int, limit: int | None, transfer: Fr
) -> None:
    """Whatever the family's placement: chunks, copies and slices."""
    times = Times(3, 4, 2)
    best = run("optimal", p, m, times=times, transfer=transfer, limit=limit, time_limit_s=0)
    assert best.planned.lower_bound is not None
    assert best.busy <= best.planned.lower_bound <= best.result.span_s
    compared = set()
    for name, family in built_in().items():
        if family.any_placement or family.moves:
            continue
        if not family.refuses(family.work(Work(p, m))):
            other = run(name, p, m, times=times, transfer=transfer)
            if limit is None or max(other.peaks) <= limit:
                assert best.result.span_s <= other.result.span_s, name
                compared.add(name)
    assert {"1f1b", "chimera", "seq1f1b", "zb-v"} <= compared or limit is not None


@pytest.mark.slow
def test_a_number_of_chunks_asks_for_one_copy_of_whole_sequences() -> None:
    assert run("optimal", 4, 8, time_limit_s=0).planned.work.replicas == 2
    for chunks in (1, 2):
        work = run("optimal", 4, 8, chunks=chunks, time_limit_s=0).planned.work
        assert (work.chunks, work.replicas, work.slices) == (chunks, 1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("times", [Times(), Times(3, 4, 2), Times(1, 2, 3)])
def test_two_chunks_without_a_copy_lie_as_a_v(times: Times) -> None:
    """A plan made by hand knows the placement before there is an order."""
    family = built_in()["optimal"]
    work = family.work(Work(4, 8), 2)
    for transfer in (0, Fr(1, 4)):
        schedule = family.generate(work, Costs(times, transfer, time_limit_s=0))
        check(schedule, family.graph(work, schedule))


@pytest.mark.slow
def test_the_best_order_on_a_placement_holds_no_more_than_the_family() -> None:
    """Than its order for tasks of equal length: where W fills gaps, memory depends on the times."""
    times, base = Times(3, 4, 2), Work(4, 8, prologue=False, update_rounds=0)
    for name, family in best_orders().items():
        work = built_in()[name].work(base)
        if work.num_stages * work.num_microbatches > 64:
            continue
        found = family.plan(base, Costs(times, time_limit_s=0))
        check(found.schedule, found.graph, [max(run(name, 4, 8).peaks)] * 4)
        span, _ = lengths(found.schedule, found.graph, durations(found.work, times))
        assert span <= run(name, 4, 8, times=times).result.span_s, name


@pytest.mark.parametrize(
    "row",
    [*ZERO_BUBBLE_PAPER[:6], *(pytest.param(r, marks=pytest.mark.slow) for r in LARGE)],
)
def test_the_zero_bubble_papers_rates_to_four_digits(row: str) -> None:
    p, m, f, b, w, transfer, *rates = row.split()
    for name, rate in zip(("1f1b", "zb-h1", "zb-h2"), rates, strict=False):
        times = Times(Fr(f), Fr(b), Fr(w))
        found = run(name, int(p), int(m), times=times, transfer=Fr(transfer))
        assert round(float(found.result.span_bubble_ratio), 4) == float(rate)


# The V schedules of the same authors' public code, of the same profiles: a rate per row, of p = 8
# and of p = 16 with m = 48 and 64.
ZERO_BUBBLE_V = (".0703", ".0543", ".0298", ".0403", ".0326", ".0166", ".0498", ".0381")
V_HALF = (".1702", ".1339", ".0737", ".1447", ".1145", ".0607", ".1682", ".1318")


@pytest.mark.slow
@pytest.mark.parametrize("number", range(8))
def test_zb_v_is_at_or_below_the_public_one(number: int) -> None:
    p, m, f, b, w, transfer, *_ = ZERO_BUBBLE_PAPER[number].split()
    times = Times(Fr(f), Fr(b), Fr(w))
    found = run("zb-v", int(p), int(m), times=times, transfer=Fr(transfer))
    assert round(float(found.result.span_bubble_ratio), 4) <= float(ZERO_BUBBLE_V[number])
    assert max(found.peaks) <= int(p)


LONG = [pytest.param(number, marks=pytest.mark.slow) for number in (2, 5, 6, 7)]


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1, 3, 4, *LONG])
def test_v_half_is_below_the_public_one(number: int) -> None:
    p, m, f, b, w, transfer, *_ = ZERO_BUBBLE_PAPER[number].split()
    found = run("v-half", int(p), int(m), times=Times(Fr(f), Fr(b), Fr(w)), transfer=Fr(transfer))
    assert round(float(found.result.span_bubble_ratio), 4) < float(V_HALF[number])
    assert max(found.peaks) <= (int(p) + 2) // 2


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 3])
def test_optimal_is_at_or_below_the_papers_own_search(number: int) -> None:
    """Two rows here, every row by benchmarks/zero_bubble.py."""
    p, m, f, b, w, transfer, *rates = ZERO_BUBBLE_PAPER[number].split()
    h, a = MODELS[number]
    share = Fr(32 * h, 34 * h + 5 * a * 1024)  # what W needs of an F's activations, s = 1024
    for limit, rate in ((int(p), rates[3]), (2 * int(p), rates[4])):
        found = run(
            "optimal",
            int(p),
            int(m),
            chunks=1,
            times=Times(Fr(f), Fr(b), Fr(w)),
            transfer=Fr(transfer),
            limit=limit,
            weight_share=share,
            time_limit_s=0,
        )
        assert round(float(found.result.span_bubble_ratio), 4) <= float(rate)


def test_the_same_effort_finds_the_same_order() -> None:
    """The search ends by counted work, not by the clock, and its threads take turns."""
    costs = Costs(Times(10, 17, 5), 3, 3, effort_s=0.2)
    one, other = (built_in()["optimal"].plan(Work(4, 6), costs, 1) for _ in range(2))
    assert one == other
    assert one.lower_bound is not None and one.lower_bound > 192  # what is known without a search


def test_no_order_holds_less_than_one_microbatch() -> None:
    with pytest.raises(InfeasibleError) as caught:
        run("optimal", 2, 2, limit=Fr(1, 4))
    assert caught.value.code == "SHARDC-220"


@pytest.mark.slow
def test_the_command_prints_the_bound() -> None:
    arguments = ["simulate", "--schedule", "optimal", "--stages", "2", "--microbatches", "4"]
    result = CliRunner().invoke(main, [*arguments, "--time-limit", "2"])
    assert result.exit_code == 0
    assert "lower bound       12 (of any span)" in result.stdout
    assert "stages per device, 2 copies of each" in result.stdout

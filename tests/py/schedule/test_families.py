"""Every family against the closed forms and worked values of its paper, in exact arithmetic."""

from fractions import Fraction as Fr

import pytest

from shardc.errors import ScheduleError
from shardc.schedule.check import check
from shardc.schedule.families import built_in
from shardc.schedule.family import Costs, most_held
from shardc.schedule.orders.improve import improved_order
from shardc.schedule.registry import schedule_named
from shardc.schedule.tasks import Amount, Task
from shardc.schedule.times import Times, durations
from shardc.schedule.work import Work
from tests.py.schedule.simulated import half, run

SIZES = [(1, 1), (1, 5), (2, 1), (4, 2), (4, 8), (8, 16), (3, 7)]
EQUAL = Times(1, half(1), half(1))  # a backward that takes as long as the forward
UNEQUAL = Times(2, 3, half(3))

# name, options, p, m, bubble, peaks (one number: of every device)
WORKED = [
    ("gpipe", {}, 4, 8, 9, [8]),
    ("gpipe", {}, 8, 16, 21, [16]),
    ("1f1b", {}, 4, 8, 9, [4, 3, 2, 1]),
    ("1f1b", {}, 8, 16, 21, [8, 7, 6, 5, 4, 3, 2, 1]),
    ("1f1b", {"transfer": half(1)}, 4, 8, 17, [4, 3, 2, 1]),
    ("1f1b", {"transfer": half(1)}, 8, 16, 41, [8, 7, 6, 5, 4, 3, 2, 1]),
    ("eager-1f1b", {}, 4, 8, 9, [7, 5, 3, 1]),
    ("eager-1f1b", {"transfer": half(1)}, 4, 8, 12, [7, 5, 3, 1]),
    ("eager-1f1b", {"transfer": half(1)}, 8, 16, 28, [15, 13, 11, 9, 7, 5, 3, 1]),
    ("interleaved-1f1b", {"chunks": 2}, 4, 8, half(9), [half(n) for n in (11, 9, 7, 5)]),
    ("interleaved-1f1b", {"chunks": 4}, 4, 8, Fr(9, 4), [Fr(n, 4) for n in (19, 17, 15, 13)]),
    ("interleaved-1f1b", {"chunks": 2}, 8, 16, half(21), [half(n) for n in range(23, 8, -2)]),
    ("breadth-first", {"chunks": 2}, 4, 8, half(9), [8]),
    ("breadth-first", {"chunks": 2}, 8, 16, half(21), [16]),
    ("breadth-first", {"chunks": 4}, 4, 8, Fr(9, 4), [8]),
    ("zeropp", {"chunks": 2}, 4, 8, 3, [8]),
    ("terapipe", {"slices": 2}, 4, 8, half(9), [8]),
    ("terapipe", {"slices": 4}, 4, 8, Fr(9, 4), [8]),
    ("seq1f1b", {"slices": 2}, 4, 8, half(9), [half(5), 2, half(3), 1]),
    ("seq1f1b", {"slices": 4}, 4, 8, Fr(9, 4), [Fr(n, 4) for n in (7, 6, 5, 4)]),
    ("seq1f1b", {"slices": 4}, 8, 16, Fr(21, 4), [Fr(n, 4) for n in range(11, 3, -1)]),
    ("zb-h1", {}, 4, 8, 3, [4]),
    ("zb-h1", {}, 8, 16, 7, [8]),
    ("zb-h2", {}, 4, 8, 3, [7]),
    ("zb-h2", {}, 8, 16, 7, [15]),
    ("zb-v", {}, 4, 8, half(3), [4]),
    ("zb-v", {}, 8, 16, half(7), [8]),
    ("v-half", {}, 4, 8, half(5), [3]),
    ("v-min", {}, 4, 8, half(11), [2]),
    ("chimera", {}, 4, 4, 4, [3, 4, 4, 3]),
    ("chimera", {}, 4, 8, 6, [3, 4, 4, 3]),
    ("chimera", {}, 8, 8, 12, [5, 6, 7, 8, 8, 7, 6, 5]),
    ("chimera", {"times": EQUAL}, 4, 4, 2, [3, 4, 4, 3]),
    ("chimera", {"times": EQUAL}, 4, 8, 2, [3, 4, 4, 3]),
    ("bitpipe", {}, 4, 4, 2, [half(7), 4, 4, half(7)]),
    ("bitpipe", {}, 4, 8, 3, [half(7), 4, 4, half(7)]),
    ("bitpipe", {}, 8, 8, 6, [half(n) for n in (13, 14, 15, 16, 16, 15, 14, 13)]),
    ("bitpipe", {"times": EQUAL}, 4, 4, 1, [half(7), 4, 4, half(7)]),
    ("bitpipe", {"times": EQUAL}, 4, 8, 1, [half(7), 4, 4, half(7)]),
    ("2bp-naive", {}, 4, 1, 6, [1]),
    ("2bp-gpipe", {}, 4, 8, 6, [8]),
    ("2bp-1f1b", {}, 4, 8, 3, [8]),
    ("2bp-gpipe", {}, 4, 4, 6, [4]),
    ("2bp-1f1b", {}, 4, 4, 3, [4]),
]

# name, p, m, bubble that public code has, microbatches that its devices hold
MATCHED_OR_BEATEN = [
    ("v-half", 8, 16, half(17), 5),
    ("v-min", 8, 16, half(27), 4),
    ("1f1b-v", 4, 12, half(15), 3),
    ("1f1b-v", 8, 24, half(33), 6),
    ("dualpipe", 4, 8, 2, 5),
    ("dualpipe", 4, 16, 2, 5),
    ("dualpipe", 8, 16, 6, 9),
    ("dualpipe", 8, 20, 6, 9),
    ("dualpipe-v", 4, 8, 3, half(9)),
    ("dualpipe-v", 4, 10, 3, half(9)),
    ("dualpipe-v", 8, 16, 7, half(17)),
]


MOST_HELD = {
    "1f1b-v": lambda p: -(-2 * p // 3),
    "v-half": lambda p: (p + 2) // 2,
    "v-min": lambda p: (p + 4) // 3,
}


@pytest.mark.parametrize(("name", "options", "p", "m", "bubble", "peaks"), WORKED)
def test_worked_values(
    name: str, options: dict[str, Amount], p: int, m: int, bubble: Amount, peaks: list[Amount]
) -> None:
    found = run(name, p, m, **options)  # type: ignore[arg-type]  # options of several types
    assert found.bubble == bubble
    assert found.peaks == peaks * (p if len(peaks) == 1 else 1)
    assert found.result.bubble_ratio == Fr(bubble) / (found.busy + bubble)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "p", "m", "bubble", "peak"), MATCHED_OR_BEATEN)
def test_public_code_is_matched_or_beaten(
    name: str, p: int, m: int, bubble: Amount, peak: Amount
) -> None:
    found = run(name, p, m)
    assert found.bubble <= bubble
    assert max(found.peaks) <= peak


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "eager-1f1b"])
@pytest.mark.parametrize(("p", "m"), SIZES)
def test_one_chunk_waits_for_the_pipeline_to_fill_and_drain(name: str, p: int, m: int) -> None:
    found = run(name, p, m, times=UNEQUAL)
    assert found.bubble == (p - 1) * half(13)


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_activations_of_one_chunk_are_the_closed_forms(p: int, m: int) -> None:
    assert run("gpipe", p, m).peaks == [m] * p
    assert run("1f1b", p, m).peaks == [min(m, p - i) for i in range(p)]
    assert run("eager-1f1b", p, m).peaks == [min(m, 2 * (p - i) - 1) for i in range(p)]


@pytest.mark.parametrize("p", [2, 3, 4, 8])
@pytest.mark.parametrize("v", [1, 2, 3, 4])
def test_chunks_divide_the_bubble(p: int, v: int) -> None:
    m = 2 * p
    bubble = Fr((p - 1) * 13, 2 * v)
    looped = run("interleaved-1f1b", p, m, chunks=v, times=UNEQUAL)
    assert looped.bubble == run("breadth-first", p, m, chunks=v, times=UNEQUAL).bubble == bubble
    expected = [min(m, Fr(2 * (p - 1 - i) + (v - 1) * p + 1, v)) for i in range(p)]
    assert looped.peaks == expected


@pytest.mark.parametrize("p", [2, 3, 4, 8])
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_slices_divide_the_bubble(p: int, k: int) -> None:
    m = 2 * p
    bubble = Fr((p - 1) * 13, 2 * k)
    assert run("terapipe", p, m, slices=k, times=UNEQUAL).bubble == bubble
    one_by_one = run("seq1f1b", p, m, slices=k, times=UNEQUAL)
    assert one_by_one.bubble == bubble
    assert one_by_one.peaks == [Fr(p - i + k - 1, k) for i in range(p)]


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (8, 24)])
@pytest.mark.parametrize("times", [Times(), Times(3, 2, 1), Times(5, 4, 3)])
def test_handcrafted_zero_bubble_is_the_closed_form(p: int, m: int, times: Times) -> None:
    f, b, w = times.forward_s, times.backward_s, times.weight_s
    first, second = (run(name, p, m, times=times) for name in ("zb-h1", "zb-h2"))
    assert first.span_bubble == first.bubble == (p - 1) * (f + b - w)
    assert second.span_bubble == (p - 1) * max(0, f + b - 2 * w)
    assert first.peaks == [p] * p
    assert second.peaks == [2 * p - 1] * p


@pytest.mark.parametrize("p", [2, 3, 4, 6, 8, 16])
def test_zb_v_has_no_bubble_with_the_memory_of_1f1b(p: int) -> None:
    found = run("zb-v", p, 2 * p)
    assert found.span_bubble == 0
    assert max(found.peaks) <= p


@pytest.mark.parametrize("p", [2, 4, 6, 8, 16])
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_two_directions_are_the_closed_forms(p: int, rounds: int) -> None:
    """Chimera's and BitPipe's, of X = 2F and of X = F, for any number of full rounds."""
    m = rounds * p
    for name, chunks, least in (("chimera", 1, p // 2 + 1), ("bitpipe", 2, Fr(3 * p + 2, 4))):
        found, equal = run(name, p, m), run(name, p, m, times=EQUAL)
        assert found.bubble == Fr((p - 2) * (1 + rounds), chunks)
        assert equal.result.bubble_ratio == Fr(p - 2, 2 * chunks * m + p - 2)
        assert (min(found.peaks), max(found.peaks)) == (least, p)


@pytest.mark.parametrize("times", [Times(), Times(2, 2, 1), Times(2, 3, 1), Times(5, 4, 3)])
@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (4, 10), (6, 12), (8, 16), (8, 24)])
def test_dualpipe_waits_no_longer_than_its_closed_form(p: int, m: int, times: Times) -> None:
    whole = times.backward_s + times.weight_s
    pair = times.forward_s + whole
    waits = pair + whole - 3 * times.weight_s
    both, cut = (run(name, p, m, times=times) for name in ("dualpipe", "dualpipe-v"))
    assert both.bubble <= (half(p) - 1) * waits and max(both.peaks) <= p + 1
    assert cut.bubble <= (p - 1) * waits / 2 and max(cut.peaks) <= p + half(1)


@pytest.mark.parametrize("p", [2, 4, 8])
def test_2bp_gains_what_its_paper_says(p: int) -> None:
    naive, gpipe, one = (
        run(f"2bp-{base}", p, 1 if base == "naive" else 2 * p)
        for base in ("naive", "gpipe", "1f1b")
    )
    assert naive.result.bubble_ratio == Fr(2 * (p - 1), 2 * p + 1)
    assert gpipe.result.bubble_ratio == Fr(2 * (p - 1), 2 * (p - 1) + 6 * p)
    assert one.result.bubble_ratio == Fr(p - 1, p - 1 + 6 * p)


WHOLE = [n for n, f in built_in().items() if not (f.split_backward or f.moves)]


@pytest.mark.parametrize("name", WHOLE)
def test_every_family_with_whole_backwards_is_a_base_of_2bp(name: str) -> None:
    """The weight gradients fill gaps on the same placement."""
    base, split = run(name, 4, 8), run(f"2bp-{name}", 4, 8)
    assert split.bubble < base.bubble
    assert split.planned.graph.groups == base.planned.graph.groups
    for lane, other in zip(base.planned.schedule.lanes, split.planned.schedule.lanes, strict=True):
        assert list(lane) == [task for task in other if task.kind != "W"]


@pytest.mark.parametrize(("p", "v", "m"), [(4, 2, 8), (4, 2, 28), (8, 4, 16)])
def test_zeropp_waits_no_longer_than_split_breadth_first(p: int, v: int, m: int) -> None:
    assert run("zeropp", p, m, chunks=v).bubble <= Fr((p - 1) * 2, v)
    for unit in (3, 7):
        assert max(run("zeropp", p, m, chunks=v, limit=unit).peaks) <= min(m, unit)


@pytest.mark.parametrize(
    ("p", "waves", "ratio"),
    [(4, 1, 0.333), (4, 2, 0.213), (4, 4, 0.119), (8, 1, 0.368), (8, 2, 0.238), (8, 4, 0.135)],
)
def test_hanayo_is_the_greedy_order(p: int, waves: int, ratio: float) -> None:
    found = run("hanayo", p, p, chunks=2 * waves)
    assert float(found.result.bubble_ratio) == pytest.approx(ratio, abs=5e-4)
    assert max(found.peaks) <= p


@pytest.mark.parametrize("p", [3, 4, 5, 6, 8, 9])
def test_v_min_and_v_half_are_at_or_below_the_closed_forms(p: int) -> None:
    assert run("v-min", p, 2 * p).bubble <= 2 * p - half(7 if p % 3 == 0 else 5)
    if p % 2 == 0:
        assert run("v-half", p, 2 * p).bubble <= half(3 * p - 7)


@pytest.mark.parametrize(("p", "m"), [(2, 6), (4, 12), (5, 10), (7, 14), (8, 24)])
def test_1f1b_v_waits_no_longer_than_1f1b(p: int, m: int) -> None:
    assert run("1f1b-v", p, m).bubble <= run("1f1b", p, m).bubble


@pytest.mark.parametrize(
    ("m", "bubble"), [(4, half(13)), (5, 7), pytest.param(6, half(15), marks=pytest.mark.slow)]
)
def test_on_three_groups_nothing_with_the_memory_of_1f1b_v_is_shorter(
    m: int, bubble: Amount
) -> None:
    """Not even 1F1B's bubble of 6 is possible: the search proves it for all orders."""
    costs = Costs(max_activations=2, barrier=True)
    known = run("1f1b-v", 3, m)
    found = improved_order(known.planned, costs, 60)
    assert known.bubble == bubble > run("1f1b", 3, m).bubble
    assert found.lower_bound == known.result.makespan_s


@pytest.mark.parametrize("name", MOST_HELD)
@pytest.mark.parametrize("p", [2, 3, 4, 5, 6, 7, 8])
def test_v_schedules_keep_their_memory(name: str, p: int) -> None:
    assert max(run(name, p, 2 * p).peaks) <= MOST_HELD[name](p)


@pytest.mark.slow
@pytest.mark.parametrize("name", MOST_HELD)
@pytest.mark.parametrize("p", [12, 32])
def test_v_schedules_keep_their_memory_on_many_devices(name: str, p: int) -> None:
    assert max(run(name, p, p + 1).peaks) <= MOST_HELD[name](p)


@pytest.mark.parametrize("microbatches", [172, 12])
def test_three_groups_of_1f1b_v_fit_however_few_orders_are_tried(microbatches: int) -> None:
    """Where only one order is filled, what ran early took the room of others."""
    family = built_in()["1f1b-v"]
    work = family.work(Work(3, microbatches))
    schedule = family.generate(work, Costs(is_rough=True))
    check(schedule, family.graph(work, schedule), [MOST_HELD["1f1b-v"](3)] * 3)


@pytest.mark.parametrize("name", [name for name in built_in() if name != "optimal"])
def test_a_pipeline_without_backward_runs_every_forward_once(name: str) -> None:
    work = Work(4, 8, backward=False)
    planned = schedule_named(name).plan(work, Costs())
    kinds = {task.kind for lane in planned.schedule.lanes for task in lane}
    assert kinds == {"P", "F", "U"}


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2", "2bp-gpipe"])
def test_microbatches_in_flight_are_counted_in_the_schedule(name: str) -> None:
    family = schedule_named(name)
    for p, m in SIZES:
        assert list(family.in_flight(Work(p, m))) == run(name, p, m).peaks
        assert family.in_flight(Work(p, m, backward=False)) == (1,) * p


@pytest.mark.parametrize("name", [name for name, family in built_in().items() if family.held])
@pytest.mark.parametrize(("p", "m"), [*SIZES, (8, 3), (5, 40)])
def test_formulas_of_what_stages_hold_count_what_the_lanes_hold(name: str, p: int, m: int) -> None:
    family, work = schedule_named(name), Work(p, m, prologue=False, update_rounds=0)
    assert family.in_flight(work) == most_held(family.generate(work), work)


@pytest.mark.parametrize(
    ("name", "p", "m", "options", "said"),
    [
        ("1f1b", 4, 8, {"chunks": 2}, "'1f1b' runs 1 chunk per device, not 2"),
        ("zb-v", 4, 8, {"chunks": 3}, "'zb-v' runs 2 chunks per device, not 3"),
        ("1f1b", 4, 8, {"slices": 2}, "'1f1b' does not cut microbatches into slices"),
        ("interleaved-1f1b", 4, 6, {}, "takes a multiple of 4 microbatches on 4 devices, not 6"),
        ("chimera", 4, 6, {}, "takes a multiple of 4 microbatches"),
        ("bitpipe", 3, 6, {}, "takes an even number of devices, not 3"),
        ("dualpipe", 4, 6, {}, "takes an even number of at least 8 microbatches"),
        ("dualpipe", 3, 8, {}, "takes an even number of devices"),
        ("dualpipe-v", 4, 6, {}, "takes at least 8 microbatches"),
        ("hanayo", 4, 8, {"chunks": 3}, "runs two chunks per wave, so not 3"),
    ],
)
def test_counts_that_a_family_cannot_take_are_refused(
    name: str, p: int, m: int, options: dict[str, int], said: str
) -> None:
    with pytest.raises(ScheduleError, match=said) as caught:
        run(name, p, m, **options)  # type: ignore[arg-type]
    assert caught.value.code == "SHARDC-242"
    assert caught.value.help


def test_unknown_names_and_impossible_counts_are_refused() -> None:
    with pytest.raises(ScheduleError, match="no schedule 'zigzag'") as caught:
        schedule_named("zigzag")
    assert caught.value.code == "SHARDC-240"
    for counts in [{"num_groups": 0}, {"num_microbatches": 0}, {"chunks": 0}, {"slices": 0}]:
        with pytest.raises(ScheduleError) as caught:
            Work(**({"num_groups": 1, "num_microbatches": 1} | counts))
        assert caught.value.code == "SHARDC-242"


def test_a_slice_takes_its_share_of_each_kind() -> None:
    work = Work(2, 3, slices=2, split_backward=True)
    times = Times(8, 4, 4, forward_slices=(Fr(1, 4), Fr(3, 4)), weight_slices=(half(1), half(1)))
    of = durations(work, times)
    taken = {kind: [of(Task(1, kind, 0, j)) for j in (0, 1)] for kind in "FBWX"}
    assert taken == {"F": [2, 6], "B": [2, 2], "W": [2, 2], "X": [4, 4]}

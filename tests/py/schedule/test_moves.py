"""Moves: gathers of parameters, reduce-scatters of gradients, offloads of activations."""

import json
from fractions import Fraction as Fr
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import shardc
from shardc.cli import main
from shardc.errors import ScheduleError
from shardc.schedule.check import check
from shardc.schedule.families import built_in
from shardc.schedule.family import Costs, Planned
from shardc.schedule.registry import schedule_to_run
from shardc.schedule.shown.chrome_trace import chrome_trace
from shardc.schedule.shown.grid import grid, parse_grid, print_grid
from shardc.schedule.simulate import Simulation, simulate
from shardc.schedule.tasks import Amount, Schedule, Task
from shardc.schedule.times import Times, durations
from shardc.schedule.work import Work
from shardc.schedule.written import planned_by_hand
from tests.py.schedule.simulated import half, run

SHARDED = {"prologue": False, "update_rounds": 1, "gathers": True, "parameters": 1}
FAMILIES = [name for name, family in built_in().items() if not family.any_placement]


def planned(name: str, p: int, m: int, chunks: int | None = None, **options: object) -> Planned:
    base = Work(p, m, **{"prologue": False, "update_rounds": 0, **options})  # type: ignore[arg-type]
    found = built_in()[name].plan(base, Costs(), chunks)
    check(found.schedule, found.graph)
    return found


def timed(found: Planned, times: Times | None = None) -> Simulation:
    of = durations(found.work, times or Times())
    return simulate(found.schedule, found.graph, of)


def count(found: Planned, kind: str, group: int = 0) -> int:
    return sum(task.kind == kind for task in found.schedule.lanes[group])


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_safe_with_sharded_parameters(name: str) -> None:
    chunks = built_in()[name].chunks or (2,)
    found = planned(name, 4, 8, chunks[0], **SHARDED)
    assert found.graph.tasks  # checked
    for group in range(4):
        assert count(found, "G", group) >= chunks[0] and count(found, "R", group) >= chunks[0]
    assert parse_grid(print_grid(found.schedule)).lanes == found.schedule.lanes
    assert Schedule.from_json(json.loads(json.dumps(found.schedule.to_json()))) == found.schedule


@pytest.mark.parametrize("v", [2, 4, 8])
def test_breadth_first_gathers_each_chunk_once_per_pass(v: int) -> None:
    """Two chunks are resident, so the last two of the forward pass are not gathered again."""
    found = planned("breadth-first", 4, 8, v, **SHARDED)
    assert (count(found, "G"), count(found, "R")) == (2 * v - 2, v)
    if v > 2:
        assert count(planned("interleaved-1f1b", 4, 8, v, **SHARDED), "G") > 2 * v - 2


def test_zeropp_gathers_once_per_pass_of_a_block() -> None:
    base = Work(4, 8, **SHARDED)  # type: ignore[arg-type]
    found = built_in()["zeropp"].plan(base, Costs(max_activations=4), 4)
    check(found.schedule, found.graph)
    # The two chunks with which a block ends are those with which the next one begins.
    assert count(found, "G") == 2 * (2 * 4 - 2) - 2 and count(found, "R") == 2 * 4


def test_gathers_hide_behind_compute_and_count_in_memory() -> None:
    """1F1B gathers once, before anything else, and reduces once, behind everything."""
    without = timed(planned("1f1b", 4, 8, update_rounds=1))
    found = planned("1f1b", 4, 8, **SHARDED)
    assert timed(found).makespan_s == without.makespan_s
    slow = timed(found, Times(gather_s=5, reduce_s=3))
    assert slow.makespan_s == 5 + without.makespan_s + 3
    # The parameters of a stage, its gradients, and what it holds anyway.
    assert slow.peak_activations == tuple(each + 2 for each in without.peak_activations)
    chunked = planned("breadth-first", 4, 8, 4, **SHARDED)
    exposed = timed(chunked, Times(gather_s=1, reduce_s=1)).makespan_s - timed(chunked).makespan_s
    assert exposed == half(1)  # the first gather and the last reduction, of a quarter each


@pytest.mark.parametrize(("p", "m"), [(4, 8), (8, 16), (16, 32)])
def test_grouped_interleaving_holds_what_its_formula_says(p: int, m: int) -> None:
    for v in (2, 4):
        assert max(run("grouped-1f1b", p, m, chunks=v).peaks) == Fr(p + (v - 1) * (p // 2), v)
    widest = run("grouped-1f1b", p, m, limit=p)
    assert (
        max(widest.peaks) == p and widest.result.makespan_s <= run("1f1b", p, m).result.makespan_s
    )


@pytest.mark.parametrize("offload", [0, Fr(1, 2), 1])
@pytest.mark.parametrize(("p", "m"), [(4, 8), (8, 16), (16, 32)])
def test_offloading_the_first_chunk_holds_a_quarter(p: int, m: int, offload: Amount) -> None:
    """p / 4 microbatches, and what is on its way to the host and back: at most 3/2."""
    found = planned("pipeoffload", p, m)
    costs = Costs(Times(offload_s=offload, load_s=offload))
    found = built_in()["pipeoffload"].plan(found.work, costs)
    check(found.schedule, found.graph)
    assert count(found, "O") == count(found, "L") == m
    result = timed(found, costs.times if isinstance(costs.times, Times) else None)
    assert result.makespan_s == run("grouped-1f1b", p, m).result.makespan_s
    assert max(result.peak_activations) <= Fr(p, 4) + (Fr(3, 2) if offload else 1)
    assert max(result.peak_activations) < max(run("grouped-1f1b", p, m).peaks)


def test_a_slow_host_holds_the_lane_up_instead_of_the_memory() -> None:
    """Loads are put where the plan had time for them; behind a slower link backwards wait."""
    found = planned("pipeoffload", 4, 8)
    fast, slow = timed(found), timed(found, Times(offload_s=8, load_s=8))
    assert slow.makespan_s > fast.makespan_s
    assert slow.peak_activations == fast.peak_activations
    busy = {"to host": Fr(0), "from host": Fr(0)}
    for each in slow.timeline:
        if each.link and each.device == 0:
            assert each.start_s >= busy[each.link]  # one move at a time each way
            busy[each.link] = Fr(each.end_s)


def test_what_has_no_time_for_the_round_trip_stays() -> None:
    found = built_in()["pipeoffload"].plan(
        Work(4, 8, prologue=False, update_rounds=0), Costs(Times(offload_s=12, load_s=12))
    )
    check(found.schedule, found.graph)
    assert count(found, "O") < 8 and count(found, "L") == count(found, "O")


@pytest.mark.parametrize(
    ("text", "said", "where"),
    [
        ("0 | 0F0 0G0 0B0", "uses the parameters of stage 0, which no G", "column 0"),
        ("0 | 0G0 0F0 0B0 0G1", "nothing uses the parameters that 0G1", "column 3"),
        ("0 | 0F0 0B0 0R0 0F1 0B1", "0B1 comes after the last R", "column 4"),
        ("0 | 0F0 0R0 0B0", "0R0 finds no gradients", "column 1"),
        ("0 | 0F0 0O0 0B0", "0B0 needs activations that are on the host", "column 2"),
        ("0 | 0F0 0L0 0B0", "0L0 finds no activations on the host", "column 1"),
        ("0 | 0F0 0O0 0L0 0L0 0B0", "0L0 finds no activations on the host", "column 3"),
        ("0 | 0O0 0F0 0L0 0B0", "0O0 finds no activations", "column 0"),
        ("0 | 0F0 0B0 0O0", "0O0 finds no activations", "column 2"),
        ("0 | 0F0 0F1 0O1 0B1 0B0", "0B1 needs activations", "column 3"),
    ],
)
def test_a_wrong_move_is_refused_at_its_cell(text: str, said: str, where: str) -> None:
    microbatches = 1 + text.count("F1")
    with pytest.raises(ScheduleError, match=said) as caught:
        planned_by_hand(parse_grid(text, "my.grid"), Work(1, microbatches))
    assert caught.value.code == "SHARDC-248" and caught.value.help
    assert str(caught.value.where).startswith("my.grid:1, row 0") and where in str(
        caught.value.where
    )


def test_moves_by_hand_take_their_time_beside_the_lane() -> None:
    text = "0 | 0G0 0F0 0O0 0F1 0L0 0B0 0B1 0R0"
    found = planned_by_hand(parse_grid(text), Work(1, 2, parameters=2))
    check(found.schedule, found.graph)
    result = timed(found, Times(gather_s=1, reduce_s=2, offload_s=3, load_s=1))
    start = {str(each.action): each.start_s for each in result.timeline}
    # F of microbatch 0 waits for the parameters; its B for the round trip of its activations.
    assert start == {
        "0G0": 0, "0F0": 1, "0O0": 2, "0F1": 2, "0L0": 5, "0B0": 6, "0B1": 8, "0R0": 10,
    }  # fmt: skip
    assert result.makespan_s == 12 and result.bubble_ratio == Fr(12 - 6, 12)
    assert result.peak_activations == (6,)  # parameters, gradients, both microbatches
    rows = grid(result).splitlines()
    assert [row.split("|")[0].strip() for row in rows] == [
        "0", "# mesh 0", "# to host 0", "# from host 0",
    ]  # fmt: skip
    names = [e["args"]["name"] for e in chrome_trace(result)["traceEvents"] if e["ph"] == "M"]
    assert names == ["device 0", "device 0, from host", "device 0, mesh", "device 0, to host"]


def test_the_command_takes_the_times_of_moves(tmp_path: Path) -> None:
    arguments = ["simulate", "--stages", "4", "--microbatches", "8", "--format", "json"]
    offloads = [*arguments, "--schedule", "1f1b", "--offload-chunks", "0", "--offload-time", "1/4"]
    found = json.loads(CliRunner().invoke(main, offloads).stdout)
    assert any("0O0" in lane for lane in found["actions"])
    assert max(found["peak_activations"]) < 4
    trace = tmp_path / "a.pftrace"
    result = CliRunner().invoke(main, [*offloads, "--trace", str(trace)])
    assert result.exit_code == 0 and trace.stat().st_size
    times = ["--schedule", "breadth-first", "--times", "F=1,B=1,W=1,G=1,R=1"]
    found = json.loads(CliRunner().invoke(main, [*arguments, *times]).stdout)
    assert found["actions"][0][:2] == ["0G0", "4G0"] and found["actions"][0][-1] == "0R0"
    for wrong, code in (("3", "SHARDC-242"), ("x", "SHARDC-180")):
        result = CliRunner().invoke(main, [*arguments, "--offload-chunks", wrong])
        assert result.exit_code == 2 and code in result.stderr


def test_what_moves_is_not_planned(tmp_path: Path) -> None:
    written = tmp_path / "moves.grid"
    written.write_text("0 | 0G0 0F0 0B0\n1 | 1F0 1B0")
    for name, said in (("pipeoffload", "shardc simulate"), (str(written), '"gather"')):
        with pytest.raises(ScheduleError) as caught:
            schedule_to_run(name)
        assert caught.value.code == "SHARDC-249" and said in caught.value.help
    assert schedule_to_run(str(written), gathers=True).moves == {"G"}
    with pytest.raises(ScheduleError, match="offloads activations"):
        schedule_to_run("pipeoffload", gathers=True)
    step = shardc.jit(lambda w, x: w * x.sum(), stages=2, schedule="pipeoffload")
    with pytest.raises(ScheduleError, match="simulated, not executed"):
        step(np.ones(2), np.ones(2))


def test_moves_print_and_read_back() -> None:
    for text in ("2G0", "2R1", "0O3.1", "1L2'"):
        assert str(Task.parse(text)) == text

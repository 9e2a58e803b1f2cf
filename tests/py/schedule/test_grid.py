"""The pictures of a schedule: text grids, printed and read, and the Chrome trace."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.errors import ScheduleError
from shardc.schedule.families import built_in
from shardc.schedule.family import Costs
from shardc.schedule.registry import plan_schedule
from shardc.schedule.shown.chrome_trace import chrome_trace
from shardc.schedule.shown.grid import grid, parse_grid, print_grid
from shardc.schedule.simulate import Simulation, simulate
from shardc.schedule.tasks import Amount
from shardc.schedule.times import Times, durations
from shardc.schedule.work import Work

# Narayanan et al. 2021, figure 4 (top), its first half: 4 devices, here with 4 microbatches.
PUBLISHED_1F1B = """\
0 | 0F0 0F1 0F2 0F3 .   .   .   .   .   .   0B0 =   .   0B1 =   .   0B2 =   .   0B3 =
1 | .   1F0 1F1 1F2 .   .   .   .   1B0 =   1F3 1B1 =   .   1B2 =   .   1B3 =   .   .
2 | .   .   2F0 2F1 .   .   2B0 =   2F2 2B1 =   2F3 2B2 =   .   2B3 =   .   .   .   .
3 | .   .   .   3F0 3B0 =   3F1 3B1 =   3F2 3B2 =   3F3 3B3 =   .   .   .   .   .   ."""


def simulated(
    name: str, p: int, m: int, times: list[Times] | Times | None = None, transfer_s: Amount = 0
) -> Simulation:
    planned = plan_schedule(name, Work(p, m), Costs())
    of = durations(planned.work, times or Times())
    return simulate(planned.schedule, planned.graph, of, transfer_s)


def test_1f1b_grid_matches_the_published_one() -> None:
    assert grid(simulated("1f1b", 4, 4)) == PUBLISHED_1F1B


def test_a_step_that_takes_no_time_prints_nothing() -> None:
    assert grid(simulated("gpipe", 2, 2, Times(0, 0, 0))) == ""


def test_actions_between_columns_never_overlap() -> None:
    times = [Times(0.9, 1.3, 0.7), Times(1.1, 0.4, 0.5), Times(0.6, 1.0, 1.0)]
    text = grid(simulated("1f1b", 3, 5, times, 0.3))
    for stage, line in enumerate(text.splitlines()):
        shown = [cell for cell in line.split("| ")[1].split() if cell not in ".="]
        assert sorted(shown) == sorted(f"{stage}{kind}{k}" for kind in "FB" for k in range(5))


@given(st.sampled_from(sorted(set(built_in()) - {"optimal"})))
def test_a_printed_grid_reads_back(name: str) -> None:
    planned = plan_schedule(name, Work(4, 8), Costs())
    lanes = planned.schedule.lanes
    assert parse_grid(print_grid(planned.schedule)).lanes == lanes
    if built_in()[name].moves:
        return  # they run beside the other tasks, and are comments of a timed grid
    result = simulate(
        planned.schedule, planned.graph, durations(planned.work, Times(1, 1, 1, 1, 1))
    )
    assert parse_grid(grid(result)).lanes == lanes


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("0 | 0F0 0B0\n1 | 1F0 oops", "grid:2, row 1, column 1"),
        ("0 | . = 0F0 0Q0", "grid:1, row 0, column 3"),
        ("0F0 0B0", "grid:1"),
        ("0 | 0F0\n0 | 0B0", "grid:2"),
    ],
)
def test_what_is_no_grid_is_refused_with_its_cell(text: str, where: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_grid(text)
    assert (caught.value.code, caught.value.where) == ("SHARDC-241", where)
    assert caught.value.help


def test_trace_holds_every_lasting_action_once() -> None:
    result = simulated("1f1b", 2, 3)
    trace = json.loads(json.dumps(chrome_trace(result)))
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(events) == 2 * 2 * 3
    assert max(event["ts"] + event["dur"] for event in events) == result.makespan_s * 1e6
    assert {event["tid"] for event in events} == {0, 1}

"""The two pictures of a simulation: the text grid and the Chrome trace."""

import json

from shardc.schedule.grid import grid
from shardc.schedule.registry import generate
from shardc.schedule.simulate import Times, simulate
from shardc.schedule.trace import chrome_trace
from shardc.schedule.work import Work

# Narayanan et al. 2021, figure 4 (top), its first half: 4 devices, here with 4 microbatches.
PUBLISHED_1F1B = """\
0 | 0F0 0F1 0F2 0F3 .   .   .   .   .   .   0B0 =   .   0B1 =   .   0B2 =   .   0B3 =
1 | .   1F0 1F1 1F2 .   .   .   .   1B0 =   1F3 1B1 =   .   1B2 =   .   1B3 =   .   .
2 | .   .   2F0 2F1 .   .   2B0 =   2F2 2B1 =   2F3 2B2 =   .   2B3 =   .   .   .   .
3 | .   .   .   3F0 3B0 =   3F1 3B1 =   3F2 3B2 =   3F3 3B3 =   .   .   .   .   .   ."""


def test_1f1b_grid_matches_the_published_one() -> None:
    work = Work(4, 4)
    assert grid(simulate(generate("1f1b", work), work)) == PUBLISHED_1F1B


def test_a_step_that_takes_no_time_prints_nothing() -> None:
    work = Work(2, 2)
    assert grid(simulate(generate("gpipe", work), work, Times(0.0, 0.0, 0.0))) == ""


def test_actions_between_columns_never_overlap() -> None:
    work = Work(3, 5)
    times = [Times(0.9, 1.3, 0.7), Times(1.1, 0.4, 0.5), Times(0.6, 1.0, 1.0)]
    text = grid(simulate(generate("1f1b", work), work, times, transfer_s=0.3))
    for stage, line in enumerate(text.splitlines()):
        shown = [cell for cell in line.split("| ")[1].split() if cell not in ".="]
        assert sorted(shown) == sorted(f"{stage}{kind}{k}" for kind in "FB" for k in range(5))


def test_trace_holds_every_lasting_action_once() -> None:
    work = Work(2, 3)
    result = simulate(generate("1f1b", work), work)
    trace = json.loads(json.dumps(chrome_trace(result)))
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(events) == 2 * 2 * 3
    assert max(event["ts"] + event["dur"] for event in events) == result.makespan_s * 1e6
    assert {event["tid"] for event in events} == {0, 1}

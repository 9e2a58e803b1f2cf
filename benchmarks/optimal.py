"""The schedule `optimal` beside every family within the same memory, on 8 device groups.

    python -m benchmarks.optimal [--effort 30] [--out rows.jsonl]
    python -m benchmarks.optimal --table rows.jsonl

One row per times of F, B and W and number of microbatches that a group may hold: the shortest span
of a family that fits, the span and bound of `optimal`, and the seconds that the search took, beside
the load of the machine. Ends with 1 where a family is shorter.
"""

import argparse
import json
import os
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

from shardc.schedule.check import peaks
from shardc.schedule.families import built_in
from shardc.schedule.family import Costs, Planned
from shardc.schedule.registry import plan_schedule
from shardc.schedule.simulate import simulate
from shardc.schedule.tasks import Amount
from shardc.schedule.times import Times, durations
from shardc.schedule.work import Work

STAGES, MICROBATCHES, TRANSFER_S = 8, 24, Fraction(1, 4)
TIMES = (Times(1, 1, 1), Times(3, 4, 2), Times(5, 4, 3))  # F, B and W of a group's whole share
LIMITS = (STAGES // 2, STAGES, 2 * STAGES)  # microbatches that a group may hold
WORK = Work(STAGES, MICROBATCHES, prologue=False, update_rounds=0)


def span(planned: Planned, costs: Costs) -> Amount:
    """The longest time from a group's first start to its last end."""
    of = durations(planned.work, costs.times, planned.slice_shares)
    return simulate(planned.schedule, planned.graph, of, costs.transfer_s).span_s


def families(costs: Costs) -> dict[str, tuple[Amount, Amount]]:
    """Span, and microbatches held on the fullest group, of each family that takes the counts."""
    found = {}
    for name, family in built_in().items():
        if family.any_placement or family.moves:
            continue
        if not family.refuses(family.work(WORK)):
            planned = plan_schedule(name, WORK, costs)
            held = max(peaks(planned.schedule, planned.graph))
            found[name] = span(planned, costs), held
    return found


def row(times: Times, limit: int, effort_s: float) -> dict[str, Any]:
    """What `optimal` and the families take within a limit."""
    costs = Costs(times, TRANSFER_S, limit, effort_s=effort_s)
    known = families(costs)
    fitting = {name: length for name, (length, held) in known.items() if held <= limit}
    start_s, start_cpu_s = time.monotonic(), time.process_time()
    best = plan_schedule("optimal", WORK, costs)
    took_s, cpu_s = time.monotonic() - start_s, time.process_time() - start_cpu_s
    name, shortest = min(fitting.items(), key=lambda each: each[1])
    assert best.lower_bound is not None, "optimal has a bound"
    return {
        "times": [times.forward_s, times.backward_s, times.weight_s],
        "limit": limit,
        "families": len(known),
        "fitting": len(fitting),
        "shortest_family": name,
        "family_span": float(shortest),
        "optimal_span": float(span(best, costs)),
        "lower_bound": float(best.lower_bound),
        "chunks": best.work.chunks,
        "slices": best.work.slices,
        "copies": best.work.replicas,
        "seconds": round(took_s, 1),
        "processor_seconds": round(cpu_s, 1),
        "load": [round(load, 1) for load in os.getloadavg()],
    }


def line(found: dict[str, Any]) -> str:
    """A row of the table in docs/schedules.md."""
    parts = {name: found[name] for name in ("chunks", "slices", "copies") if found[name] > 1}
    cells = (
        ", ".join(map(str, found["times"])),
        str(found["limit"]),
        f"{found['fitting']} of {found['families']}",
        f"{found['family_span']:g} ({found['shortest_family']})",
        f"{found['optimal_span']:g}",
        f"{found['lower_bound']:g}",
        ", ".join(f"{count} {name}" for name, count in parts.items()) or "-",
        f"{found['seconds']:.0f}, {found['processor_seconds']:.0f}",
        f"{found['load'][0]:g}",
    )
    return f"| {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--effort", type=float, default=30.0, help="counted work per search")
    parser.add_argument("--out", type=Path, help="rows are added to it, one per line")
    parser.add_argument("--table", type=Path, help="prints rows written before")
    options = parser.parse_args()
    if options.table is not None:
        for text in options.table.read_text().splitlines():
            print(line(json.loads(text)))
        return 0
    behind = False
    for times in TIMES:
        for limit in LIMITS:
            found = row(times, limit, options.effort)
            behind |= found["optimal_span"] > found["family_span"]
            print(line(found), flush=True)
            if options.out is not None:
                with options.out.open("a") as file:
                    file.write(json.dumps(found) + "\n")
    return int(behind)


if __name__ == "__main__":
    sys.exit(main())

"""The schedule `optimal` beside every family within the same memory, on 8 device groups.

    python -m benchmarks.optimal [--effort 30]

One line per times of F, B and W and number of microbatches that a group may hold: the shortest span
of a family that fits, the span and bound of `optimal`, and the seconds that the search took. Ends
with 1 where a family is shorter.
"""

import argparse
import sys
import time
from fractions import Fraction

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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--effort", type=float, default=30.0, help="counted work per search")
    effort_s = parser.parse_args().effort
    behind = False
    for times in TIMES:
        for limit in LIMITS:
            costs = Costs(times, TRANSFER_S, limit, effort_s=effort_s)
            known = families(costs)
            fitting = {name: length for name, (length, held) in known.items() if held <= limit}
            start_s, start_cpu_s = time.monotonic(), time.process_time()
            best = plan_schedule("optimal", WORK, costs)
            took_s = time.monotonic() - start_s
            cpu_s = time.process_time() - start_cpu_s
            name, shortest = min(fitting.items(), key=lambda each: each[1])
            length, bound = span(best, costs), best.lower_bound
            assert bound is not None, "optimal has a bound"
            behind |= length > shortest
            work = best.work
            print(
                f"F={times.forward_s} B={times.backward_s} W={times.weight_s} held<={limit}:"
                f" {len(fitting)} of {len(known)} families fit, {name} {float(shortest):g};"
                f" optimal {float(length):g} >= {float(bound):g} (chunks {work.chunks}, slices"
                f" {work.slices}, copies {work.replicas}) in {took_s:.0f} s, {cpu_s:.0f} s of the"
                " processor",
                flush=True,
            )
    return int(behind)


if __name__ == "__main__":
    sys.exit(main())

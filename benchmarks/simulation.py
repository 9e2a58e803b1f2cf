"""How long it takes to simulate about 10,000 actions of each schedule.

    python -m benchmarks.simulation [--actions 10000] [--repeats 3]

One row per family: actions, and the least processor time of `simulate` (with its timeline and peaks
of activations) and of `lengths` (what searches call), beside that of five million additions, which
is a unit of the machine.
"""

import argparse
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial

from shardc.schedule.families import built_in
from shardc.schedule.family import Costs
from shardc.schedule.registry import plan_schedule
from shardc.schedule.simulate import lengths, simulate
from shardc.schedule.times import Times
from shardc.schedule.work import Work

STAGES = 8
COSTS = Costs(Times(3, 4, 2), Fraction(1, 4), time_limit_s=0, is_rough=True)


def least_s(work: Callable[[], object], repeats: int) -> float:
    """The shortest processor time of several runs."""
    taken = []
    for _ in range(repeats):
        start_s = time.process_time()
        work()
        taken.append(time.process_time() - start_s)
    return min(taken)


def additions() -> int:
    total = 0
    for number in range(5_000_000):
        total += number
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--actions", type=int, default=10_000, help="about so many each")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    unit_s = least_s(additions, options.repeats)
    print(f"five million additions: {unit_s:.3f} s")
    for name, family in built_in().items():
        if family.any_placement:
            continue
        work = family.work(Work(STAGES, 2 * STAGES))
        kinds = 3 if work.split_backward else 2
        rounds = options.actions // (STAGES * STAGES * work.chunks * work.slices * kinds)
        base = Work(STAGES, STAGES * max(rounds, 2), prologue=False, update_rounds=0)
        if family.refuses(family.work(base)):
            continue
        planned = plan_schedule(name, base, COSTS)
        of = COSTS.durations(planned.work, planned.slice_shares)
        given = planned.schedule, planned.graph, of, COSTS.send_s
        whole_s = least_s(partial(simulate, *given), options.repeats)
        lengths_s = least_s(partial(lengths, *given), options.repeats)
        actions = sum(map(len, planned.schedule.lanes))
        print(
            f"{name}: {actions} actions, simulate {whole_s:.3f} s ({whole_s / unit_s:.2f} units),"
            f" lengths {lengths_s:.3f} s ({lengths_s / unit_s:.2f} units)",
            flush=True,
        )


if __name__ == "__main__":
    main()

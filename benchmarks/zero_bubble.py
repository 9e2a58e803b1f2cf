"""Bubble rates of the zero-bubble paper's profiles beside those of shardc's schedules.

python benchmarks/zero_bubble.py [--time-limit 60]

Each row: the rates of the paper (arXiv 2401.10241, tables 5 and 9) and, after a slash, ours. 1p and
2p are the paper's search within p and 2p microbatches; ours is `optimal` with one stage per device.
"""

import argparse
from fractions import Fraction

from shardc.schedule.family import Costs
from shardc.schedule.registry import plan_schedule
from shardc.schedule.simulate import simulate
from shardc.schedule.times import Times, durations
from shardc.schedule.work import Work

PROFILES = """
1.5B 8 24 18.522 18.086 9.337 0.601 .2431 .1585 .1083 .1585 .0433
1.5B 8 32 18.513 18.086 9.331 0.626 .1985 .1242 .0837 .1242 .0039
1.5B 8 64 18.546 18.097 9.321 0.762 .1240 .0674 .0444 .0674 .0026
6.2B 8 24 29.718 29.444 19.927 0.527 .2347 .1323 .0698 .1323 .0029
6.2B 8 32 29.802 29.428 19.530 0.577 .1898 .1045 .0559 .1045 .0022
6.2B 8 64 29.935 29.621 19.388 0.535 .1091 .0554 .0294 .0554 .0010
""".strip().splitlines()
SHAPES = {"1.5B": (2304, 24), "6.2B": (4096, 32)}  # hidden size, heads; 1024 tokens


def rate(name: str, base: Work, costs: Costs) -> tuple[float, float | None]:
    """Span bubble ratio, and the bound of the span as a ratio where there is one."""
    chunks = 1 if name == "optimal" else None
    planned = plan_schedule(name, base, costs, chunks)
    of = durations(planned.work, costs.times)
    result = simulate(planned.schedule, planned.graph, of, costs.transfer_s)
    bound = planned.lower_bound
    times = costs.times
    busy = base.num_microbatches * (times.forward_s + times.backward_s + times.weight_s)
    return float(result.span_bubble_ratio), None if bound is None else float(1 - busy / bound)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--effort", type=float, default=30.0, help="counted work per search")
    effort_s = parser.parse_args().effort
    for profile in PROFILES:
        model, p, m, f, b, w, transfer, *published = profile.split()
        hidden, heads = SHAPES[model]
        share = Fraction(32 * hidden, 34 * hidden + 5 * heads * 1024)
        base = Work(int(p), int(m), prologue=False, update_rounds=0, weight_share=share)
        times = Times(Fraction(f), Fraction(b), Fraction(w))
        cells = []
        for name, most, paper in zip(
            ("1f1b", "zb-h1", "zb-h2", "optimal", "optimal"),
            (None, None, None, int(p), 2 * int(p)),
            published,
            strict=True,
        ):
            costs = Costs(times, Fraction(transfer), most, effort_s=effort_s)
            ours, bound = rate(name, base, costs)
            cells.append(
                f"{paper}/{ours:.4f}" + (f" (>= {bound:.4f})" if bound is not None else "")
            )
        print(model, p, m, *cells, flush=True)


if __name__ == "__main__":
    main()

"""Draws every schedule of docs/schedules.md from its own grid, with bubble and memory.

python tools/draw_schedules.py            write the section
python tools/draw_schedules.py --check    exit 1 if the section is not what would be written
"""

import sys
from fractions import Fraction
from pathlib import Path

from shardc.schedule.families import built_in
from shardc.schedule.family import Costs, ScheduleFamily
from shardc.schedule.shown.grid import grid
from shardc.schedule.simulate import simulate
from shardc.schedule.times import Times, durations
from shardc.schedule.work import Work

PAGE = Path(__file__).resolve().parents[1] / "docs" / "schedules.md"
BEGIN, END = "<!-- drawn by tools/draw_schedules.py -->\n", "<!-- end of what is drawn -->\n"
DEVICES, MICROBATCHES, MORE = 4, 4, 8  # MORE: what needs at least two microbatches per device


def drawn(family: ScheduleFamily) -> str:
    """One family: its heading, what it takes, and its grid with F = B = W = 1 (and O = L = 1)."""
    count = MORE if family.name.startswith(("dualpipe", "zb-h2")) else MICROBATCHES
    base = Work(DEVICES, count, prologue=False, update_rounds=0)
    times = Times(offload_s=1, load_s=1)
    planned = family.plan(base, Costs(times, time_limit_s=0))
    result = simulate(planned.schedule, planned.graph, durations(planned.work, times))
    busy = 3 * count
    peaks = " ".join(map(str, result.peak_activations))
    facts = [
        f"{planned.work.chunks} chunks per device" * (planned.work.chunks > 1),
        f"{planned.work.slices} slices per microbatch" * (planned.work.slices > 1),
        "each stage on two devices" * (planned.work.replicas > 1),
        f"bubble {Fraction(result.makespan_s) - busy} ({float(result.bubble_ratio):.1%})",
        f"by span {Fraction(result.span_s) - busy} ({float(result.span_bubble_ratio):.1%})",
        f"activations held {peaks}",
    ]
    head = f"### {family.name}\n\n{family.about[0].upper()}{family.about[1:]}."
    return f"{head} {'; '.join(filter(None, facts)).capitalize()}.\n\n```\n{grid(result)}\n```\n"


def section() -> str:
    """Everything between the two marks of the page."""
    return "\n" + "\n".join(map(drawn, built_in().values())) + "\n"


def page(text: str) -> str:
    """`text` with its section drawn anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + section() + END + after


if __name__ == "__main__":
    old = PAGE.read_text(encoding="utf-8")
    new = page(old)
    if "--check" in sys.argv:
        sys.exit(old != new)
    PAGE.write_text(new, encoding="utf-8")

"""The page of `shardc what-if`: many machines beside each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from bokeh.palettes import Category10

from shardc.plan.notes import size
from shardc.report.page.cases import Case, cheapest
from shardc.report.page.figures import SIZES, TIMES, Bar, Chart, bars, unit
from shardc.report.page.html import render
from shardc.report.summary import seconds

TEMPLATE = "what_if.html.jinja"


@dataclass(frozen=True)
class WhatIf:
    """A page on the cases of one program.

    Args:
        program: its name.
    """

    program: str
    cases: tuple[Case, ...]

    @cached_property
    def charts(self) -> tuple[Chart, ...]:
        """Step time, cost and memory."""
        fitting = [case for case in self.cases if case.fits]
        priced = bool(fitting) and all(case.price is not None for case in fitting)
        cost_s = [] if priced else [case.cost for case in fitting]
        what = "Price" if priced else "Device-seconds"
        of = "example" if any(case.batch for case in self.cases) else "step"
        cost_unit = ("", 1.0) if priced else unit(max(cost_s, default=0.0), TIMES)
        step_unit = unit(max((case.step_s or 0.0 for case in fitting), default=0.0), TIMES)
        return (
            _chart(self.cases, "Step time", [case.step_s for case in self.cases], step_unit),
            _chart(
                self.cases,
                f"{what} per {of}",
                [case.cost if case.fits else None for case in self.cases],
                cost_unit,
                "" if priced else "Seconds of unlike devices do not compare; --prices makes them.",
            ),
            _chart(
                self.cases,
                "Peak memory of a device",
                [case.peak_bytes for case in self.cases],
                unit(max((case.peak_bytes or 0 for case in fitting), default=0), SIZES),
            ),
        )

    @cached_property
    def html(self) -> str:
        """The page, which needs no network and no other files."""
        return render(
            TEMPLATE,
            self.charts,
            title=f"shardc: {self.program} on other machines",
            charts=self.charts,
            cases=self.cases,
            priced=any(case.price is not None for case in self.cases),
            cheapest=cheapest(self.cases),
            seconds=seconds,
            size=size,
        )


def _chart(
    cases: Sequence[Case],
    title: str,
    values: Sequence[float | None],
    scale: tuple[str, float],
    caption: str = "",
) -> Chart:
    """One bar for each case, in the color of its kind of device."""
    kinds = list(dict.fromkeys(case.device for case in cases))
    colors = [Category10[10][n % 10] for n in range(len(kinds))]
    name, size_of_unit = scale
    rows = []
    for case, value in zip(cases, values, strict=True):
        known = "does not fit" if value is None else f"{value / size_of_unit:.3g} {name}".strip()
        rows.append(
            Bar(
                f"{_words(case)}: {known}",
                tuple(value or 0.0 if case.device == kind else 0.0 for kind in kinds),
                case.parallelism,
            )
        )
    legend = tuple(zip(colors, kinds, strict=True)) if len(kinds) > 1 else ()
    return Chart(title, bars(rows, colors, size_of_unit, name), legend, caption)


def _words(case: Case) -> str:
    batch = f", batch {case.batch}" if case.batch else ""
    return f"{case.cluster}, {case.devices} devices of {size(case.memory_bytes)}{batch}"

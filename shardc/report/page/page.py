"""One HTML file with the full description of a plan, or of two."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from shardc.plan.decisions import Plan
from shardc.plan.layout import folded_names, stage_names
from shardc.plan.notes import size
from shardc.report.compare import comparison
from shardc.report.model import Reading
from shardc.report.page.html import render, save
from shardc.report.page.tree import Node, tree_of
from shardc.report.reading import read_plan
from shardc.report.summary import explain, seconds
from shardc.report.words import in_words

if TYPE_CHECKING:
    from shardc.report.page.figures import Chart

TEMPLATE = "page.html.jinja"
MOST_ALIVE = 40  # rows


@dataclass(frozen=True)
class Report:
    """A report on one plan, or on two side by side; `str` is the page.

    Args:
        plans: by name.
    """

    plans: tuple[tuple[str, Plan], ...]

    @cached_property
    def _parts(self) -> "list[_Part]":
        return [_Part(name, plan) for name, plan in self.plans]

    @property
    def charts(self) -> "list[Chart]":
        """All charts in the order of the page."""
        return [chart for part in self._parts for chart in part.charts]

    @cached_property
    def html(self) -> str:
        """The page, which needs no network and no other files."""
        parts = self._parts
        return render(
            TEMPLATE,
            self.charts,
            title=f"shardc: {' and '.join(part.name for part in parts)}",
            plans=[
                {
                    "reading": part.reading,
                    "name": part.name,
                    "words": in_words(part.reading),
                    "table": explain(part.plan),
                    "charts": part.charts,
                    "tree": part.tree,
                }
                for part in parts
            ],
            difference=_difference([part.reading for part in parts]),
            comparison=self._comparison(),
            most_alive=MOST_ALIVE,
            fold_names=folded_names,
            size=size,
            seconds=seconds,
        )

    def save(self, path: str | Path) -> None:
        """Writes the page; InputError (SHARDC-180) if that fails."""
        save(path, self.html)

    def _repr_html_(self) -> str:
        """In a notebook: the page in its own frame."""
        from markupsafe import escape

        return (
            f'<iframe srcdoc="{escape(self.html)}" style="width:100%;height:640px;border:0">'
            "</iframe>"
        )

    def _comparison(self) -> str:
        if len(self.plans) < 2:
            return ""
        one, other = (plan.judged(name) for name, plan in self.plans)
        return "\n".join(comparison(one, other))


class _Part:
    """The part of the page about one plan."""

    def __init__(self, name: str, plan: Plan) -> None:
        self.name, self.plan = name, plan
        self.reading = read_plan(plan)

    @cached_property
    def tree(self) -> Node:
        account = self.plan.account
        if account is None:
            return tree_of(())
        return tree_of(account.parts, {each.name: each.shape for each in account.arguments})

    @cached_property
    def charts(self) -> "list[Chart]":
        """Drawn once: a Bokeh figure is in one document."""
        from shardc.report.page import charts
        from shardc.report.page.device_chart import mesh

        found = [mesh(self.plan), charts.at_peak(self.reading.stages, self.reading.num_own_stages)]
        if self.plan.account is not None:
            found.insert(0, charts.timeline(self.plan.account))
            found.append(charts.memory(self.plan, self.plan.account))
        if self.reading.communication:
            stages = len(self.reading.stages), self.reading.num_own_stages
            found.append(charts.communication(self.reading.communication, *stages))
        if len(self.reading.judged) > 1:
            found.append(charts.ranked(self.reading.judged))
        return found


def _difference(readings: Sequence[Reading]) -> list[list[str]]:
    """Rows of facts in which two plans differ."""
    if len(readings) < 2:
        return []
    columns = [_facts(reading) for reading in readings]
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [[name, *(column.get(name, "-") for column in columns)] for name in names]
    return [row for row in rows if len(set(row[1:])) > 1]


def _facts(reading: Reading) -> dict[str, str]:
    found = {
        "parallelism": reading.headline,
        "schedule": f"{reading.schedule}, {reading.num_microbatches} microbatches",
        "step": seconds(reading.terms.step_time_s),
        "memory": size(reading.fit.peak_bytes),
    }
    for n, stage in enumerate(reading.stages):
        found[stage_names([n], reading.num_own_stages)] = f"{stage.mesh} on {stage.devices}"
    for group in reading.groups:
        found[group.name] = f"stage {group.stage} {group.lies}, {size(group.num_bytes)}"
    return found

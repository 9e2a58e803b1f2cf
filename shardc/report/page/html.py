"""HTML pages that need no network and no other files: templates by Jinja, charts by Bokeh."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardc.errors import writing
from shardc.files import write_whole

if TYPE_CHECKING:
    from shardc.report.page.figures import Chart


def render(template: str, all_charts: "Sequence[Chart]", **values: Any) -> str:
    """A page of `template`, which includes `chart.html.jinja` for each `chart`."""
    from bokeh.embed import components
    from bokeh.resources import Resources
    from jinja2 import Environment, PackageLoader, select_autoescape
    from markupsafe import Markup

    script, divs = components([chart.plot for chart in all_charts])
    environment = Environment(
        loader=PackageLoader("shardc.report.page", "."),
        autoescape=select_autoescape(default=True, default_for_string=True),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page: str = environment.get_template(template).render(
        drawn={chart.plot.id: Markup(div) for chart, div in zip(all_charts, divs, strict=True)},
        resources=Markup(Resources(mode="inline", components=["bokeh"]).render_js()),
        script=Markup(script),
        **values,
    )
    return page


def save(path: str | Path, html: str) -> None:
    """Writes a page; InputError (SHARDC-180) if that fails."""
    with writing("the report", path):
        write_whole(path, html.encode())
